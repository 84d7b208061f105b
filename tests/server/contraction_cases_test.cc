// The contraction cases of public bug reports, through the wire.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "tests/server/contraction_test_server.h"
#include "tests/server/measurement_test_server.h"
#include "tests/support/test_data.h"

namespace tenon::server {
namespace {

using nlohmann::json;
using Values = std::vector<std::complex<double>>;
using ::testing::HasSubstr;

ContractionTestServer& Server() {
  static auto& server = *new ContractionTestServer();
  return server;
}

const json& Case(const std::string& id) {
  static const auto& file =
      *new json(tenon::testing::ReadJsonOrDie(tenon::testing::TestPath("cases/public.json")));
  for (const json& one : file["cases"]) {
    if (one["id"] == id) return one;
  }
  ADD_FAILURE() << "there is no case " << id;
  return file;
}

v1::DataType TypeFromName(const std::string& name) {
  if (name == "float32") return v1::DATA_TYPE_FLOAT32;
  if (name == "float64") return v1::DATA_TYPE_FLOAT64;
  if (name == "complex64") return v1::DATA_TYPE_COMPLEX64;
  return v1::DATA_TYPE_COMPLEX128;
}

void Flatten(const json& value, std::vector<double>* out) {
  if (value.is_number()) return out->push_back(value.get<double>());
  for (const json& element : value) Flatten(element, out);
}

// Nested lists in C order; a complex number is a pair.
Values ReadValues(const json& value, v1::DataType dtype) {
  std::vector<double> numbers;
  Flatten(value, &numbers);
  Values values;
  const bool pairs = dtype == v1::DATA_TYPE_COMPLEX64 || dtype == v1::DATA_TYPE_COMPLEX128;
  for (size_t i = 0; i < numbers.size(); i += pairs ? 2 : 1) {
    values.emplace_back(numbers[i], pairs ? numbers[i + 1] : 0.0);
  }
  return values;
}

v1::ContractHeader HeaderOf(const json& one) {
  const json& input = one["input"];
  v1::ContractHeader header;
  header.set_request_id(one["id"].get<std::string>());
  for (size_t k = 0; k < input["inputs"].size(); ++k) {
    const json& name = input["dtype"].is_array() ? input["dtype"][k] : input["dtype"];
    const v1::DataType dtype = TypeFromName(name);
    AddOperand(&header, input["inputs"][k].get<std::vector<std::string>>(), dtype,
               input["shapes"][k].get<std::vector<int64_t>>(),
               ReadValues(input["arrays"][k], dtype));
  }
  SetOutput(&header, input["output"].get<std::vector<std::string>>());
  return header;
}

void SetPath(v1::ContractHeader* header, const json& steps) {
  v1::ContractionPath* path = header->mutable_path()->mutable_path();
  path->set_format(v1::PATH_FORMAT_LINEAR);
  for (const json& step : steps) {
    v1::PathStep* one = path->add_steps();
    for (const json& operand : step) one->add_operands(operand.get<int64_t>());
  }
}

// Joins neighbours until one is left.
void SetLeftToRightPath(v1::ContractHeader* header) {
  json steps = json::array();
  for (int k = 1; k < header->network().operands_size(); ++k) steps.push_back({0, 1});
  SetPath(header, steps);
}

void ExpectValue(const Answer& answer, const json& expected, const json& tolerance) {
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status) << answer.status.error_message();
  EXPECT_EQ(answer.order_error, "");
  ASSERT_EQ(answer.results.size(), 1u);
  const ReceivedResult& result = answer.results[0];
  const v1::DataType dtype = TypeFromName(expected["dtype"]);
  EXPECT_EQ(result.spec.dtype(), dtype);
  EXPECT_THAT(std::vector<int64_t>(result.spec.shape().begin(), result.spec.shape().end()),
              ::testing::ElementsAreArray(expected["shape"].get<std::vector<int64_t>>()));
  const Values actual = Decode(dtype, result.bytes);
  const Values wanted = ReadValues(expected["value"], dtype);
  ASSERT_EQ(actual.size(), wanted.size());
  const bool exact = tolerance["mode"] == "exact";
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double allowed = exact ? 0
                                 : tolerance["atol"].get<double>() +
                                       tolerance["rtol"].get<double>() * std::abs(wanted[i]);
    EXPECT_LE(std::abs(actual[i] - wanted[i]), allowed) << "element " << i << ": " << actual[i];
  }
}

// A case's value without a plan and along the simplest explicit one, on both providers.
class PublicCaseTest : public ::testing::TestWithParam<std::tuple<const char*, const char*, bool>> {
};

