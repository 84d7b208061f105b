// Scores through the wire, against golden values and the collected cases.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "backends/core/npy.h"
#include "tenon/measure_spec.h"
#include "tests/server/measurement_test_server.h"
#include "tests/support/test_data.h"

namespace tenon::server {
namespace {

using nlohmann::json;
using tenon::testing::ReadJsonOrDie;
using tenon::testing::TestPath;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-12;

struct WireTensor {
  v1::TensorSpec spec;
  std::string data;
};

WireTensor ReadTensor(const std::string& path) {
  auto tensor = ReadNpyFile(path);
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  WireTensor wire;
  wire.spec.set_dtype(static_cast<v1::DataType>(tensor->spec.dtype));
  wire.spec.mutable_shape()->Assign(tensor->spec.shape.begin(), tensor->spec.shape.end());
  wire.data.assign(tensor->buffer.as<char>(), static_cast<size_t>(tensor->buffer.size_bytes()));
  return wire;
}

void SetLabels(const std::string& input, v1::Labels* labels) {
  if (std::ifstream(TestPath("golden/inputs/" + input + ".labels.json")).good()) {
    for (const auto& label : ReadJsonOrDie(TestPath("golden/inputs/" + input + ".labels.json"))) {
      labels->mutable_strings()->add_values(label.get<std::string>());
    }
    return;
  }
  auto tensor = ReadNpyFile(TestPath("golden/inputs/" + input + ".labels.npy"));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  ASSERT_EQ(tensor->spec.dtype, DType::kInt64);
  const auto* values = tensor->buffer.as<int64_t>();
  labels->mutable_int64s()->mutable_values()->Assign(values, values + tensor->spec.shape[0]);
}

std::string ValueText(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// A specification of a golden case, whose parameters have the recorded program's names, as the
// client's text.
std::string SpecText(const json& spec) {
  std::string text = spec["id"].get<std::string>();
  const auto add = [&text](const std::string& name, const std::string& value) {
    text += (text.find(':') == std::string::npos ? ":" : ",") + name + "=" + value;
  };
  for (const auto& [name, value] : spec["params"].items()) {
    if (name == "random_seed" || name == "random_state") {
      add("seed", ValueText(value));
      add("rng", "numpy");
    } else if (name == "clustering_args") {
      for (const auto& [key, inner] : value.items()) add("dbscan." + key, ValueText(inner));
    } else {
      add(name, ValueText(value));
    }
  }
  return text;
}

void AddGoldenSpecs(const json& specs, v1::MeasureHeader* header) {
  for (const json& spec : specs) {
    auto parsed = client::ParseMeasureSpec(SpecText(spec));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    *header->add_specs() = *std::move(parsed);
  }
}

void ExpectValues(const json& expected, const v1::SpecScores& actual) {
  ASSERT_EQ(actual.values_size(), static_cast<int>(expected.size())) << actual.id();
  for (const auto& [key, value] : expected.items()) {
    ASSERT_TRUE(actual.values().contains(key)) << key;
    const double wanted = value.get<double>();
    EXPECT_NEAR(actual.values().at(key), wanted, kTolerance * std::max(1.0, std::abs(wanted)))
        << actual.id() << " " << key;
  }
}

class GoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, ScoresAndLocalScoresAreTheGoldenOnes) {
  const json golden = ReadJsonOrDie(TestPath(std::string("golden/cases/") + GetParam() + ".json"));
  const std::string input = golden["input"];
  TestServer server;
  v1::MeasureHeader header;
  AddGoldenSpecs(golden["specs"], &header);
  const WireTensor dataset = ReadTensor(TestPath("golden/inputs/" + input + ".hd.npy"));
  *header.mutable_dataset_input()->mutable_spec() = dataset.spec;
  if (golden["use_labels"].get<bool>()) SetLabels(input, header.mutable_labels());
  header.mutable_execution()->set_geodesic(golden["geodesic"].get<bool>());
  header.set_return_local(true);
  MeasureClient client(&server);
  ASSERT_TRUE(client.Send(header));
  constexpr size_t kChunk = 4096 + 3;  // not a multiple of an element
  for (size_t offset = 0; offset < dataset.data.size(); offset += kChunk) {
    ASSERT_TRUE(client.Send(
        DatasetChunk(static_cast<int64_t>(offset), dataset.data.substr(offset, kChunk))));
  }
  const WireTensor projection = ReadTensor(TestPath("golden/inputs/" + input + ".ld.npy"));
  v1::Projection frame;
  *frame.mutable_spec() = projection.spec;
  frame.set_inline_data(projection.data);
  ASSERT_TRUE(client.Send(Frame(frame)));
  const auto frames = client.ReadAll();
  ASSERT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 3u);
  const v1::MeasureScores& scores = frames[1].scores();
  ASSERT_EQ(scores.specs_size(), header.specs_size());
  for (int i = 0; i < scores.specs_size(); ++i) {
    ExpectValues(golden["expected_global"][static_cast<size_t>(i)], scores.specs(i));
    const json& params = golden["specs"][static_cast<size_t>(i)]["params"];
    const bool seeded = params.contains("random_seed") || params.contains("random_state");
    if (seeded) {
      EXPECT_EQ(scores.specs(i).seed(),
                params[params.contains("random_seed") ? "random_seed" : "random_state"]);
    }
  }
  if (!golden["return_local"].get<bool>()) return;
  int checked = 0;
  for (const v1::LocalArray& array : scores.local_arrays()) {
    const auto& expected = golden["expected_local"][static_cast<size_t>(array.spec())][array.key()];
    ASSERT_EQ(array.inline_data().size(), expected.size() * sizeof(double)) << array.key();
    for (size_t row = 0; row < expected.size(); ++row, ++checked) {
      double value = 0;
      std::memcpy(&value, array.inline_data().data() + row * sizeof(double), sizeof(double));
      EXPECT_NEAR(value, expected[row].get<double>(), kTolerance) << array.key() << " " << row;
    }
  }
  EXPECT_GT(checked, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest,
                         ::testing::Values("nbr_gauss200_k7", "nbr_f32_100_k10", "nbr_dup60_k5",
                                           "nbr_tiny12_k5", "nh_strlab60", "pair_gauss200",
                                           "pair_f32_100", "pair_emb3d60", "pair_emb1d60",
                                           "pair_three3", "geodesic_geo40", "label_blobs150",
                                           "ivm_blobs150", "cevm_blobs150", "cevm_dbscan_blobs150",
                                           "cadi_gauss200", "snc_dbscan_gauss200",
                                           "topo_proc_gauss200", "gi_gauss200_euclidean",
                                           "gi_gauss200_cityblock", "dens_sigmas_gauss200",
                                           "pair_external_gauss200", "nbr_mixedk_gauss200"));

double Coordinate(const json& value) {
  if (value.is_number()) return value.get<double>();
  return value == "NaN" ? std::numeric_limits<double>::quiet_NaN()
                        : std::numeric_limits<double>::infinity();
}

Matrix AsMatrix(const json& rows) {
  Matrix matrix{static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size()), {}};
  for (const json& row : rows) {
    for (const json& value : row) matrix.values.push_back(Coordinate(value));
  }
  return matrix;
}

json FindCase(const std::string& id) {
  const json collected = ReadJsonOrDie(TestPath("cases/public.json"));
  for (const json& entry : collected["cases"]) {
    if (entry["id"] == id) return entry;
  }
  ADD_FAILURE() << "no case " << id;
  return {};
}

// Header and inline projection of a case, `spec` in place of its own if given.
v1::MeasureHeader CaseHeader(const json& input, const json& spec) {
  v1::MeasureHeader header;
  *header.mutable_dataset_input() = InlineDataset(AsMatrix(input["hd"]));
  for (const json& entry : spec) {
    AddSpec(entry["id"], entry["params"].value("k", 0), &header);
    if (entry["params"].contains("sigma")) {
      header.mutable_specs(header.specs_size() - 1)
          ->mutable_kl_divergence()
          ->set_sigma(entry["params"]["sigma"].get<double>());
    }
  }
  *header.mutable_inline_projections()->add_projections() =
      InlineProjection(0, AsMatrix(input["ld"]));
  return header;
}

v1::MeasureSingle Single(TestServer* server, const v1::MeasureHeader& header) {
  MeasureClient client(server);
  client.Send(header);
  const auto frames = client.ReadAll();
  EXPECT_EQ(Summary(client.Finish()), "OK");
  EXPECT_EQ(frames.size(), 1u);
  if (frames.size() != 1 || !frames[0].has_single()) return {};
  return frames[0].single();
}

TEST(CollectedCaseTest, P15RefusesKFromHalfOnAndTakesTheLargestBelow) {
  TestServer server;
  const json entry = FindCase("P15");
  MeasureClient client(&server);
  client.Send(CaseHeader(entry["input"], entry["input"]["spec"]));
  EXPECT_TRUE(client.ReadAll().empty());
  const CallError error = ErrorOf(client.Finish());
  EXPECT_EQ(error.code, grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(error.reason, "K_OUT_OF_RANGE");
  EXPECT_EQ(error.field, "header.specs[0].trustworthiness_continuity.k");
  EXPECT_THAT(error.message, HasSubstr("k"));
  EXPECT_THAT(error.message, HasSubstr("7"));
  const json& then = entry["expected"]["then"];
  const auto single = Single(&server, CaseHeader(entry["input"], then["spec"]));
  ASSERT_EQ(single.items_size(), 1);
  ExpectValues(then["value"], single.items(0).scores().specs(0));
}

TEST(CollectedCaseTest, P16P17P21Scores) {
  TestServer server;
  for (const char* id : {"P16", "P17", "P21"}) {
    const json entry = FindCase(id);
    const auto single = Single(&server, CaseHeader(entry["input"], entry["input"]["spec"]));
    ASSERT_EQ(single.items_size(), 1) << id;
    const json& value = entry["expected"]["value"];
    const json values = value.is_array() ? value : json::array({value});
    for (size_t i = 0; i < values.size(); ++i) {
      ExpectValues(values[i], single.items(0).scores().specs(static_cast<int>(i)));
    }
  }
}

TEST(CollectedCaseTest, P19UsesPairsOnce) {
  TestServer server;
  const json entry = FindCase("P19");
  const auto single = Single(&server, CaseHeader(entry["input"], entry["input"]["spec"]));
  ASSERT_EQ(single.items_size(), 1);
  ExpectValues(entry["expected"]["value_by_convention"]["pairs_i_less_than_j"],
               single.items(0).scores().specs(0));
}

TEST(CollectedCaseTest, P18GapsInLabelsAndClassesOfOneRow) {
  TestServer server;
  const json entry = FindCase("P18");
  for (const std::vector<int64_t>& labels : {std::vector<int64_t>{0, 0, 1, 3}, {7, 7, -2, 100}}) {
    v1::MeasureHeader header = CaseHeader(entry["input"], entry["input"]["spec"]);
    header.mutable_labels()->mutable_int64s()->mutable_values()->Assign(labels.begin(),
                                                                        labels.end());
    const auto single = Single(&server, header);
    ASSERT_EQ(single.items_size(), 1);
    ExpectValues(entry["expected"]["value"], single.items(0).scores().specs(0));
  }
}

TEST(CollectedCaseTest, P20NonFiniteValuesAreNamedByRowAndColumn) {
  TestServer server;
  const json entry = FindCase("P20");
  const auto single = Single(&server, CaseHeader(entry["input"], entry["input"]["spec"]));
  ASSERT_EQ(single.items_size(), 1);
  const v1::ErrorDetail& error = single.items(0).error().error();
  EXPECT_EQ(Summary(error), "INVALID_ARGUMENT NOT_FINITE projection");
  EXPECT_THAT(error.message(), HasSubstr("ld"));
  EXPECT_THAT(error.message(), HasSubstr("finite"));
  EXPECT_EQ(error.metadata().at("row"), "2");
  EXPECT_EQ(error.metadata().at("column"), "1");

  json in_dataset = entry["input"];
  in_dataset["hd"][1][0] = "Infinity";
  MeasureClient client(&server);
  client.Send(CaseHeader(in_dataset, entry["input"]["spec"]));
  EXPECT_TRUE(client.ReadAll().empty());
  EXPECT_EQ(Summary(client.Finish()), "INVALID_ARGUMENT NOT_FINITE header.dataset_input");
}

TEST(CollectedCaseTest, P21ConstantProjectionHasNoScore) {
  TestServer server;
  json input = FindCase("P21")["input"];
  input["ld"] = FindCase("P21")["expected"]["constant_data"]["ld"];
  const auto single = Single(&server, CaseHeader(input, input["spec"]));
  ASSERT_EQ(single.items_size(), 1);
  const v1::ErrorDetail& error = single.items(0).error().error();
  EXPECT_EQ(error.reason(), "UNDEFINED_SCORE");
  EXPECT_EQ(error.code(), 3);
  EXPECT_THAT(error.message(), HasSubstr("ld"));
  EXPECT_THAT(error.message(), HasSubstr("zero"));
}

TEST(ScoresTest, ProvidersAgreeAndTypesAreWidened) {
  TestServer server;
  Matrix dataset = MakeMatrix(30, 4, 1), projection = MakeMatrix(30, 2, 2);
  for (double& value : dataset.values) value = std::floor(value * 100);
  v1::MeasureHeader header = Header(dataset, {"tnc", "stress"}, 0);
  header.mutable_specs(0)->mutable_trustworthiness_continuity()->set_k(5);
  *header.mutable_inline_projections()->add_projections() = InlineProjection(0, projection);
  const auto expected = Single(&server, header);
  ASSERT_EQ(expected.items_size(), 1);

  header.mutable_execution()->set_provider("reference");
  const auto reference = Single(&server, header);
  ASSERT_EQ(reference.items_size(), 1);
  std::string bytes;
  for (const double value : dataset.values) bytes.push_back(static_cast<char>(value));
  header.mutable_execution()->set_provider("cpu");
  header.mutable_dataset_input()->mutable_spec()->set_dtype(v1::DATA_TYPE_UINT8);
  header.mutable_dataset_input()->set_inline_data(bytes);
  const auto narrow = Single(&server, header);
  ASSERT_EQ(narrow.items_size(), 1);
  for (int i = 0; i < 2; ++i) {
    for (const auto& [key, value] : expected.items(0).scores().specs(i).values()) {
      EXPECT_NEAR(reference.items(0).scores().specs(i).values().at(key), value, kTolerance);
      EXPECT_EQ(narrow.items(0).scores().specs(i).values().at(key), value) << key;
    }
  }
  EXPECT_EQ(reference.summary().report().providers(0).provider(), "reference");
}

}  // namespace
}  // namespace tenon::server
