#include "client/cpp/tool/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/core/error.h"

namespace tenon::tool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CommandSpec Spec() {
  CommandSpec spec;
  spec.name = "cut";
  spec.usage = "WOOD ...";
  spec.summary = "Cuts wood.";
  spec.options = {{"output", "FILE", "Where it goes.", false},
                  {"json", "", "Prints JSON.", false},
                  {"spec", "SPEC", "What to do.", true}};
  spec.min_positionals = 1;
  spec.max_positionals = 2;
  return spec;
}

absl::StatusOr<Arguments> Parse(std::vector<std::string> arguments) {
  return ParseArguments(Spec(), arguments);
}

TEST(ArgumentsTest, OptionsAndPositionalsMix) {
  const auto parsed = Parse({"a", "--output", "x", "--json", "b", "--spec=1=2", "--spec", "-3"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->positionals(), ElementsAre("a", "b"));
  EXPECT_EQ(parsed->Get("output"), "x");
  EXPECT_TRUE(parsed->Has("json"));
  EXPECT_THAT(parsed->All("spec"), ElementsAre("1=2", "-3"));
  EXPECT_FALSE(parsed->Has("other"));
  EXPECT_EQ(parsed->Get("other"), std::nullopt);
}

TEST(ArgumentsTest, TwoDashesEndTheOptionsAndOneDashIsPositional) {
  const auto parsed = Parse({"->", "--", "--json"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->positionals(), ElementsAre("->", "--json"));
  EXPECT_THAT(Parse({"-"})->positionals(), ElementsAre("-"));
  EXPECT_FALSE(parsed->Has("json"));
}

TEST(ArgumentsTest, EmptyValuesAreValues) {
  const auto parsed = Parse({"a", "--output=", "--spec", ""});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->Get("output"), "");
  EXPECT_THAT(parsed->All("spec"), ElementsAre(""));
}

TEST(ArgumentsTest, HelpNeedsNoArguments) {
  for (const char* help : {"-h", "--help"}) {
    const auto parsed = Parse({help});
    ASSERT_TRUE(parsed.ok());
    EXPECT_TRUE(parsed->Has("help"));
  }
}

TEST(ArgumentsTest, ErrorsNameTheOption) {
  const struct {
    std::vector<std::string> arguments;
    const char* message;
    const char* field;
  } kCases[] = {
      {{"a", "--ouput", "x"}, "unknown option '--ouput'; did you mean '--output'?", "--ouput"},
      {{"a", "--zzz"}, "unknown option '--zzz'", "--zzz"},
      {{"a", "-x"}, "unknown option", "--x"},
      {{"a", "--output"}, "needs a value: FILE", "--output"},
      {{"a", "--json=1"}, "takes no value", "--json"},
      {{"a", "--output=1", "--output=2"}, "given twice", "--output"},
      {{"a", "--json", "--json"}, "given twice", "--json"},
  };
  for (const auto& c : kCases) {
    const auto parsed = Parse(c.arguments);
    ASSERT_FALSE(parsed.ok()) << c.message;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(c.message));
    const ErrorDetails details = GetErrorDetails(parsed.status());
    EXPECT_EQ(details.reason, Reason::kBadParameter);
    ASSERT_EQ(details.fields.size(), 1u);
    EXPECT_EQ(details.fields[0].first, c.field);
  }
}

TEST(ArgumentsTest, CountsPositionals) {
  EXPECT_THAT(std::string(Parse({}).status().message()), HasSubstr("tenon cut WOOD ..."));
  EXPECT_THAT(std::string(Parse({"a", "b", "c"}).status().message()),
              HasSubstr("too many arguments (3)"));
}

TEST(ArgumentsTest, HelpTextHasEveryOption) {
  const std::string text = HelpText(Spec());
  for (const char* part : {"Usage: tenon cut WOOD ... [options]", "Cuts wood.", "--output FILE",
                           "Prints JSON.", "--spec SPEC", "May be repeated.", "--help"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(ArgumentsTest, NearestIsTheFewestEdits) {
  const std::vector<std::string> words = {"contract", "measure", "measures", "info"};
  EXPECT_EQ(Nearest("contrct", words), "contract");
  EXPECT_EQ(Nearest("mesure", words), "measure");
  EXPECT_EQ(Nearest("inof", words), "");  // two of four letters
  EXPECT_EQ(Nearest("", words), "");
}

}  // namespace
}  // namespace tenon::tool