TEST_P(PublicCaseTest, HasTheRightValue) {
  const auto& [id, provider, explicit_path] = GetParam();
  const json& one = Case(id);
  v1::ContractHeader header = HeaderOf(one);
  header.mutable_execution()->add_providers(provider);
  if (explicit_path) SetLeftToRightPath(&header);
  const json& expected = one["expected"].contains("for_valid_paths")
                             ? one["expected"]["for_valid_paths"]
                         : one["expected"].contains("any_of") ? one["expected"]["any_of"][1]
                                                              : one["expected"];
  ExpectValue(Contract(&Server(), header), expected, one["tolerance"]);
}

INSTANTIATE_TEST_SUITE_P(
    All, PublicCaseTest,
    ::testing::Combine(::testing::Values("P01", "P02", "P03", "P04", "P05", "P06", "P07", "P08",
                                         "P09", "P10", "P11", "P12", "P14"),
                       ::testing::Values("cpu", "reference"), ::testing::Bool()),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param) +
             (std::get<2>(info.param) ? "_path" : "");
    });

TEST(PublicCases, P01EveryPathGivesTheSame) {
  const json& one = Case("P01");
  for (const json& path : one["input"]["options"]["try_paths_linear"]) {
    v1::ContractHeader header = HeaderOf(one);
    if (!path.is_null()) SetPath(&header, path);
    ExpectValue(Contract(&Server(), header), one["expected"], one["tolerance"]);
  }
}

TEST(PublicCases, P02PartialTrace) {
  const json& one = Case("P02");
  v1::ContractHeader header = HeaderOf(one);
  SetOutput(&header, {"i"});
  ExpectValue(Contract(&Server(), header),
              json{{"shape", {2}}, {"dtype", "float64"}, {"value", {6, 54}}}, one["tolerance"]);
}

TEST(PublicCases, P03LimitIsMetBySlicingABatchIndex) {
  const json& one = Case("P03");
  v1::ContractHeader header = HeaderOf(one);
  header.mutable_search()->set_target_size(8);
  // Summed indices may do it as well.
  for (const bool output_too : {true, false}) {
    header.mutable_search()->set_allow_output_slicing(output_too);
    const Answer answer = Contract(&Server(), header);
    ExpectValue(answer, one["expected"], one["tolerance"]);
    ASSERT_TRUE(answer.report.has_value());
    EXPECT_GT(answer.report->plan().slices(), 1);
    EXPECT_LE(answer.report->plan().largest_intermediate_elements(), 8);
    EXPECT_LE(answer.report->memory().measured_peak_bytes(),
              answer.report->memory().planned_peak_bytes());
  }
}

TEST(PublicCases, P08NoOperandsAtAll) {
  v1::ContractHeader header;
  header.mutable_network();
  EXPECT_EQ(Summary(Contract(&Server(), header).status),
            "INVALID_ARGUMENT BAD_EXPRESSION header.network.operands");
}

TEST(PublicCases, P09SameBitsWithEveryNumberOfThreads) {
  const json& one = Case("P09");
  v1::ContractHeader header = HeaderOf(one);
  header.mutable_path()->add_sliced_indices("j");
  SetLeftToRightPath(&header);
  for (const int threads : {1, 2, 3, 8}) {
    header.mutable_execution()->set_threads(threads);
    ExpectValue(Contract(&Server(), header), one["expected"], one["tolerance"]);
  }
  // Many at once.
  std::vector<std::unique_ptr<ContractClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<ContractClient>(&Server()));
    clients.back()->SendHeader(header);
    clients.back()->HalfClose();
  }
  for (auto& client : clients) {
    ExpectValue(client->Finish(), one["expected"], one["tolerance"]);
  }
}

TEST(PublicCases, P10SlicedIndexOnOneOperand) {
  const json& one = Case("P10");
  for (const json& sliced : one["input"]["options"]["slice_indices"]) {
    v1::ContractHeader header = HeaderOf(one);
    SetLeftToRightPath(&header);
    for (const json& index : sliced) {
      header.mutable_path()->add_sliced_indices(index.get<std::string>());
    }
    ExpectValue(Contract(&Server(), header), one["expected"], one["tolerance"]);
  }
}

