// The contraction cases of tests/cases/public.json, as far as planning and lowering go.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/contraction/program.h"
#include "backends/core/error.h"
#include "tests/backends/contraction/program_evaluator.h"
#include "tests/support/test_data.h"

namespace tenon {
namespace {

using nlohmann::json;
using testing::Element;

json PublicCase(const std::string& id) {
  const json file = testing::ReadJsonOrDie(testing::TestPath("cases/public.json"));
  for (const json& entry : file["cases"]) {
    if (entry["id"] == id) return entry;
  }
  ADD_FAILURE() << "no case " << id;
  return {};
}

// Flattens nested lists; with `is_complex` the innermost lists are [re, im].
void Flatten(const json& value, bool is_complex, std::vector<Element>& elements) {
  if (value.is_number()) {
    elements.emplace_back(value.get<double>());
  } else if (is_complex && value.size() == 2 && value[0].is_number()) {
    elements.emplace_back(value[0].get<double>(), value[1].get<double>());
  } else {
    for (const json& item : value) Flatten(item, is_complex, elements);
  }
}

struct PublicNetwork {
  explicit PublicNetwork(const json& input) {
    input["inputs"].get_to(network.inputs);
    input["output"].get_to(network.output);
    input["size_dict"].get_to(network.sizes);
    input["shapes"].get_to(shapes);
    for (size_t k = 0; k < shapes.size(); ++k) {
      const json& dtype = input["dtype"].is_array() ? input["dtype"][k] : input["dtype"];
      Flatten(input["arrays"][k], dtype == "complex128", operands.emplace_back());
    }
  }

  absl::StatusOr<std::vector<Element>> Contract(const PathSteps* steps,
                                                const std::vector<std::string>& sliced) const {
    TENON_ASSIGN_OR_RETURN(const auto expression, contraction::MakeExpression(network, shapes));
    contraction::Path path = contraction::GreedyPath(expression);
    if (steps != nullptr) {
      TENON_ASSIGN_OR_RETURN(path, contraction::MakePath(*steps, shapes.size()));
    }
    TENON_ASSIGN_OR_RETURN(const auto ids, contraction::MakeSliced(expression, sliced));
    TENON_ASSIGN_OR_RETURN(const auto program,
                           contraction::LowerProgram(expression, path, ids, {}));
    testing::ProgramEvaluator evaluator(*program);
    evaluator.Begin(operands);
    evaluator.BindSet(operands);
    return evaluator.RunGroups();
  }

  Network network;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::vector<Element>> operands;
};

void ExpectValue(const json& expected, const absl::StatusOr<std::vector<Element>>& result) {
  ASSERT_TRUE(result.ok()) << result.status();
  std::vector<Element> values;
  Flatten(expected["value"], expected["dtype"] == "complex128", values);
  ASSERT_EQ(result->size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs((*result)[i] - values[i]), 1e-12 * std::abs(values[i])) << i;
  }
}

class ValueCase : public ::testing::TestWithParam<const char*> {};

TEST_P(ValueCase, GivesTheValue) {
  const json entry = PublicCase(GetParam());
  const PublicNetwork input(entry["input"]);
  const json& expected = entry["expected"];
  ExpectValue(expected, input.Contract(nullptr, {}));
  for (const auto& [name, size] : input.network.sizes) {
    SCOPED_TRACE(name);
    ExpectValue(expected, input.Contract(nullptr, {name}));
  }
}

INSTANTIATE_TEST_SUITE_P(Public, ValueCase,
                         ::testing::Values("P01", "P02", "P03", "P04", "P05", "P06", "P07", "P08",
                                           "P09", "P10", "P12"));

TEST(PublicCase, P01EveryPathGivesTheValue) {
  const json entry = PublicCase("P01");
  const PublicNetwork input(entry["input"]);
  for (const json& steps : entry["input"]["options"]["try_paths_linear"]) {
    if (steps.is_null()) continue;
    const PathSteps path{PathSteps::Format::kLinear, steps};
    ExpectValue(entry["expected"], input.Contract(&path, {}));
  }
}

TEST(PublicCase, P03MeetsTheLimitBySlicingTheOutput) {
  const json entry = PublicCase("P03");
  const PublicNetwork input(entry["input"]);
  const auto expression = contraction::MakeExpression(input.network, input.shapes);
  const contraction::Path path = contraction::GreedyPath(*expression);
  const auto sliced = contraction::SliceToTarget(*expression, path, 8, true);
  ASSERT_TRUE(sliced.ok()) << sliced.status();
  const auto program = contraction::LowerProgram(*expression, path, *sliced, {});
  ASSERT_TRUE(program.ok());
  EXPECT_LE((*program)->largest_intermediate_elements(), 8);
  std::vector<std::string> names;
  for (const int index : *sliced) names.push_back(expression->names[index]);
  ExpectValue(entry["expected"], input.Contract(nullptr, names));
}

TEST(PublicCase, P10EverySlicingGivesTheValue) {
  const json entry = PublicCase("P10");
  const PublicNetwork input(entry["input"]);
  for (const json& sliced : entry["input"]["options"]["slice_indices"]) {
    ExpectValue(entry["expected"], input.Contract(nullptr, sliced));
  }
}

TEST(PublicCase, P11NamesLimitAndNeed) {
  const json entry = PublicCase("P11");
  const PublicNetwork input(entry["input"]);
  ExpectValue({{"value", entry["expected"]["without_limit"]}, {"dtype", "float64"}},
              input.Contract(nullptr, {}));
  const auto expression = contraction::MakeExpression(input.network, input.shapes);
  const auto sliced = contraction::SliceToTarget(*expression, contraction::GreedyPath(*expression),
                                                 8, /*allow_output=*/false);
  ASSERT_FALSE(sliced.ok());
  EXPECT_EQ(sliced.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(sliced.status().message()),
              ::testing::AllOf(::testing::HasSubstr("8"), ::testing::HasSubstr("16")));
}

TEST(PublicCase, P13IsRefused) {
  const json entry = PublicCase("P13");
  const auto result = PublicNetwork(entry["input"]).Contract(nullptr, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  for (const std::string word : entry["expected"]["error"]["must_mention"]) {
    EXPECT_THAT(std::string(result.status().message()), ::testing::HasSubstr(word));
  }
}

TEST(PublicCase, P14RefusesInvalidPathsOnly) {
  const json entry = PublicCase("P14");
  const PublicNetwork input(entry["input"]);
  const json& options = entry["input"]["options"];
  for (const json& steps : options["valid_paths_linear"]) {
    const PathSteps path{PathSteps::Format::kLinear, steps};
    ExpectValue(entry["expected"]["for_valid_paths"], input.Contract(&path, {}));
  }
  for (const json& steps : options["invalid_paths_linear"]) {
    SCOPED_TRACE(steps.dump());
    const PathSteps path{PathSteps::Format::kLinear, steps};
    const auto result = input.Contract(&path, {});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), ::testing::HasSubstr("path"));
  }
}

}  // namespace
}  // namespace tenon
