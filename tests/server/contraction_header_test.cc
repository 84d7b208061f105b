// What a header can get wrong, and what it may ask for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "server/content_store.h"
#include "tests/server/contraction_test_server.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

using Values = std::vector<std::complex<double>>;

ContractionTestServer& Server() {
  static auto& server = *new ContractionTestServer();
  return server;
}

struct BadHeader {
  const char* name;
  std::function<void(v1::ContractHeader*)> spoil;  // what to change of a good header
  const char* expected;
};

class BadHeaderTest : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaderTest, IsRefusedBeforeAnythingIsAccepted) {
  v1::ContractHeader header = MatrixProduct();
  GetParam().spoil(&header);
  const Answer answer = Contract(&Server(), header);
  EXPECT_EQ(Summary(answer.status), GetParam().expected) << answer.status.error_message();
  EXPECT_FALSE(answer.accepted.has_value());
  EXPECT_FALSE(answer.status.error_message().empty());
  // The server goes on.
  const Answer good = Contract(&Server(), MatrixProduct());
  ASSERT_TRUE(good.status.ok());
  EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, good.results[0].bytes), kProduct);
}

v1::Operand* Operand(v1::ContractHeader* header, int k) {
  return header->mutable_network()->mutable_operands(k);
}

std::vector<BadHeader> BadExpressions() {
  using H = v1::ContractHeader;
  return {
      {"NoExpression", [](H* h) { h->clear_network(); },
       "INVALID_ARGUMENT MISSING_FIELD header.network"},
      {"NoOperands", [](H* h) { h->mutable_network()->clear_operands(); },
       "INVALID_ARGUMENT BAD_EXPRESSION header.network.operands"},
      {"LongRequestId", [](H* h) { h->set_request_id(std::string(129, 'x')); },
       "INVALID_ARGUMENT BAD_PARAMETER header.request_id"},
      {"WrongShape",
       [](H* h) {
         Operand(h, 1)->mutable_spec()->set_shape(0, 4);
         Operand(h, 1)->mutable_spec()->set_shape(1, 1);
       },
       "INVALID_ARGUMENT SHAPE_MISMATCH header.network.operands[1].spec.shape[0]"},
      {"WrongRank", [](H* h) { Operand(h, 1)->mutable_spec()->add_shape(1); },
       "INVALID_ARGUMENT SHAPE_MISMATCH header.network.operands[1].spec.shape"},
      {"NegativeShape", [](H* h) { Operand(h, 0)->mutable_spec()->set_shape(1, -2); },
       "INVALID_ARGUMENT SHAPE_MISMATCH header.network.operands[0].spec.shape[1]"},
      {"OverflowingShape",
       [](H* h) {
         Operand(h, 0)->mutable_spec()->set_shape(0, 4294967296);
         Operand(h, 0)->mutable_spec()->set_shape(1, 4294967296);
       },
       "INVALID_ARGUMENT OVERFLOW header.network.operands[0].spec.shape"},
      {"WrongByteCount", [](H* h) { Operand(h, 1)->mutable_inline_data()->append(8, '\0'); },
       "INVALID_ARGUMENT SHAPE_MISMATCH header.network.operands[1].inline_data"},
      {"TooLargeForInline",
       [](H* h) {
         Operand(h, 1)->mutable_spec()->set_shape(1, 4096);
         Operand(h, 1)->set_inline_data(std::string(65536, '\0'));
       },
       "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT header.network.operands[1].inline_data"},
      {"NoSpec", [](H* h) { Operand(h, 1)->clear_spec(); },
       "INVALID_ARGUMENT MISSING_FIELD header.network.operands[1].spec"},
      {"NoType", [](H* h) { Operand(h, 1)->mutable_spec()->clear_dtype(); },
       "INVALID_ARGUMENT MISSING_FIELD header.network.operands[1].spec.dtype"},
      {"UnknownType",
       [](H* h) { Operand(h, 1)->mutable_spec()->set_dtype(static_cast<v1::DataType>(99)); },
       "INVALID_ARGUMENT BAD_PARAMETER header.network.operands[1].spec.dtype"},
      {"IntegerType", [](H* h) { Operand(h, 1)->mutable_spec()->set_dtype(v1::DATA_TYPE_INT64); },
       "UNIMPLEMENTED UNSUPPORTED_DTYPE header.network.operands[1].spec.dtype"},
      {"UnknownOutputIndex", [](H* h) { h->mutable_network()->set_output(1, "z"); },
       "INVALID_ARGUMENT UNKNOWN_INDEX header.network.output[1]"},
      {"RepeatedOutputIndex", [](H* h) { h->mutable_network()->set_output(1, "a"); },
       "INVALID_ARGUMENT DUPLICATE_OUTPUT header.network.output[1]"},
      {"SizeOfUnknownIndex", [](H* h) { (*h->mutable_network()->mutable_index_sizes())["z"] = 2; },
       "INVALID_ARGUMENT UNKNOWN_INDEX header.network.index_sizes[\"z\"]"},
      {"SizeDisagrees", [](H* h) { (*h->mutable_network()->mutable_index_sizes())["b"] = 3; },
       "INVALID_ARGUMENT SHAPE_MISMATCH header.network.operands[0].spec.shape[1]"},
      {"EmptyIndexName", [](H* h) { Operand(h, 0)->set_indices(0, ""); },
       "INVALID_ARGUMENT BAD_EXPRESSION header.network.operands[0].indices[0]"},
      {"LongIndexName", [](H* h) { Operand(h, 0)->set_indices(0, std::string(1025, 'x')); },
       "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT header.network.operands[0].indices"},
      {"TooManyAxes",
       [](H* h) {
         for (int i = 0; i < 1025; ++i) Operand(h, 0)->add_indices("a");
       },
       "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT header.network.operands[0].indices"},
      {"UnknownHandle",
       [](H* h) {
         Operand(h, 1)->clear_inline_data();
         Operand(h, 1)->set_handle("tensors/" + std::string(64, '0'));
       },
       "NOT_FOUND NOT_FOUND header.network.operands[1].handle"},
      {"HandleAndBytes", [](H* h) { Operand(h, 1)->set_handle("tensors/00"); },
       "INVALID_ARGUMENT BAD_HEADER header.network.operands[1].inline_data"},
      {"VaryingHandle",
       [](H* h) {
         Operand(h, 1)->set_handle("tensors/00");
         Operand(h, 1)->set_varying(true);
       },
       "INVALID_ARGUMENT BAD_HEADER header.network.operands[1].varying"},
  };
}