TEST(PublicCases, P11ImpossibleLimitIsRefusedWithBothFigures) {
  const json& one = Case("P11");
  v1::ContractHeader header = HeaderOf(one);
  header.mutable_search()->set_target_size(8);
  const Answer answer = Contract(&Server(), header);
  const CallError error = ErrorOf(answer.status);
  EXPECT_EQ(error.reason, "UNREACHABLE_TARGET");
  EXPECT_EQ(error.field, "header.search.target_size");
  EXPECT_THAT(error.message, HasSubstr("8"));
  EXPECT_THAT(error.message, HasSubstr("16"));
}

TEST(PublicCases, P12MixedTypesPromote) {
  const json& one = Case("P12");
  v1::ContractHeader header = HeaderOf(one);
  SetOutput(&header, {});
  const json sum{{"shape", json::array()}, {"dtype", "complex128"}, {"value", {12.0, -2.0}}};
  ExpectValue(Contract(&Server(), header), sum, one["tolerance"]);
  // The second operand first; then with a narrower real type.
  header.mutable_network()->mutable_operands()->SwapElements(0, 1);
  ExpectValue(Contract(&Server(), header), sum, one["tolerance"]);
  v1::Operand* real = header.mutable_network()->mutable_operands(1);
  real->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT32);
  real->set_inline_data(Encode(v1::DATA_TYPE_FLOAT32, kLeft));
  ExpectValue(Contract(&Server(), header), sum, one["tolerance"]);
}

TEST(PublicCases, P13SizeOneIsNotBroadcast) {
  const Answer answer = Contract(&Server(), HeaderOf(Case("P13")));
  EXPECT_EQ(Summary(answer.status),
            "INVALID_ARGUMENT SHAPE_MISMATCH header.network.operands[1].spec.shape[0]");
  for (const char* word : {"operand 1", "'t'", "3", "1"}) {
    EXPECT_THAT(answer.status.error_message(), HasSubstr(word));
  }
}

TEST(PublicCases, P14PathsAreChecked) {
  const json& one = Case("P14");
  for (const json& path : one["input"]["options"]["valid_paths_linear"]) {
    v1::ContractHeader header = HeaderOf(one);
    SetPath(&header, path);
    ExpectValue(Contract(&Server(), header), one["expected"]["for_valid_paths"], one["tolerance"]);
  }
  for (const json& path : one["input"]["options"]["invalid_paths_linear"]) {
    v1::ContractHeader header = HeaderOf(one);
    SetPath(&header, path);
    const Answer answer = Contract(&Server(), header);
    const CallError error = ErrorOf(answer.status);
    EXPECT_EQ(error.code, grpc::StatusCode::INVALID_ARGUMENT) << path;
    EXPECT_EQ(error.reason, "BAD_PATH") << path;
    EXPECT_THAT(error.field, ::testing::StartsWith("header.path.path.steps")) << path;
    EXPECT_THAT(error.message, HasSubstr("path")) << path;
  }
}

// Colours of a complete graph: the number of proper colourings, ten vertices with ten colours.
v1::ContractHeader Colourings(int vertices, int64_t colours) {
  v1::ContractHeader header;
  Values entry(static_cast<size_t>(colours * colours), 1);
  for (int64_t c = 0; c < colours; ++c) entry[static_cast<size_t>(c * colours + c)] = 0;
  for (int u = 0; u < vertices; ++u) {
    for (int v = u + 1; v < vertices; ++v) {
      AddOperand(&header, {"v" + std::to_string(u), "v" + std::to_string(v)}, v1::DATA_TYPE_FLOAT64,
                 {colours, colours}, entry);
    }
  }
  SetOutput(&header, {});
  return header;
}

TEST(PublicCases, P22CancelledWorkStopsAndReleasesItsMemory) {
  v1::ContractHeader header = Colourings(10, 16);
  header.mutable_execution()->set_memory_budget_bytes(int64_t{256} << 20);
  header.mutable_execution()->set_progress_interval_seconds(0.001);
  ContractClient client(&Server());
  client.SendHeader(header);
  v1::ContractResponse frame = client.Read();
  while (frame.has_progress()) frame = client.Read();  // of its way to admission
  ASSERT_TRUE(frame.has_accepted());
  ASSERT_TRUE(client.Read().has_progress());  // it runs
  EXPECT_GT(Server().state().budget.reserved_bytes(), 0);
  client.Cancel();
  // Other work goes on at once.
  const Answer product = Contract(&Server(), MatrixProduct());
  ASSERT_TRUE(product.status.ok()) << Summary(product.status);
  EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, product.results[0].bytes), kProduct);
  EXPECT_EQ(client.Finish().status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Server().AllReleased());
}

