#include "backends/core/plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/status_matchers.h"

namespace tenon {
namespace {

using testing::Fails;
using Json = nlohmann::json;
using ::testing::HasSubstr;

Json Minimal() {
  return Json::parse(R"({"schema": "tenon-plan", "version": 1,
    "network": {"inputs": [["a", "b"], ["b", "c"], []], "output": ["c"],
                "size_dict": {"a": 2, "b": 3, "c": 4}},
    "path_linear": [[0, 1], [1, 0]], "sliced": [], "costs": {}})");
}

absl::StatusOr<PlanFile> With(const std::string& pointer, const std::string& value) {
  Json json = Minimal();
  json[Json::json_pointer(pointer)] = Json::parse(value);
  return ParsePlanFile(json.dump());
}

PlanFile Full() {
  PlanFile plan;
  plan.name = "näme";
  plan.network = {{{"a", "索引"}, {"索引"}, {}}, {"a"}, {{"a", 2}, {"索引", INT64_MAX}}};
  plan.path = {PathSteps::Format::kSsa, {{0, 1}, {3, 2}}};
  plan.sliced = {"索引"};
  plan.target_elements = INT64_MAX;
  plan.memory_bytes = 1;
  plan.costs = {{"flops", 1.0 / 3}, {"peak_size", 1e300}, {"slices", 9007199254740993.0}};
  plan.unsliced_costs = {{"flops", 0}};
  plan.provenance = {.objective = PlanObjective::kReadWrite,
                     .flops_weight = 0.1,
                     .read_write_weight = 0,
                     .methods = {"greedy", "annealing"},
                     .slicing_mode = "dynamic",
                     .seed = ~uint64_t{0},
                     .trials = 12,
                     .seconds = 0.7,
                     .stopped_by = "time",
                     .planner_version = "1.2"};
  return plan;
}

void ExpectEqual(const PlanFile& a, const PlanFile& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.network.inputs, b.network.inputs);
  EXPECT_EQ(a.network.output, b.network.output);
  EXPECT_EQ(a.network.sizes, b.network.sizes);
  EXPECT_EQ(a.path.format, b.path.format);
  EXPECT_EQ(a.path.steps, b.path.steps);
  EXPECT_EQ(a.sliced, b.sliced);
  EXPECT_EQ(a.target_elements, b.target_elements);
  EXPECT_EQ(a.memory_bytes, b.memory_bytes);
  EXPECT_EQ(a.costs, b.costs);
  EXPECT_EQ(a.unsliced_costs, b.unsliced_costs);
  EXPECT_EQ(a.provenance.objective, b.provenance.objective);
  EXPECT_EQ(a.provenance.flops_weight, b.provenance.flops_weight);
  EXPECT_EQ(a.provenance.read_write_weight, b.provenance.read_write_weight);
  EXPECT_EQ(a.provenance.methods, b.provenance.methods);
  EXPECT_EQ(a.provenance.slicing_mode, b.provenance.slicing_mode);
  EXPECT_EQ(a.provenance.seed, b.provenance.seed);
  EXPECT_EQ(a.provenance.trials, b.provenance.trials);
  EXPECT_EQ(a.provenance.seconds, b.provenance.seconds);
  EXPECT_EQ(a.provenance.stopped_by, b.provenance.stopped_by);
  EXPECT_EQ(a.provenance.planner_version, b.provenance.planner_version);
}

TEST(PlanFileTest, WhatIsWrittenIsReadToTheBit) {
  for (const auto format : {PathSteps::Format::kSsa, PathSteps::Format::kLinear}) {
    PlanFile plan = Full();
    plan.path.format = format;
    const auto text = FormatPlanFile(plan);
    ASSERT_TRUE(text.ok()) << text.status();
    const auto read = ParsePlanFile(*text);
    ASSERT_TRUE(read.ok()) << read.status() << *text;
    ExpectEqual(plan, *read);
    EXPECT_EQ(*FormatPlanFile(*read), *text);
  }
}

TEST(PlanFileTest, MostMayBeAbsent) {
  const auto plan = ParsePlanFile(Minimal().dump());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->path.format, PathSteps::Format::kLinear);
  EXPECT_EQ(plan->provenance.objective, PlanObjective::kWeighted);
  EXPECT_EQ(plan->provenance.read_write_weight, 64);
  EXPECT_FALSE(plan->target_elements || plan->memory_bytes || plan->provenance.seed);
  const auto again = FormatPlanFile(*plan);
  ASSERT_TRUE(again.ok());
  ExpectEqual(*plan, *ParsePlanFile(*again));
}

TEST(PlanFileTest, EveryCutTextIsRefused) {
  const std::string text = *FormatPlanFile(Full());
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_TRUE(Fails(ParsePlanFile(text.substr(0, length)), Reason::kBadParameter, "json"));
  }
}

