#include "backends/planner/plan_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/backends/contraction/test_networks.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tenon {
namespace {

using contraction::Expression;
using planner::CheckPlan;
using planner::CheckPlanFor;
using planner::MakePlanFile;
using planner::Plan;
using testing::ExpressionOf;
using testing::Fails;
using testing::NetworkOf;

// 2 x 3, 3 x 4, 4 x 5 to 2 x 5, the index of 3 sliced.
PlanFile Chain() {
  const Network network =
      NetworkOf({"ab", "bc", "cd"}, "ad", {{"a", 2}, {"b", 3}, {"c", 4}, {"d", 5}});
  return MakePlanFile(network, ExpressionOf(network), Plan{{{{0, 1}, {3, 2}}}, {1}},
                      PathSteps::Format::kLinear, {});
}

TEST(PlanCheck, DerivesWhatIsTold) {
  PlanFile file = Chain();
  EXPECT_EQ(file.path.steps, (std::vector<std::vector<int64_t>>{{0, 1}, {1, 0}}));
  EXPECT_EQ(file.sliced, std::vector<std::string>{"b"});
  // Per slice: 2*4 and 2*4*5 multiply-adds; 2 + 4 + 8 and 8 + 20 + 10 elements.
  EXPECT_EQ(file.costs.at("flops"), 3 * (8 + 40));
  EXPECT_EQ(file.costs.at("read_write"), 3 * (14 + 38));
  EXPECT_EQ(file.costs.at("score"), 144 + 64 * 156);
  EXPECT_EQ(file.unsliced_costs.at("flops"), 24 + 40);
  file.target_elements = 10;
  const auto checked = CheckPlan(*ParsePlanFile(*FormatPlanFile(file)));
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->plan.path.pairs, (std::vector<std::pair<int, int>>{{0, 1}, {3, 2}}));
  EXPECT_EQ(checked->plan.sliced, std::vector<int>{1});
  EXPECT_EQ(checked->cost.slices, 3);
}

TEST(PlanCheck, EveryTamperedFigureIsNamed) {
  for (const std::string key : {"costs", "unsliced_costs"}) {
    for (const std::string_view name : kPlanFigureNames) {
      for (const double factor : {0.0, 1 - 3e-9, 1 + 3e-9, 2.0}) {
        PlanFile file = Chain();
        double& figure = (key == "costs" ? file.costs : file.unsliced_costs).at(std::string(name));
        figure *= factor;
        EXPECT_TRUE(Fails(CheckPlan(file), Reason::kBadParameter, key + "." + std::string(name)));
        figure = Chain().costs.at(std::string(name));
      }
    }
  }
  PlanFile rounded = Chain();
  for (auto& [name, figure] : rounded.costs) figure *= 1 + 1e-10;
  EXPECT_TRUE(CheckPlan(rounded).ok());
}

TEST(PlanCheck, TheScoreGoesByTheObjective) {
  const Network network = NetworkOf({"ab", "bc"}, "ac", {{"a", 2}, {"b", 3}, {"c", 4}});
  const auto score = [&](PlanObjective objective) {
    PlanProvenance from;
    from.objective = objective;
    from.flops_weight = 0.5;
    from.read_write_weight = 2;
    return MakePlanFile(network, ExpressionOf(network), Plan{{{{0, 1}}}, {}},
                        PathSteps::Format::kSsa, from);
  };
  EXPECT_EQ(score(PlanObjective::kFlops).costs.at("score"), 24);
  EXPECT_EQ(score(PlanObjective::kReadWrite).costs.at("score"), 6 + 12 + 8);
  EXPECT_EQ(score(PlanObjective::kWeighted).costs.at("score"), 12 + 52);
  EXPECT_EQ(score(PlanObjective::kLargestIntermediate).costs.at("score"), 8);
  PlanFile seconds = score(PlanObjective::kSeconds);
  EXPECT_FALSE(seconds.costs.contains("score"));
  seconds.costs["score"] = 1e-5;
  EXPECT_TRUE(CheckPlan(seconds).ok());
  PlanFile weights = score(PlanObjective::kWeighted);
  weights.provenance.read_write_weight = 3;
  EXPECT_TRUE(Fails(CheckPlan(weights), Reason::kBadParameter, "costs.score"));
}