v1::ContractionPath* LinearPath(v1::ContractHeader* header, std::vector<int64_t> step) {
  v1::ContractionPath* path = header->mutable_path()->mutable_path();
  path->set_format(v1::PATH_FORMAT_LINEAR);
  path->clear_steps();
  path->add_steps()->mutable_operands()->Assign(step.begin(), step.end());
  return path;
}

std::vector<BadHeader> BadPlans() {
  using H = v1::ContractHeader;
  return {
      {"PathWithoutPath", [](H* h) { h->mutable_path()->add_sliced_indices("b"); },
       "INVALID_ARGUMENT MISSING_FIELD header.path.path"},
      {"PathWithoutFormat",
       [](H* h) {
         LinearPath(h, {0, 1})->clear_format();
       },
       "INVALID_ARGUMENT MISSING_FIELD header.path.path.format"},
      {"PathOfUnknownFormat",
       [](H* h) {
         LinearPath(h, {0, 1})->set_format(static_cast<v1::PathFormat>(9));
       },
       "INVALID_ARGUMENT MISSING_FIELD header.path.path.format"},
      {"PathNamesUnknownOperand",
       [](H* h) {
         LinearPath(h, {0, 2});
       },
       "INVALID_ARGUMENT BAD_PATH header.path.path.steps[0]"},
      {"PathRepeatsAnOperand",
       [](H* h) {
         LinearPath(h, {0, 0});
       },
       "INVALID_ARGUMENT BAD_PATH header.path.path.steps[0]"},
      {"PathIsIncomplete", [](H* h) { LinearPath(h, {0}); },
       "INVALID_ARGUMENT BAD_PATH header.path.path.steps"},
      {"UnknownSlice",
       [](H* h) {
         LinearPath(h, {0, 1});
         h->mutable_path()->add_sliced_indices("z");
       },
       "INVALID_ARGUMENT BAD_SLICE header.path.sliced_indices[0]"},
      {"RepeatedSlice",
       [](H* h) {
         LinearPath(h, {0, 1});
         h->mutable_path()->add_sliced_indices("b");
         h->mutable_path()->add_sliced_indices("b");
       },
       "INVALID_ARGUMENT BAD_SLICE header.path.sliced_indices[1]"},
      {"PlanId", [](H* h) { h->set_plan_id("plans/1"); }, "NOT_FOUND NOT_FOUND header.plan_id"},
      {"SearchObjective",
       [](H* h) { h->mutable_search()->set_objective(v1::SEARCH_OBJECTIVE_SECONDS); },
       "UNIMPLEMENTED UNSUPPORTED_BY_PROVIDER header.search.objective"},
      {"SearchObjectiveUnknown",
       [](H* h) { h->mutable_search()->set_objective(static_cast<v1::SearchObjective>(77)); },
       "INVALID_ARGUMENT BAD_PARAMETER header.search.objective"},
      {"SearchWeightNegative", [](H* h) { h->mutable_search()->set_flops_weight(-2); },
       "INVALID_ARGUMENT BAD_PARAMETER header.search.flops_weight"},
      {"SearchWeightsZero",
       [](H* h) {
         h->mutable_search()->set_flops_weight(0);
         h->mutable_search()->set_read_write_weight(0);
       },
       "INVALID_ARGUMENT BAD_PARAMETER header.search.read_write_weight"},
      {"SearchWeightOfFlops",
       [](H* h) {
         h->mutable_search()->set_objective(v1::SEARCH_OBJECTIVE_FLOPS);
         h->mutable_search()->set_flops_weight(2);
       },
       "INVALID_ARGUMENT BAD_PARAMETER header.search.flops_weight"},
      {"SearchMethodRepeated",
       [](H* h) {
         h->mutable_search()->add_methods(v1::SEARCH_METHOD_ANNEALING);
         h->mutable_search()->add_methods(v1::SEARCH_METHOD_ANNEALING);
       },
       "INVALID_ARGUMENT BAD_PARAMETER header.search.methods[1]"},
      {"SearchMethodUnknown",
       [](H* h) { h->mutable_search()->add_methods(static_cast<v1::SearchMethod>(99)); },
       "INVALID_ARGUMENT BAD_PARAMETER header.search.methods[0]"},
      {"SearchMethodUnspecified",
       [](H* h) { h->mutable_search()->add_methods(v1::SEARCH_METHOD_UNSPECIFIED); },
       "INVALID_ARGUMENT MISSING_FIELD header.search.methods[0]"},
      {"SearchTrials", [](H* h) { h->mutable_search()->set_max_trials(0); },
       "INVALID_ARGUMENT BAD_PARAMETER header.search.max_trials"},
      {"SearchTooLong", [](H* h) { h->mutable_search()->set_max_time_seconds(1e6); },
       "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT header.search.max_time_seconds"},
      {"SearchTarget", [](H* h) { h->mutable_search()->set_target_size(0); },
       "INVALID_ARGUMENT BAD_PARAMETER header.search.target_size"},
      {"SearchTargetUnreachable", [](H* h) { h->mutable_search()->set_target_size(1); },
       "RESOURCE_EXHAUSTED UNREACHABLE_TARGET header.search.target_size"},
      {"SearchTime", [](H* h) { h->mutable_search()->set_max_time_seconds(-1); },
       "INVALID_ARGUMENT BAD_PARAMETER header.search.max_time_seconds"},
      {"SearchInitialWithoutPath", [](H* h) { h->mutable_search()->mutable_initial(); },
       "INVALID_ARGUMENT MISSING_FIELD header.search.initial.path"},
  };
}

