#include "client/cpp/tool/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/core/error.h"

namespace tenon::tool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <typename T>
void ExpectBad(const absl::StatusOr<T>& value, const std::string& text) {
  ASSERT_FALSE(value.ok()) << text;
  const ErrorDetails details = GetErrorDetails(value.status());
  EXPECT_EQ(details.reason, Reason::kBadParameter) << text;
  ASSERT_EQ(details.fields.size(), 1u) << text;
  EXPECT_EQ(details.fields[0].first, "--x") << text;
}

TEST(ValuesTest, SizesAreWrittenAsTheyAreRead) {
  const int64_t gib = int64_t{1} << 30;
  EXPECT_EQ(SizeArgument(4 * gib), "4GiB");
  EXPECT_EQ(SizeArgument(gib + gib / 2), "1536MiB");
  EXPECT_EQ(SizeArgument(1000), "1000");
  for (const int64_t bytes : {int64_t{1}, int64_t{1} << 20, gib - 1, 3 * gib + 12345}) {
    const auto read = ParseSize(SizeArgument(bytes), "--memory-budget");
    ASSERT_TRUE(read.ok());
    EXPECT_LE(*read, bytes);
    EXPECT_GT(*read, bytes - (int64_t{1} << 20));
  }
}

TEST(ValuesTest, Sizes) {
  const std::pair<const char*, int64_t> kCases[] = {{"1000", 1000},
                                                    {"4GiB", int64_t{4} << 30},
                                                    {"4G", int64_t{4} << 30},
                                                    {"512 MiB", 512 << 20},
                                                    {"1.5KiB", 1536},
                                                    {"2GB", 2000000000},
                                                    {"1kB", 1000},
                                                    {"1e9", 1000000000},
                                                    {"3B", 3},
                                                    {"1TiB", int64_t{1} << 40}};
  for (const auto& [text, bytes] : kCases) {
    const auto value = ParseSize(text, "--x");
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(*value, bytes) << text;
  }
  for (const char* text : {"", "GiB", "0", "-1", "4XB", "1e30", "nan", "inf", "4 GiB x", "4gib"}) {
    ExpectBad(ParseSize(text, "--x"), text);
  }
}

TEST(ValuesTest, Counts) {
  EXPECT_EQ(*ParseCount("1000", "--x"), 1000);
  EXPECT_EQ(*ParseCount("2^24", "--x"), 1 << 24);
  EXPECT_EQ(*ParseCount("1e6", "--x"), 1000000);
  EXPECT_EQ(*ParseCount("9223372036854775807", "--x"), INT64_MAX);
  for (const char* text : {"", "0", "-2^2", "2^", "^3", "2^64", "1.5", "x", "1e400"}) {
    ExpectBad(ParseCount(text, "--x"), text);
  }
}

TEST(ValuesTest, SmallCountsAndNumbers) {
  EXPECT_EQ(*ParseSmallCount("16", "--x"), 16);
  for (const char* text : {"0", "-1", "2147483648", "1.0", ""}) {
    ExpectBad(ParseSmallCount(text, "--x"), text);
  }
  EXPECT_EQ(*ParsePositive("0.25", "--x"), 0.25);
  for (const char* text : {"0", "-1", "inf", "nan", "", "1s"}) {
    ExpectBad(ParsePositive(text, "--x"), text);
  }
}

TEST(ValuesTest, Shapes) {
  EXPECT_THAT(*ParseShape("2, 3,0", "--x"), ElementsAre(2, 3, 0));
  EXPECT_THAT(*ParseShape("", "--x"), IsEmpty());
  for (const char* text : {"2,,3", "2,-1", "a", "2x3"}) ExpectBad(ParseShape(text, "--x"), text);
}

TEST(ValuesTest, NumberedFiles) {
  const auto value = ParseNumbered("12=a=b.npy", "--x");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->first, 12);
  EXPECT_EQ(value->second, "a=b.npy");
  for (const char* text : {"a.npy", "=a.npy", "-1=a", "1=", ""}) {
    ExpectBad(ParseNumbered(text, "--x"), text);
  }
}

TEST(ValuesTest, Names) {
  EXPECT_THAT(*ParseNames("cpu, cuda:0", "--x"), ElementsAre("cpu", "cuda:0"));
  for (const char* text : {"", "cpu,", ","}) ExpectBad(ParseNames(text, "--x"), text);
}

TEST(ValuesTest, GetParsedNamesTheOption) {
  CommandSpec spec;
  spec.options = {{"x", "N", "A number.", false}};
  const std::vector<std::string> given = {"--x", "no"};
  ExpectBad(GetParsed<int64_t>(*ParseArguments(spec, given), "x", ParseCount), "no");
  const auto absent = GetParsed<int64_t>(Arguments(), "x", ParseCount);
  ASSERT_TRUE(absent.ok());
  EXPECT_FALSE(absent->has_value());
}

}  // namespace
}  // namespace tenon::tool
