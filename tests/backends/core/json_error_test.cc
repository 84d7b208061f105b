#include "backends/core/json_error.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tenon {
namespace {

using Json = nlohmann::json;

std::string ErrorOf(const std::string& text) {
  try {
    return Json::parse(text).dump();
  } catch (const Json::exception& error) {
    return JsonErrorText(error.what());
  }
}

TEST(JsonErrorTest, TellsPlaceAndWhatWasExpectedWithoutIds) {
  EXPECT_EQ(ErrorOf("{\n\"a\": 1\n\"b\": 2}"),
            "line 3, column 3: syntax error while parsing object - unexpected string literal; "
            "expected '}'");
  EXPECT_EQ(ErrorOf("[1e999]"), "number overflow parsing '1e999'");
  EXPECT_EQ(JsonErrorText("something else"), "something else");
  EXPECT_EQ(JsonErrorText("[json.exception.without an end"), "[json.exception.without an end");
  EXPECT_EQ(JsonErrorText(""), "");
}

TEST(JsonErrorTest, DoesNotRepeatTheFile) {
  const std::string text = ErrorOf("\"" + std::string(100'000, 'x'));
  EXPECT_EQ(text.size(), 256u);
  EXPECT_EQ(text.substr(0, 19), "line 1, column 1000");
  EXPECT_TRUE(text.ends_with("..."));
}

}  // namespace
}  // namespace tenon