TEST(PlanCheck, PathsThatAreNone) {
  const auto with = [](std::vector<std::vector<int64_t>> steps, PathSteps::Format format) {
    PlanFile file = Chain();
    file.path = {format, std::move(steps)};
    return CheckPlan(file);
  };
  const auto ssa = PathSteps::Format::kSsa, linear = PathSteps::Format::kLinear;
  EXPECT_TRUE(Fails(with({{0, 1, 2}}, ssa), Reason::kBadPath, "path.steps[0]"));
  EXPECT_TRUE(Fails(with({{0}, {1, 2}, {3, 4}}, ssa), Reason::kBadPath, "path.steps[0]"));
  EXPECT_TRUE(Fails(with({{0, 1}}, ssa), Reason::kBadPath, "path.steps"));
  EXPECT_TRUE(Fails(with({}, ssa), Reason::kBadPath, "path.steps"));
  EXPECT_TRUE(Fails(with({{0, 1}, {0, 2}}, ssa), Reason::kBadPath, "path.steps[1]"));
  EXPECT_TRUE(Fails(with({{0, 1}, {3, 4}}, ssa), Reason::kBadPath, "path.steps[1]"));
  EXPECT_TRUE(Fails(with({{0, 1}, {1, 2}}, linear), Reason::kBadPath, "path.steps[1]"));
  EXPECT_TRUE(Fails(with({{0, -1}, {0, 1}}, linear), Reason::kBadPath, "path.steps[0]"));
}

TEST(PlanCheck, SlicesThatAreNotHeld) {
  PlanFile file = Chain();
  file.sliced = {"b", "x"};
  EXPECT_TRUE(Fails(CheckPlan(file), Reason::kBadSlice, "sliced[1]"));
  file.sliced = {"b", "b"};
  EXPECT_TRUE(Fails(CheckPlan(file), Reason::kBadSlice, "sliced[1]"));
}

TEST(PlanCheck, NetworksThatAreNone) {
  PlanFile file = Chain();
  file.network.sizes.erase("c");
  EXPECT_TRUE(Fails(CheckPlan(file), Reason::kUnknownIndex, "network.inputs[1]"));
  file = Chain();
  file.network.sizes["z"] = 3;
  EXPECT_TRUE(Fails(CheckPlan(file), Reason::kUnknownIndex, "network.index_sizes[z]"));
  file = Chain();
  file.network.output = {"a", "a"};
  EXPECT_TRUE(Fails(CheckPlan(file), Reason::kDuplicateOutput, "network.output[1]"));
  file = Chain();
  file.network.sizes["b"] = INT64_MAX;
  EXPECT_TRUE(Fails(CheckPlan(file), Reason::kOverflow, "network.operands[0].spec.shape"));
  EXPECT_FALSE(CheckPlan(PlanFile{}).ok());
}

TEST(PlanCheck, TargetsAreComparedAsIntegers) {
  PlanFile file = Chain();
  file.target_elements = 9;
  EXPECT_TRUE(Fails(CheckPlan(file), Reason::kExceedsMemoryBudget, "target.elements"));
  // 2^60 + 2^2 rounds to 2^60 in a double.
  const int64_t size = (int64_t{1} << 60) + 4;
  const Network large = NetworkOf({"a", "b"}, "ab", {{"a", size / 4}, {"b", 4}});
  file =
      MakePlanFile(large, ExpressionOf(large), Plan{{{{0, 1}}}, {}}, PathSteps::Format::kSsa, {});
  file.target_elements = size;
  EXPECT_TRUE(CheckPlan(file).ok());
  file.target_elements = size - 1;
  EXPECT_TRUE(Fails(CheckPlan(file), Reason::kExceedsMemoryBudget, "target.elements"));
  // One tensor: its block of the output.
  const Network one = NetworkOf({"abc"}, "ab", {{"a", 4}, {"b", 4}, {"c", 99}});
  file = MakePlanFile(one, ExpressionOf(one), Plan{{}, {0}}, PathSteps::Format::kSsa, {});
  file.target_elements = 4;
  EXPECT_TRUE(CheckPlan(file).ok()) << CheckPlan(file).status();
  file.target_elements = 3;
  EXPECT_TRUE(Fails(CheckPlan(file), Reason::kExceedsMemoryBudget, "target.elements"));
}