TEST(PlanFileTest, MissingKeys) {
  for (const auto& [key, reason] : {std::pair{"schema", Reason::kBadParameter},
                                    {"version", Reason::kBadParameter},
                                    {"network", Reason::kBadExpression},
                                    {"sliced", Reason::kBadSlice},
                                    {"costs", Reason::kBadParameter}}) {
    Json json = Minimal();
    json.erase(key);
    EXPECT_TRUE(Fails(ParsePlanFile(json.dump()), reason, key)) << key;
  }
  Json json = Minimal();
  json.erase("path_linear");
  EXPECT_TRUE(Fails(ParsePlanFile(json.dump()), Reason::kBadPath, "path_ssa"));
  for (const char* key : {"inputs", "output", "size_dict"}) {
    json = Minimal();
    json["network"].erase(key);
    EXPECT_TRUE(
        Fails(ParsePlanFile(json.dump()), Reason::kBadExpression, std::string("network.") + key));
  }
}

TEST(PlanFileTest, WrongValuesNameTheirKey) {
  const struct {
    const char *pointer, *value;
    Reason reason;
    const char* field;
  } cases[] = {
      {"/schema", "\"other\"", Reason::kBadParameter, "schema"},
      {"/schema", "7", Reason::kBadParameter, "schema"},
      {"/version", "2", Reason::kBadParameter, "version"},
      {"/version", "1.0", Reason::kBadParameter, "version"},
      {"/name", "1", Reason::kBadParameter, "name"},
      {"/network", "[]", Reason::kBadExpression, "network"},
      {"/network/size_dict/a", "2.5", Reason::kBadExpression, "network.size_dict"},
      {"/network/size_dict/a", "9223372036854775808", Reason::kBadExpression, "network.size_dict"},
      {"/path_ssa", "[[0, 1]]", Reason::kBadPath, "path_linear"},  // two paths
      {"/path_linear", "[[0, 1], [0, 1e3]]", Reason::kBadPath, "path_linear"},
      {"/path_linear", "[[0, 18446744073709551616]]", Reason::kBadPath, "path_linear"},
      {"/sliced", "\"a\"", Reason::kBadSlice, "sliced"},
      {"/sliced", "[\"\"]", Reason::kBadSlice, "sliced"},
      {"/target", "3", Reason::kBadParameter, "target"},
      {"/target", "{\"elements\": 0}", Reason::kBadParameter, "target.elements"},
      {"/target", "{\"elements\": 1e3}", Reason::kBadParameter, "target.elements"},
      {"/target", "{\"memory_bytes\": -1}", Reason::kBadParameter, "target.memory_bytes"},
      {"/costs", "[]", Reason::kBadParameter, "costs"},
      {"/costs", "{\"flops\": \"NaN\"}", Reason::kBadParameter, "costs.flops"},
      {"/costs", "{\"write\": -1}", Reason::kBadParameter, "costs.write"},
      {"/costs", "{\"flop\": 1}", Reason::kBadParameter, "costs.flop"},
      {"/unsliced_costs", "{\"max_size\": []}", Reason::kBadParameter, "unsliced_costs.max_size"},
      {"/provenance", "1", Reason::kBadParameter, "provenance"},
      {"/provenance", "{\"objective\": \"beauty\"}", Reason::kBadParameter, "provenance.objective"},
      {"/provenance", "{\"flops_weight\": -1}", Reason::kBadParameter, "provenance.flops_weight"},
      {"/provenance", "{\"read_write_weight\": \"\"}", Reason::kBadParameter,
       "provenance.read_write_weight"},
      {"/provenance", "{\"methods\": [1.5]}", Reason::kBadParameter, "provenance.methods"},
      {"/provenance", "{\"seed\": -1}", Reason::kBadParameter, "provenance.seed"},
      {"/provenance", "{\"seed\": 18446744073709551616}", Reason::kBadParameter, "provenance.seed"},
      {"/provenance", "{\"trials\": -1}", Reason::kBadParameter, "provenance.trials"},
      {"/provenance", "{\"seconds\": null, \"stopped_by\": 1}", Reason::kBadParameter,
       "provenance.stopped_by"},
  };
  for (const auto& c : cases) {
    EXPECT_TRUE(Fails(With(c.pointer, c.value), c.reason, c.field)) << c.pointer << c.value;
  }
}

TEST(PlanFileTest, NumbersThatAreNone) {
  for (const char* number : {"NaN", "Infinity", "-Infinity", "1e999", "nan", "0x10"}) {
    std::string text = Minimal().dump();
    text.replace(text.find("\"costs\":{}"), 10,
                 std::string("\"costs\":{\"flops\":") + number + "}");
    EXPECT_TRUE(Fails(ParsePlanFile(text), Reason::kBadParameter, "json")) << number;
  }
}

TEST(PlanFileTest, MalformedTextIsToldByItsPlace) {
  std::string text = *FormatPlanFile(Full());
  text.erase(text.find(",\n"), 1);  // after "schema"
  const auto plan = ParsePlanFile(text);
  EXPECT_TRUE(Fails(plan, Reason::kBadParameter, "json"));
  EXPECT_EQ(plan.status().message(),
            "the JSON text is malformed: line 3, column 9: syntax error while parsing object - "
            "unexpected string literal; expected '}'");
}

