#include "backends/core/network.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "backends/core/error.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tenon {
namespace {

using testing::Fails;
using Names = std::vector<std::string>;
using Lists = std::vector<Names>;
using Json = nlohmann::json;

Json Minimal() {
  return Json::parse(R"({"inputs": [["a", "b"], ["b", "c"]], "output": ["a", "c"],
                         "size_dict": {"a": 2, "b": 3, "c": 4}})");
}

// The minimal network with one key replaced, parsed.
absl::StatusOr<NetworkFile> With(const char* key, const std::string& value) {
  Json json = Minimal();
  json[key] = Json::parse(value);
  return ParseNetworkJson(json.dump());
}

TEST(NetworkJsonTest, Minimal) {
  const auto file = ParseNetworkJson(Minimal().dump());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->network.inputs, (Lists{{"a", "b"}, {"b", "c"}}));
  EXPECT_EQ(file->network.output, (Names{"a", "c"}));
  EXPECT_EQ(file->network.sizes, (std::map<std::string, int64_t>{{"a", 2}, {"b", 3}, {"c", 4}}));
  EXPECT_EQ(file->name, "");
  EXPECT_FALSE(file->dtype || file->path || file->seed);
  EXPECT_TRUE(file->sliced.empty() && file->scales.empty());
}

TEST(NetworkJsonTest, Everything) {
  Json json = Minimal();
  json.update(Json::parse(R"({"name": "n", "dtype": "complex64", "path_ssa": [[0, 1]],
                              "sliced": ["b"], "seed": 18446744073709551615,
                              "scales": [0.5, 2], "planner": {"tool": {"deep": [1]}}})"));
  const auto file = ParseNetworkJson(json.dump());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->name, "n");
  EXPECT_EQ(file->dtype, DType::kComplex64);
  ASSERT_TRUE(file->path.has_value());
  EXPECT_EQ(file->path->format, PathSteps::Format::kSsa);
  EXPECT_EQ(file->path->steps, (std::vector<std::vector<int64_t>>{{0, 1}}));
  EXPECT_EQ(file->sliced, Names{"b"});
  EXPECT_EQ(file->seed, ~uint64_t{0});
  EXPECT_EQ(file->scales, (std::vector<double>{0.5, 2}));
}

TEST(NetworkJsonTest, IntegerNamesLinearPathsAndNulls) {
  const auto file = ParseNetworkJson(
      R"({"inputs": [[1, -2], [-2, "Ω x"], []], "output": [1], "dtype": null, "seed": null,
          "size_dict": {"1": 2, "-2": 0, "Ω x": 9223372036854775807},
          "path_linear": [[0, 1, 2], []]})");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->network.inputs, (Lists{{"1", "-2"}, {"-2", "Ω x"}, {}}));
  EXPECT_EQ(file->network.sizes.at("Ω x"), INT64_MAX);
  ASSERT_TRUE(file->path.has_value());
  EXPECT_EQ(file->path->format, PathSteps::Format::kLinear);
  EXPECT_EQ(file->path->steps, (std::vector<std::vector<int64_t>>{{0, 1, 2}, {}}));
}

TEST(NetworkJsonTest, MissingKeys) {
  for (const char* key : {"inputs", "output", "size_dict"}) {
    Json json = Minimal();
    json.erase(key);
    EXPECT_TRUE(Fails(ParseNetworkJson(json.dump()), Reason::kBadExpression, key));
  }
}

TEST(NetworkJsonTest, APlanIsToldAsSuch) {
  const auto plan = ParseNetworkJson(R"({"schema": "tenon-plan", "version": 1, "network": {}})");
  EXPECT_TRUE(Fails(plan, Reason::kBadExpression, "inputs"));
  EXPECT_EQ(plan.status().message(), "'inputs' is missing; this is a plan, not a network");
}