TEST(PlanCheck, NamesOfTheOtherNetworkDontMatter) {
  const PlanFile file = Chain();
  const std::map<std::string, int64_t> sizes = {{"x", 2}, {"a", 3}, {"b", 4}, {"c", 5}};
  EXPECT_TRUE(CheckPlanFor(file, ExpressionOf(NetworkOf({"xa", "ab", "bc"}, "xc", sizes))).ok());
  const auto differs = [&](const Network& network) {
    return Fails(CheckPlanFor(file, ExpressionOf(network)), Reason::kBadExpression, "network");
  };
  EXPECT_TRUE(differs(NetworkOf({"xa", "ab", "bc"}, "cx", sizes)));
  EXPECT_TRUE(differs(NetworkOf({"xa", "ba", "bc"}, "xc", sizes)));
  EXPECT_TRUE(differs(NetworkOf({"ab", "bc", "xa"}, "xc", sizes)));
  EXPECT_TRUE(differs(NetworkOf({"xa", "ab"}, "xb", {{"x", 2}, {"a", 3}, {"b", 4}})));
  EXPECT_TRUE(
      differs(NetworkOf({"xa", "ab", "bc"}, "xc", {{"x", 2}, {"a", 3}, {"b", 4}, {"c", 6}})));
}

TEST(PlanCheck, RandomPlansPassThroughText) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 500; ++round) {
    const Network network = testing::RandomNetwork(random);
    const Expression expression = ExpressionOf(network);
    const Plan plan{testing::RandomPath(expression.inputs.size(), random),
                    testing::RandomSliced(expression, random)};
    const auto format = round % 2 == 0 ? PathSteps::Format::kSsa : PathSteps::Format::kLinear;
    const auto text = FormatPlanFile(MakePlanFile(network, expression, plan, format, {}));
    ASSERT_TRUE(text.ok()) << text.status();
    const auto checked = CheckPlanFor(*ParsePlanFile(*text), expression);
    ASSERT_TRUE(checked.ok()) << checked.status() << *text;
    EXPECT_EQ(checked->plan.path.pairs, plan.path.pairs);
    EXPECT_EQ(checked->plan.sliced, plan.sliced);
  }
}

// The corpus tells flops, writes and the largest result of its own plans.
TEST(PlanCheck, CorpusPlansWithTheirOwnFigures) {
  for (const char* name : {"rqc_fsim_6x6_m10_amp", "peps_norm_6x6_D4", "ising3d_6x6x6",
                           "rand_hyper_out_n36", "ml_tucker4"}) {
    const std::string path = testing::TestPath(std::string("data/networks/") + name + ".json");
    const auto network = ReadNetworkFile(path);
    ASSERT_TRUE(network.ok()) << network.status();
    const nlohmann::json told = testing::ReadJsonOrDie(path);
    PlanFile file;
    file.network = network->network;
    file.path = *network->path;
    file.sliced = network->sliced;
    for (const auto& [figure, key] : {std::pair{"flops", "flops"},
                                      {"write", "write"},
                                      {"max_size", "max_size"},
                                      {"slices", "nslices"}}) {
      file.costs[figure] = told.at(key).get<double>();
    }
    EXPECT_TRUE(CheckPlan(file).ok()) << name << CheckPlan(file).status();
  }
}

}  // namespace
}  // namespace tenon