std::vector<BadHeader> BadExecutions() {
  using H = v1::ContractHeader;
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  return {
      {"UnknownProvider", [](H* h) { h->mutable_execution()->add_providers("gpu"); },
       "INVALID_ARGUMENT UNKNOWN_PROVIDER header.execution.providers[0]"},
      {"RepeatedProvider",
       [](H* h) {
         h->mutable_execution()->add_providers("cpu");
         h->mutable_execution()->add_providers("auto");
       },
       "INVALID_ARGUMENT BAD_PARAMETER header.execution.providers[1]"},
      {"Threads", [](H* h) { h->mutable_execution()->set_threads(0); },
       "INVALID_ARGUMENT BAD_PARAMETER header.execution.threads"},
      {"MemoryBudget", [](H* h) { h->mutable_execution()->set_memory_budget_bytes(0); },
       "INVALID_ARGUMENT BAD_PARAMETER header.execution.memory_budget_bytes"},
      {"MemoryBudgetTooSmall", [](H* h) { h->mutable_execution()->set_memory_budget_bytes(1); },
       "RESOURCE_EXHAUSTED EXCEEDS_MEMORY_BUDGET header.execution.memory_budget_bytes"},
      {"NormalizeElsewhere",
       [](H* h) {
         h->mutable_execution()->set_normalize(true);
         h->mutable_execution()->add_providers("fake");
       },
       "UNIMPLEMENTED UNSUPPORTED_BY_PROVIDER header.execution.normalize"},
      {"SeveralProvidersDeterministic",
       [](H* h) {
         h->mutable_execution()->add_providers("cpu");
         h->mutable_execution()->add_providers("reference");
         h->mutable_execution()->set_deterministic(true);
       },
       "UNIMPLEMENTED NOT_IMPLEMENTED header.execution.deterministic"},
      {"Assignment", [](H* h) { h->mutable_execution()->add_assignment(); },
       "UNIMPLEMENTED NOT_IMPLEMENTED header.execution.assignment"},
      {"EmptyGroupRange", [](H* h) { h->mutable_execution()->mutable_slice_groups(); },
       "INVALID_ARGUMENT BAD_SLICE header.execution.slice_groups"},
      {"GroupRangeOutside",
       [](H* h) { h->mutable_execution()->mutable_slice_groups()->set_last(2); },
       "INVALID_ARGUMENT BAD_SLICE header.execution.slice_groups"},
      {"UnknownPriority",
       [](H* h) { h->mutable_execution()->set_priority(static_cast<v1::PriorityClass>(9)); },
       "INVALID_ARGUMENT BAD_PARAMETER header.execution.priority"},
      {"ProgressInterval",
       [](H* h) { h->mutable_execution()->set_progress_interval_seconds(kNaN); },
       "INVALID_ARGUMENT BAD_PARAMETER header.execution.progress_interval_seconds"},
      {"QueueSeconds", [](H* h) { h->mutable_execution()->set_max_queue_seconds(0); },
       "INVALID_ARGUMENT BAD_PARAMETER header.execution.max_queue_seconds"},
      {"NarrowerSums",
       [](H* h) { h->mutable_execution()->set_accumulate_dtype(v1::DATA_TYPE_FLOAT32); },
       "INVALID_ARGUMENT BAD_PARAMETER header.execution.accumulate_dtype"},
      {"Fingerprint", [](H* h) { h->mutable_execution()->set_required_fingerprint("00"); },
       "FAILED_PRECONDITION FINGERPRINT_MISMATCH header.execution.required_fingerprint"},
      {"ExpectedSets", [](H* h) { h->set_expected_sets(-1); },
       "INVALID_ARGUMENT BAD_PARAMETER header.expected_sets"},
      {"ResultType", [](H* h) { h->mutable_result()->set_dtype(v1::DATA_TYPE_INT8); },
       "UNIMPLEMENTED UNSUPPORTED_DTYPE header.result.dtype"},
      {"RealResultOfComplex",
       [](H* h) {
         h->mutable_result()->set_dtype(v1::DATA_TYPE_FLOAT64);
         Operand(h, 0)->mutable_spec()->set_dtype(v1::DATA_TYPE_COMPLEX128);
         Operand(h, 0)->set_inline_data(std::string(64, '\0'));
       },
       "UNIMPLEMENTED UNSUPPORTED_DTYPE header.result.dtype"},
      {"SmallChunks", [](H* h) { h->mutable_result()->set_chunk_bytes(4095); },
       "INVALID_ARGUMENT BAD_PARAMETER header.result.chunk_bytes"},
      {"LargeChunks", [](H* h) { h->mutable_result()->set_chunk_bytes(4'193'281); },
       "INVALID_ARGUMENT BAD_PARAMETER header.result.chunk_bytes"},
      {"ReportDetail",
       [](H* h) { h->mutable_result()->set_report_detail(static_cast<v1::ReportDetail>(8)); },
       "INVALID_ARGUMENT BAD_PARAMETER header.result.report_detail"},
  };
}