TEST(NetworkJsonTest, WrongValuesNameTheirKey) {
  const auto bad = Reason::kBadExpression;
  EXPECT_TRUE(Fails(With("inputs", R"(3)"), bad, "inputs"));
  EXPECT_TRUE(Fails(With("inputs", R"(["ab"])"), bad, "inputs"));
  EXPECT_TRUE(Fails(With("inputs", R"([["a", ""]])"), bad, "inputs"));
  EXPECT_TRUE(Fails(With("inputs", R"([["a", 1.5]])"), bad, "inputs"));
  EXPECT_TRUE(Fails(With("output", R"("ac")"), bad, "output"));
  EXPECT_TRUE(Fails(With("size_dict", R"({"a": 2.0})"), bad, "size_dict"));
  EXPECT_TRUE(Fails(With("size_dict", R"({"a": 9223372036854775808})"), bad, "size_dict"));
  EXPECT_TRUE(Fails(With("size_dict", R"({"": 1})"), bad, "size_dict"));
  EXPECT_TRUE(Fails(With("size_dict", R"([1])"), bad, "size_dict"));
  EXPECT_TRUE(Fails(With("name", R"(1)"), bad, "name"));
  EXPECT_TRUE(Fails(With("dtype", R"(1)"), bad, "dtype"));
  EXPECT_TRUE(Fails(With("dtype", R"("int32")"), Reason::kUnsupportedDtype, "dtype"));
  EXPECT_TRUE(Fails(With("path_ssa", R"([1])"), Reason::kBadPath, "path_ssa"));
  EXPECT_TRUE(Fails(With("path_ssa", R"("x")"), Reason::kBadPath, "path_ssa"));
  EXPECT_TRUE(Fails(With("path_ssa", R"([[9223372036854775808]])"), Reason::kBadPath, "path_ssa"));
  EXPECT_TRUE(Fails(With("path_linear", R"([[0, "1"]])"), Reason::kBadPath, "path_linear"));
  EXPECT_TRUE(Fails(With("sliced", R"([["a"]])"), Reason::kBadSlice, "sliced"));
  EXPECT_TRUE(Fails(With("sliced", R"("a")"), Reason::kBadSlice, "sliced"));
  EXPECT_TRUE(Fails(With("seed", R"(-1)"), bad, "seed"));
  EXPECT_TRUE(Fails(With("seed", R"(1.0)"), bad, "seed"));
  EXPECT_TRUE(Fails(With("scales", R"([1.0])"), bad, "scales"));
  EXPECT_TRUE(Fails(With("scales", R"([1.0, "x"])"), bad, "scales"));
  EXPECT_TRUE(Fails(With("seed", "1"), bad, "scales"));
}

TEST(NetworkJsonTest, OnlyOnePath) {
  Json json = Minimal();
  json["path_ssa"] = json["path_linear"] = Json::parse("[[0, 1]]");
  EXPECT_TRUE(Fails(ParseNetworkJson(json.dump()), Reason::kBadPath, "path_linear"));
}

TEST(NetworkJsonTest, MalformedText) {
  const std::string text = Minimal().dump();
  for (size_t size = 0; size < text.size(); ++size) {
    ASSERT_TRUE(Fails(ParseNetworkJson(text.substr(0, size)), Reason::kBadExpression, "json"));
  }
  for (const char* bad :
       {"[]", "3", "{\"inputs\": [[\"\xFF\"]]}", "{} x", "{\"scales\": [1e999]}"}) {
    EXPECT_TRUE(Fails(ParseNetworkJson(bad), Reason::kBadExpression, "json")) << bad;
  }
}

TEST(NetworkJsonTest, NestedBombs) {
  for (const std::string open : {"[", "{\"a\":"}) {
    std::string bomb = "{\"inputs\": ";
    for (int i = 0; i < 200000; ++i) bomb += open;
    EXPECT_TRUE(Fails(ParseNetworkJson(bomb), Reason::kBadExpression, "json"));
  }
  std::string deep = Minimal().dump();
  deep.pop_back();
  deep += ",\"x\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_TRUE(Fails(ParseNetworkJson(deep), Reason::kBadExpression, "json"));
  EXPECT_TRUE(
      Fails(ParseNetworkJson(std::string((16 << 20) + 1, ' ')), Reason::kBadExpression, "json"));
}

TEST(NetworkFileTest, TheWholeCorpusReads) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(testing::TestPath("data/networks"))) {
    if (entry.path().filename() == "reference.json") continue;
    const auto file = ReadNetworkFile(entry.path());
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->name, entry.path().stem());
    ASSERT_TRUE(file->path.has_value());
    EXPECT_EQ(file->path->steps.size(), file->network.inputs.size() - 1);
    EXPECT_EQ(file->scales.size(), file->network.inputs.size());
    for (size_t k = 0; k < file->network.inputs.size(); ++k) {
      ASSERT_TRUE(InputShape(file->network, k).ok());
    }
    ++files;
  }
  EXPECT_GE(files, 15);
}