TEST(PublicCases, P22TheSameWorkLeftToFinish) {
  // Six colours on five vertices: 6 * 5 * 4 * 3 * 2.
  const Answer answer = Contract(&Server(), Colourings(5, 6));
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, answer.results[0].bytes), Values{720});
}

TEST(PublicCases, P23LargeRequestInChunks) {
  constexpr int64_t kSize = 700'000;
  v1::ContractHeader header;
  AddOperand(&header, {"i"}, v1::DATA_TYPE_FLOAT64, {kSize});
  AddOperand(&header, {"i"}, v1::DATA_TYPE_FLOAT64, {kSize});
  SetOutput(&header, {});
  std::vector<double> ones(kSize, 1.0), sevens(kSize);
  for (int64_t i = 0; i < kSize; ++i) sevens[i] = static_cast<double>(i % 7);
  const auto bytes = [](const std::vector<double>& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * 8);
  };
  ContractClient client(&Server());
  client.SendHeader(header);
  ASSERT_TRUE(client.Read().has_accepted());
  client.SendOperand(0, 0, bytes(ones), size_t{1} << 20);
  client.SendOperand(0, 1, bytes(sevens), 4'193'280);  // the largest that is granted
  client.HalfClose();
  const Answer answer = client.Finish();
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, answer.results[0].bytes), Values{2'100'000});
  EXPECT_EQ(answer.report->timing().received_bytes(), 2 * kSize * 8);
}

TEST(PublicCases, P23LargeResultInChunks) {
  constexpr int64_t kSize = 900;
  Values numbers(kSize);
  for (int64_t i = 0; i < kSize; ++i) numbers[i] = static_cast<double>(i);
  v1::ContractHeader header;
  AddOperand(&header, {"i"}, v1::DATA_TYPE_FLOAT64, {kSize}, numbers);
  AddOperand(&header, {"j"}, v1::DATA_TYPE_FLOAT64, {kSize}, numbers);
  SetOutput(&header, {"i", "j"});
  const Answer answer = Contract(&Server(), header);
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(answer.order_error, "");
  const ReceivedResult& result = answer.results.at(0);
  EXPECT_EQ(result.chunks, 7);  // 6.48 MB in pieces of 1 MiB
  const Values values = Decode(v1::DATA_TYPE_FLOAT64, result.bytes);
  ASSERT_EQ(values.size(), static_cast<size_t>(kSize * kSize));
  EXPECT_EQ(values.front(), 0.0);
  EXPECT_EQ(values[kSize + 899], 899.0);
  EXPECT_EQ(values.back(), 808201.0);
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), std::complex<double>()), 163660702500.0);
}

// 48 bytes for a tensor that is declared to have 24.
TEST(PublicCases, P24BytesMustMatchShapeAndType) {
  const auto header = [](const std::vector<int64_t>& shape, size_t bytes) {
    v1::ContractHeader result;
    AddOperand(&result, {"i", "j"}, v1::DATA_TYPE_FLOAT32, shape)
        ->set_inline_data(std::string(bytes, '\0'));
    (*result.mutable_network()->mutable_index_sizes())["i"] = 2;
    (*result.mutable_network()->mutable_index_sizes())["j"] = 3;
    SetOutput(&result, {"i"});
    return result;
  };
  const grpc::Status status = Contract(&Server(), header({2, 3}, 48)).status;
  EXPECT_EQ(Summary(status),
            "INVALID_ARGUMENT SHAPE_MISMATCH header.network.operands[0].inline_data");
  EXPECT_THAT(status.error_message(), HasSubstr("24"));
  EXPECT_THAT(status.error_message(), HasSubstr("48"));
  EXPECT_EQ(ErrorOf(status).metadata["expected_bytes"], "24");
  EXPECT_EQ(ErrorOf(status).metadata["actual_bytes"], "48");
  EXPECT_EQ(Summary(Contract(&Server(), header({2, 3}, 23)).status), Summary(status));
  EXPECT_EQ(Summary(Contract(&Server(), header({3, 2}, 24)).status),
            "INVALID_ARGUMENT SHAPE_MISMATCH header.network.operands[0].spec.shape[0]");
  EXPECT_EQ(Summary(Contract(&Server(), header({-2, -3}, 24)).status),
            "INVALID_ARGUMENT SHAPE_MISMATCH header.network.operands[0].spec.shape[0]");
  EXPECT_EQ(Summary(Contract(&Server(), header({4294967296, 4294967296}, 0)).status),
            "INVALID_ARGUMENT OVERFLOW header.network.operands[0].spec.shape");
}

}  // namespace
}  // namespace tenon::server