std::string HeaderName(const ::testing::TestParamInfo<BadHeader>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Expression, BadHeaderTest, ::testing::ValuesIn(BadExpressions()),
                         HeaderName);
INSTANTIATE_TEST_SUITE_P(Plan, BadHeaderTest, ::testing::ValuesIn(BadPlans()), HeaderName);
INSTANTIATE_TEST_SUITE_P(Execution, BadHeaderTest, ::testing::ValuesIn(BadExecutions()),
                         HeaderName);

v1::ContractHeader EinsumProduct(const std::string& subscripts) {
  v1::ContractHeader header;
  header.mutable_einsum()->set_subscripts(subscripts);
  for (const Values& values : {kLeft, kRight}) {
    v1::Operand* operand = header.mutable_einsum()->add_operands();
    operand->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT64);
    operand->mutable_spec()->add_shape(2);
    operand->mutable_spec()->add_shape(2);
    operand->set_inline_data(Encode(v1::DATA_TYPE_FLOAT64, values));
  }
  return header;
}

TEST(EinsumHeader, IsTheSameAsANetwork) {
  for (const char* text : {"ab,bc->ac", "ab,bc", " \xce\xb1\xce\xb2 , \xce\xb2\xce\xb3 "}) {
    const Answer answer = Contract(&Server(), EinsumProduct(text));
    ASSERT_TRUE(answer.status.ok()) << text << Summary(answer.status);
    EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, answer.results[0].bytes), kProduct) << text;
  }
}