TEST(NetworkFileTest, MissingAndMalformedFilesAreNamed) {
  EXPECT_TRUE(Fails(ReadNetworkFile("/nonexistent/n.json"), Reason::kNotFound, "path"));
  EXPECT_TRUE(Fails(ReadNetworkFile(testing::TestPath("data")), Reason::kBadParameter, "path"));
  const auto file = ReadNetworkFile(testing::TestPath("golden/inputs/two2.hd.npy"));
  EXPECT_TRUE(Fails(file, Reason::kBadExpression, "json"));
  EXPECT_NE(file.status().message().find("two2.hd.npy"), absl::string_view::npos);
}

TEST(EinsumTest, Forms) {
  const auto expect = [](std::string_view equation, const Lists& inputs, const Names& output) {
    SCOPED_TRACE(equation);
    const auto network = ParseEinsum(equation);
    ASSERT_TRUE(network.ok()) << network.status();
    EXPECT_EQ(network->inputs, inputs);
    EXPECT_EQ(network->output, output);
    EXPECT_TRUE(network->sizes.empty());
  };
  expect("ab,bc->ac", {{"a", "b"}, {"b", "c"}}, {"a", "c"});
  expect(" a b ,\tb\nc -> c a ", {{"a", "b"}, {"b", "c"}}, {"c", "a"});
  expect("ab,bc", {{"a", "b"}, {"b", "c"}}, {"a", "c"});
  expect("ca,ab", {{"c", "a"}, {"a", "b"}}, {"b", "c"});
  expect("ii", {{"i", "i"}}, {});
  expect("ii->i", {{"i", "i"}}, {"i"});
  expect("", {{}}, {});
  expect("->", {{}}, {});
  expect(",", {{}, {}}, {});
  expect(",->", {{}, {}}, {});
  expect(",ab,->ab", {{}, {"a", "b"}, {}}, {"a", "b"});
  expect("zαaΩ😀", {{"z", "α", "a", "Ω", "😀"}}, {"a", "z", "Ω", "α", "😀"});
  expect("βα,α€->€β", {{"β", "α"}, {"α", "€"}}, {"€", "β"});
  expect("(1,1)", {{"(", "1"}, {"1", ")"}}, {"(", ")"});
}

TEST(EinsumTest, ErrorsSayWhere) {
  const auto expect = [](std::string_view equation, int position) {
    SCOPED_TRACE(equation);
    const auto network = ParseEinsum(equation);
    ASSERT_TRUE(Fails(network, Reason::kBadExpression, "equation"));
    EXPECT_EQ(GetErrorDetails(network.status()).metadata.at("position_bytes"),
              std::to_string(position));
  };
  expect("ab-c", 2);
  expect("ab>c", 2);
  expect("ab-", 2);
  expect("a- >b", 1);
  expect("->->", 2);
  expect("a->b->c", 4);
  expect("ab->a,b", 5);
  expect("a...,b", 1);
  expect("ab\xFF", 2);
  expect("a\xC0\x80", 1);
  expect("α\xED\xA0\x80", 2);
  expect("a\xF0\x9F\x98", 1);
  EXPECT_TRUE(
      Fails(ParseEinsum(std::string((1 << 20) + 1, 'a')), Reason::kBadExpression, "equation"));
}

TEST(EinsumTest, AgreesWithTheCorpusOfSmallNetworks) {
  const auto path = testing::SharedPath("networks/small_einsums.json");
  if (!path.has_value()) GTEST_SKIP() << "the corpus of small networks is not here";
  int compared = 0;
  for (const Json& entry : testing::ReadJsonOrDie(*path)) {
    const auto network = ParseEinsum(entry["eq"].get<std::string>());
    const auto file = ParseNetworkJson(entry.dump());
    ASSERT_TRUE(network.ok() && file.ok()) << network.status() << file.status();
    EXPECT_EQ(network->inputs, file->network.inputs);
    EXPECT_EQ(network->output, file->network.output);
    ++compared;
  }
  EXPECT_GT(compared, 50);
}

TEST(InputShapeTest, ShapesAndRefusals) {
  Network network = *ParseEinsum("ab,b->a");
  network.sizes = {{"a", 2}};
  EXPECT_TRUE(Fails(InputShape(network, 0), Reason::kUnknownIndex, "inputs[0]"));
  network.sizes["b"] = 5;
  EXPECT_EQ(*InputShape(network, 0), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(*InputShape(network, 1), (std::vector<int64_t>{5}));
  EXPECT_TRUE(Fails(InputShape(network, 2), Reason::kBadParameter));
}

}  // namespace
}  // namespace tenon
