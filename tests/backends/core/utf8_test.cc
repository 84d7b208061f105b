#include "backends/core/utf8.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

using namespace std::string_view_literals;

TEST(Utf8Test, WellFormed) {
  EXPECT_EQ(Utf8Length("a"), 1u);
  EXPECT_EQ(Utf8Length("\0"sv), 1u);
  EXPECT_EQ(Utf8Length("\x7F"), 1u);
  EXPECT_EQ(Utf8Length("\xC2\x80"), 2u);
  EXPECT_EQ(Utf8Length("α,b"), 2u);
  EXPECT_EQ(Utf8Length("\xE0\xA0\x80"), 3u);
  EXPECT_EQ(Utf8Length("\xEF\xBF\xBF"), 3u);
  EXPECT_EQ(Utf8Length("😀"), 4u);
  EXPECT_EQ(Utf8Length("\xF4\x8F\xBF\xBF"), 4u);
}

TEST(Utf8Test, IllFormed) {
  for (const std::string_view text :
       {""sv, "\x80"sv, "\xBF"sv, "\xC0\x80"sv, "\xC1\xBF"sv, "\xC3"sv, "\xC3("sv, "\xE0\x9F\xBF"sv,
        "\xE2\x82"sv, "\xE2\x28\xA1"sv, "\xED\xA0\x80"sv, "\xED\xBF\xBF"sv, "\xF0\x8F\xBF\xBF"sv,
        "\xF0\x9F\x98"sv, "\xF4\x90\x80\x80"sv, "\xF8\x88\x80\x80\x80"sv, "\xFF"sv}) {
    EXPECT_EQ(Utf8Length(text), 0u) << ::testing::PrintToString(text);
  }
}

TEST(Utf8Test, PrefixEndsBetweenCodePoints) {
  const std::string_view text = "aé€😀";  // 1 + 2 + 3 + 4 bytes
  const size_t expected[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (size_t limit = 0; limit < std::size(expected); ++limit) {
    EXPECT_EQ(Utf8Prefix(text, limit).size(), expected[limit]) << limit;
  }
  EXPECT_EQ(Utf8Prefix("\xFF\xFF\xFF\xFF", 3).size(), 3u);
  EXPECT_EQ(Utf8Prefix("a\xBF\xBF\xBF", 2).size(), 2u);
}

TEST(Utf8Test, ReplacesIllFormedBytes) {
  EXPECT_EQ(ReplaceInvalidUtf8("aé€😀"), "aé€😀");
  EXPECT_EQ(ReplaceInvalidUtf8("a\xFFz\xE2\x82"), "a\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(ReplaceInvalidUtf8(""), "");
}

}  // namespace
}  // namespace tenon