TEST(EinsumHeader, ErrorsNameTheText) {
  const auto refusal = [](const v1::ContractHeader& header) {
    return Summary(Contract(&Server(), header).status);
  };
  EXPECT_EQ(refusal(EinsumProduct("ab,bc->ac->")),
            "INVALID_ARGUMENT BAD_EXPRESSION header.einsum.subscripts");
  EXPECT_EQ(refusal(EinsumProduct("ab,...c->ac")),
            "INVALID_ARGUMENT BAD_EXPRESSION header.einsum.subscripts");
  EXPECT_EQ(refusal(EinsumProduct("ab,bc->az")),
            "INVALID_ARGUMENT UNKNOWN_INDEX header.einsum.subscripts");
  EXPECT_EQ(refusal(EinsumProduct("ab,bc,cd->ad")),
            "INVALID_ARGUMENT BAD_EXPRESSION header.einsum.operands");
  EXPECT_EQ(refusal(EinsumProduct("ab,bcd->ac")),
            "INVALID_ARGUMENT SHAPE_MISMATCH header.einsum.operands[1].spec.shape");
  v1::ContractHeader header = EinsumProduct("ab,bc->ac");
  header.mutable_einsum()->mutable_operands(1)->add_indices("b");
  EXPECT_EQ(refusal(header), "INVALID_ARGUMENT BAD_HEADER header.einsum.operands[1].indices");
  header = EinsumProduct("ab,bc->ac");
  (*header.mutable_einsum()->mutable_index_sizes())["z"] = 1;
  EXPECT_EQ(refusal(header), "INVALID_ARGUMENT UNKNOWN_INDEX header.einsum.index_sizes[\"z\"]");
}

TEST(ResultType, RoundsOnceAtTheEnd) {
  v1::ContractHeader header = MatrixProduct();
  const double third = 1.0 / 3.0;
  Operand(&header, 0)->set_inline_data(Encode(v1::DATA_TYPE_FLOAT64, {third, third, 3, 4}));
  header.mutable_result()->set_dtype(v1::DATA_TYPE_FLOAT32);
  const Answer answer = Contract(&Server(), header);
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(answer.results[0].spec.dtype(), v1::DATA_TYPE_FLOAT32);
  EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT32, answer.results[0].bytes)[0],
            static_cast<double>(static_cast<float>(third * 5 + third * 7)));
}

TEST(ResultType, WiderAndComplex) {
  for (const auto dtype :
       {v1::DATA_TYPE_FLOAT64, v1::DATA_TYPE_COMPLEX64, v1::DATA_TYPE_COMPLEX128}) {
    v1::ContractHeader header;
    AddOperand(&header, {"a"}, v1::DATA_TYPE_FLOAT32, {3}, {1, 2, 3});
    SetOutput(&header, {"a"});
    header.mutable_result()->set_dtype(dtype);
    const Answer answer = Contract(&Server(), header);
    ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
    EXPECT_EQ(Decode(dtype, answer.results[0].bytes), (Values{1, 2, 3}));
  }
}

