#include "backends/contraction/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/core/error.h"
#include "tests/backends/contraction/test_networks.h"

namespace tenon {
namespace {

using contraction::Expression;
using contraction::MakeExpression;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void ExpectError(const Network& network, const std::vector<std::vector<int64_t>>& shapes,
                 Reason reason, const std::string& field, const std::string& text) {
  const auto expression = MakeExpression(network, shapes);
  ASSERT_FALSE(expression.ok());
  const ErrorDetails details = GetErrorDetails(expression.status());
  EXPECT_EQ(ReasonName(details.reason), ReasonName(reason));
  ASSERT_EQ(details.fields.size(), 1u);
  EXPECT_EQ(details.fields[0].first, field);
  EXPECT_THAT(std::string(expression.status().message()), HasSubstr(text));
}

TEST(MakeExpression, NumbersIndicesByFirstAppearance) {
  const Network network{{{"Ų", "索引"}, {"索引", "索引", "I"}, {}}, {"I", "Ų"}, {}};
  const auto expression = MakeExpression(network, {{2, 3}, {3, 3, 4}, {}});
  ASSERT_TRUE(expression.ok()) << expression.status();
  EXPECT_THAT(expression->inputs,
              ElementsAre(ElementsAre(0, 1), ElementsAre(1, 1, 2), ElementsAre()));
  EXPECT_THAT(expression->output, ElementsAre(2, 0));
  EXPECT_THAT(expression->sizes, ElementsAre(2, 3, 4));
  EXPECT_THAT(expression->names, ElementsAre("Ų", "索引", "I"));
}

TEST(MakeExpression, AcceptsZeroExtentsOfAnyOtherSize) {
  const int64_t huge = int64_t{1} << 40;
  const Network network{{{"a", "b", "c"}}, {"a", "b", "c"}, {}};
  EXPECT_TRUE(MakeExpression(network, {{0, huge, huge}}).ok());
}

TEST(MakeExpression, AcceptsAJointSpaceBeyond63Bits) {
  Network network;
  std::vector<std::vector<int64_t>> shapes;
  for (int k = 0; k < 70; ++k) {
    network.inputs.push_back({StrCat("x", k), StrCat("x", (k + 1) % 70)});
    shapes.push_back({2, 2});
  }
  EXPECT_TRUE(MakeExpression(network, shapes).ok());
}

TEST(MakeExpression, RefusesAnAxisOfSizeOneAgainstANamedIndex) {
  const Network network{{{"t", "i"}, {"t", "i"}}, {"t"}, {{"t", 3}, {"i", 2}}};
  const auto expression = MakeExpression(network, {{3, 2}, {1, 2}});
  ASSERT_FALSE(expression.ok());
  EXPECT_THAT(std::string(expression.status().message()),
              AllOf(HasSubstr("operand 1"), HasSubstr("'t'"), HasSubstr("size 3"),
                    HasSubstr("size 1"), HasSubstr("not broadcast")));
  const ErrorDetails details = GetErrorDetails(expression.status());
  EXPECT_EQ(details.reason, Reason::kShapeMismatch);
  EXPECT_EQ(details.fields[0].first, "operands[1].spec.shape[0]");
  EXPECT_EQ(details.metadata.at("expected_size"), "3");
  EXPECT_EQ(details.metadata.at("actual_size"), "1");
}

TEST(MakeExpression, RefusesWhatIsNoExpression) {
  ExpectError({}, {}, Reason::kBadExpression, "operands", "at least one operand");
  ExpectError({{{"a"}, {"a"}}, {}, {}}, {{2}}, Reason::kBadExpression, "operands", "2 operands");
  ExpectError({{{"a", ""}}, {}, {}}, {{2, 3}}, Reason::kBadExpression, "operands[0].indices[1]",
              "empty");
  ExpectError({{{"a"}}, {""}, {}}, {{2}}, Reason::kBadExpression, "output[0]", "empty");
}

TEST(MakeExpression, RefusesShapesThatDisagree) {
  ExpectError({{{"a"}, {"a", "b"}}, {}, {}}, {{2}, {2}}, Reason::kShapeMismatch,
              "operands[1].spec.shape", "2 indices, but its shape has 1");
  ExpectError({{{"a"}, {"b", "a"}}, {}, {}}, {{2}, {3, 4}}, Reason::kShapeMismatch,
              "operands[1].spec.shape[1]", "by operand 0");
  ExpectError({{{"a", "a"}}, {}, {}}, {{2, 3}}, Reason::kShapeMismatch, "operands[0].spec.shape[1]",
              "size 3");
  ExpectError({{{"a"}}, {}, {}}, {{-1}}, Reason::kShapeMismatch, "operands[0].spec.shape[0]",
              "negative size -1");
}

TEST(MakeExpression, RefusesIndicesThatNoOperandHolds) {
  ExpectError({{{"a"}}, {"b"}, {}}, {{2}}, Reason::kUnknownIndex, "output[0]", "'b'");
  ExpectError({{{"a"}}, {}, {{"A", 2}}}, {{2}}, Reason::kUnknownIndex, "index_sizes[A]", "'A'");
}

TEST(MakeExpression, RefusesAnOutputIndexTwice) {
  ExpectError({{{"a", "b"}}, {"a", "b", "a"}, {}}, {{2, 2}}, Reason::kDuplicateOutput, "output[2]",
              "'a'");
}

TEST(MakeExpression, RefusesTensorsBeyond63Bits) {
  const int64_t huge = int64_t{1} << 32;
  ExpectError({{{"a", "b"}}, {}, {}}, {{huge, huge}}, Reason::kOverflow, "operands[0].spec.shape",
              "operand 0");
  ExpectError({{{"a"}, {"b"}}, {"a", "b"}, {}}, {{huge}, {huge}}, Reason::kOverflow, "output",
              "output");
}

}  // namespace
}  // namespace tenon
