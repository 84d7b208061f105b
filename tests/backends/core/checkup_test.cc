#include "backends/core/checkup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tenon {
namespace {

using ::testing::HasSubstr;

const std::vector<Finding> kFindings = {
    {"cpu", Verdict::kOk, "fast", ""},
    {"memory", Verdict::kWarn, "little", "buy some"},
    {"port", Verdict::kFail, "taken\nreally", "free it"},
};

TEST(Checkup, TextHasALineForEachFindingAndOneForItsAdvice) {
  EXPECT_EQ(FindingsText(kFindings),
            "ok    cpu     fast\n"
            "warn  memory  little\n"
            "              -> buy some\n"
            "fail  port    taken\\nreally\n"
            "              -> free it\n"
            "3 checks, 1 warnings, 1 failures\n");
}

TEST(Checkup, JsonTellsTheSame) {
  const auto json = nlohmann::json::parse(FindingsJson(kFindings));
  EXPECT_EQ(json["ok"], false);
  ASSERT_EQ(json["findings"].size(), 3u);
  EXPECT_EQ(json["findings"][1]["subject"], "memory");
  EXPECT_EQ(json["findings"][1]["verdict"], "warn");
  EXPECT_EQ(json["findings"][2]["fact"], "taken\nreally");
  EXPECT_EQ(json["findings"][2]["advice"], "free it");
}

TEST(Checkup, WarningsAreNoFailures) {
  EXPECT_TRUE(AnyFailed(kFindings));
  EXPECT_FALSE(AnyFailed({kFindings[0], kFindings[1]}));
  EXPECT_FALSE(AnyFailed({}));
}

}  // namespace
}  // namespace tenon