// 2^24 + 1 - 2^24 is 0 in float32 and 1 in float64.
TEST(AccumulateType, SumsInDouble) {
  v1::ContractHeader header;
  AddOperand(&header, {"i"}, v1::DATA_TYPE_FLOAT32, {3}, {16777216, 1, -16777216});
  AddOperand(&header, {"i"}, v1::DATA_TYPE_FLOAT32, {3}, {1, 1, 1});
  SetOutput(&header, {});
  header.mutable_execution()->set_accumulate_dtype(v1::DATA_TYPE_FLOAT64);
  const Answer answer = Contract(&Server(), header);
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(answer.results[0].spec.dtype(), v1::DATA_TYPE_FLOAT32);
  EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT32, answer.results[0].bytes), Values{1});
}

TEST(Handles, OperandsFromTheStore) {
  auto tensor = Tensor::Allocate({DType::kFloat64, {2, 2}});
  ASSERT_TRUE(tensor.ok());
  for (size_t i = 0; i < 4; ++i) tensor->buffer.as<double>()[i] = kRight[i].real();
  bool created = false;
  const auto stored = Server().state().store->Put(ContentStore::Kind::kTensor, "",
                                                  *std::move(tensor), {}, &created);
  ASSERT_TRUE(stored.ok()) << stored.status();
  v1::ContractHeader header = MatrixProduct();
  Operand(&header, 1)->clear_inline_data();
  Operand(&header, 1)->clear_spec();
  Operand(&header, 1)->set_handle((*stored)->handle);
  Answer answer = Contract(&Server(), header);
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_TRUE(answer.single);
  EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, answer.results[0].bytes), kProduct);

  // With a complex partner it is converted.
  Operand(&header, 0)->mutable_spec()->set_dtype(v1::DATA_TYPE_COMPLEX64);
  Operand(&header, 0)->set_inline_data(Encode(v1::DATA_TYPE_COMPLEX64, kLeft));
  answer = Contract(&Server(), header);
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(Decode(v1::DATA_TYPE_COMPLEX128, answer.results[0].bytes), kProduct);

  Operand(&header, 1)->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT64);
  Operand(&header, 1)->mutable_spec()->add_shape(4);
  EXPECT_EQ(Summary(Contract(&Server(), header).status),
            "INVALID_ARGUMENT SHAPE_MISMATCH header.network.operands[1].spec");
}

// Groups of a sliced sum add up to the whole.
TEST(SliceGroups, PartialSumsAddUp) {
  v1::ContractHeader header;
  AddOperand(&header, {"i", "a"}, v1::DATA_TYPE_FLOAT64, {4, 1}, {1, 2, 3, 4});
  AddOperand(&header, {"i"}, v1::DATA_TYPE_FLOAT64, {4}, {1, 10, 100, 1000});
  SetOutput(&header, {"a"});
  LinearPath(&header, {0, 1});
  header.mutable_path()->add_sliced_indices("i");
  const Answer whole = Contract(&Server(), header);
  ASSERT_TRUE(whole.status.ok()) << Summary(whole.status);
  EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, whole.results[0].bytes), Values{4321});
  const int64_t groups = whole.report->plan().slice_groups();
  ASSERT_GE(groups, 2);
  std::complex<double> sum = 0;
  for (int64_t group = 0; group < groups; ++group) {
    header.mutable_execution()->mutable_slice_groups()->set_first(group);
    header.mutable_execution()->mutable_slice_groups()->set_last(group + 1);
    const Answer part = Contract(&Server(), header);
    ASSERT_TRUE(part.status.ok()) << Summary(part.status);
    EXPECT_EQ(part.report->slice_groups(), 1);
    sum += Decode(v1::DATA_TYPE_FLOAT64, part.results[0].bytes)[0];
  }
  EXPECT_EQ(sum, 4321.0);
}

TEST(Fingerprint, MayBeDemanded) {
  v1::ContractHeader header = MatrixProduct();
  const std::string fingerprint = Contract(&Server(), header).report->plan().program_fingerprint();
  EXPECT_FALSE(fingerprint.empty());
  header.mutable_execution()->set_required_fingerprint(fingerprint);
  EXPECT_TRUE(Contract(&Server(), header).status.ok());
  header.mutable_execution()->set_required_fingerprint("other");
  CallError error = ErrorOf(Contract(&Server(), header).status);
  EXPECT_EQ(error.metadata["required"], "other");
  EXPECT_EQ(error.metadata["actual"], fingerprint);
}

}  // namespace
}  // namespace tenon::server