TEST(PlanFileTest, ANetworkIsToldAsSuch) {
  const auto message = [](const std::string& text) {
    const auto plan = ParsePlanFile(text);
    EXPECT_TRUE(Fails(plan, Reason::kBadParameter, "schema"));
    return std::string(plan.status().message());
  };
  EXPECT_EQ(message(R"({"inputs": [], "output": [], "size_dict": {}})"),
            "'schema' is missing; this is a network, not a plan");
  EXPECT_EQ(message("{}"), "'schema' is missing; a plan has 'tenon-plan' there");
}

TEST(PlanFileTest, LimitsOfTextAndNesting) {
  EXPECT_TRUE(
      Fails(ParsePlanFile(std::string((16 << 20) + 1, ' ')), Reason::kBadParameter, "json"));
  Json json = Minimal();
  json["deep"] = Json::parse(std::string(33, '[') + std::string(33, ']'));
  EXPECT_TRUE(Fails(ParsePlanFile(json.dump()), Reason::kBadParameter, "json"));
  EXPECT_TRUE(Fails(ParsePlanFile(std::string(5000000, '[')), Reason::kBadParameter, "json"));
  EXPECT_TRUE(Fails(ParsePlanFile("[]"), Reason::kBadParameter, "json"));
}

TEST(PlanFileTest, WritesNothingThatItWouldNotRead) {
  PlanFile plan = Full();
  plan.costs["flops"] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(Fails(FormatPlanFile(plan), Reason::kBadParameter, "costs.flops"));
  plan = Full();
  plan.unsliced_costs["score"] = std::nan("");
  EXPECT_TRUE(Fails(FormatPlanFile(plan), Reason::kBadParameter, "unsliced_costs.score"));
  plan = Full();
  plan.provenance.seconds = -1;
  EXPECT_TRUE(Fails(FormatPlanFile(plan), Reason::kBadParameter, "provenance.seconds"));
  plan = Full();
  plan.sliced = {"\xff"};
  EXPECT_TRUE(Fails(FormatPlanFile(plan), Reason::kBadExpression, "network"));
}

Json Arctn() {
  return Json::parse(R"({"schema": "arctn-execution-plan", "schema_version": 2,
    "path_format": "ssa-v1", "network_canon": "t:0,1;1,2|o:2,0|d:0=2,1=3,2=4",
    "network": {"inputs": [[0, 1], [1, 2]], "output": [2, 0],
                "size_dict": [[0, 2], [1, 3], [2, 4]]},
    "ssa_path": [[0, 1]], "sliced": {"legs": [2]}, "target_size": 2,
    "metrics": {"log10_flops": 1.3802112417116059, "sliced_log2_max_size": 1.0,
                "log2_n_slices": 2.0, "unknown": "x"},
    "planning": {"seed": 5, "planner_objective": "total_flops", "preset": "heavy"},
    "provenance": {"source": "explicit"}})");
}

TEST(PlanFileTest, ReadsArctnPlans) {
  const auto plan = ParsePlanFile(Arctn().dump());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->network.inputs, (std::vector<std::vector<std::string>>{{"0", "1"}, {"1", "2"}}));
  EXPECT_EQ(plan->network.sizes, (std::map<std::string, int64_t>{{"0", 2}, {"1", 3}, {"2", 4}}));
  EXPECT_EQ(plan->path.steps, (std::vector<std::vector<int64_t>>{{0, 1}}));
  EXPECT_EQ(plan->sliced, std::vector<std::string>{"2"});
  EXPECT_EQ(plan->target_elements, 2);
  EXPECT_EQ(plan->provenance.seed, 5u);
  EXPECT_EQ(plan->provenance.objective, PlanObjective::kFlops);
  EXPECT_NEAR(plan->unsliced_costs.at("flops"), 24, 1e-9);
  EXPECT_EQ(plan->costs, (PlanFigures{{"max_size", 2}, {"slices", 4}}));
}

TEST(PlanFileTest, RefusesArctnPlansThatContradictThemselves) {
  const struct {
    const char *pointer, *value;
    Reason reason;
    const char* field;
  } cases[] = {
      {"/schema_version", "1", Reason::kBadParameter, "schema_version"},
      {"/path_format", "\"linear-v1\"", Reason::kBadPath, "path_format"},
      {"/network_canon", "\"t:0,1;1,2|o:2,0|d:0=2,1=3,2=5\"", Reason::kBadExpression,
       "network_canon"},
      {"/network/size_dict", "[[0, 2], [0, 2]]", Reason::kBadExpression, "network.size_dict"},
      {"/network/inputs", "3", Reason::kBadExpression, "network.inputs"},
      {"/ssa_path", "null", Reason::kBadPath, "ssa_path"},
      {"/sliced", "{}", Reason::kBadSlice, "sliced.legs"},
      {"/target_size", "0", Reason::kBadParameter, "target.elements"},
      {"/metrics/log10_flops", "\"1\"", Reason::kBadParameter, "metrics.log10_flops"},
  };
  for (const auto& c : cases) {
    Json json = Arctn();
    json[Json::json_pointer(c.pointer)] = Json::parse(c.value);
    EXPECT_TRUE(Fails(ParsePlanFile(json.dump()), c.reason, c.field)) << c.pointer << c.value;
  }
}

}  // namespace
}  // namespace tenon
