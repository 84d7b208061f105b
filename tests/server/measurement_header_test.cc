// Everything that a header can be refused for, and what `accepted` tells.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>

#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

using Change = std::function<void(v1::MeasureHeader*)>;

struct Refused {
  const char* name;
  Change change;
  const char* summary;  // code, reason, field
};

class RefusedHeaderTest : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedHeaderTest, EndsTheCallBeforeAnythingIsSent) {
  TestServer server;
  v1::MeasureHeader header = Header(MakeMatrix(12, 3, 1), {"tnc", "stress"}, 4);
  GetParam().change(&header);
  MeasureClient client(&server);
  client.Send(header);
  EXPECT_TRUE(client.ReadRest().empty());
  EXPECT_EQ(Summary(client.Finish()), GetParam().summary);
  EXPECT_TRUE(server.AllReleased());
}

v1::MeasureExecution* Execution(v1::MeasureHeader* header) { return header->mutable_execution(); }

const Refused kSpecs[] = {
    {"UnknownMeasure", [](auto* h) { h->add_specs()->set_id("tnt"); },
     "INVALID_ARGUMENT UNKNOWN_MEASURE header.specs[2].id"},
    {"CaseCounts", [](auto* h) { h->add_specs()->set_id("TNC"); },
     "INVALID_ARGUMENT UNKNOWN_MEASURE header.specs[2].id"},
    {"NoId", [](auto* h) { h->add_specs(); }, "INVALID_ARGUMENT MISSING_FIELD header.specs[2].id"},
    {"ConditionNotMet",
     [](auto* h) {
       h->add_specs()->set_id("gi");
       h->mutable_specs(2)->mutable_gap_index()->set_minkowski_p(3);
     },
     "INVALID_ARGUMENT BAD_PARAMETER header.specs[2].gap_index.minkowski_p"},
    {"MatrixUnknown",
     [](auto* h) {
       h->add_specs()->set_id("gi");
       h->mutable_specs(2)->mutable_gap_index()->set_metric(v1::ROW_METRIC_PRECOMPUTED);
       h->mutable_specs(2)->mutable_gap_index()->set_precomputed_handle("datasets/none");
     },
     "NOT_FOUND NOT_FOUND header.specs[2].gap_index.precomputed_handle"},
    {"ParametersOfAnother",
     [](auto* h) { h->mutable_specs(1)->mutable_kl_divergence()->set_sigma(1); },
     "INVALID_ARGUMENT BAD_PARAMETER header.specs[1].kl_divergence"},
    {"KZero", [](auto* h) { h->mutable_specs(0)->mutable_trustworthiness_continuity()->set_k(0); },
     "INVALID_ARGUMENT K_OUT_OF_RANGE header.specs[0].trustworthiness_continuity.k"},
    {"KHalf", [](auto* h) { h->mutable_specs(0)->mutable_trustworthiness_continuity()->set_k(6); },
     "INVALID_ARGUMENT K_OUT_OF_RANGE header.specs[0].trustworthiness_continuity.k"},
    {"KByDefault", [](auto* h) { h->mutable_specs(0)->clear_parameters(); },
     "INVALID_ARGUMENT K_OUT_OF_RANGE header.specs[0].trustworthiness_continuity.k"},
    {"SigmaZero",
     [](auto* h) {
       h->mutable_specs(1)->set_id("kl_div");
       h->mutable_specs(1)->mutable_kl_divergence()->set_sigma(0);
     },
     "INVALID_ARGUMENT BAD_PARAMETER header.specs[1].kl_divergence.sigma"},
    {"SigmaNotANumber",
     [](auto* h) {
       h->mutable_specs(1)->set_id("dtm");
       h->mutable_specs(1)->mutable_distance_to_measure()->set_sigma(
           std::numeric_limits<double>::quiet_NaN());
     },
     "INVALID_ARGUMENT BAD_PARAMETER header.specs[1].distance_to_measure.sigma"},
    {"TooMany",
     [](auto* h) {
       for (int i = 0; i < 1000; ++i) h->add_specs()->set_id("stress");
     },
     "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT header.specs"},
};

const Refused kDatasets[] = {
    {"NoDataset", [](auto* h) { h->clear_dataset(); },
     "INVALID_ARGUMENT MISSING_FIELD header.dataset"},
    {"NoType",
     [](auto* h) {
       h->mutable_dataset_input()->mutable_spec()->set_dtype(v1::DATA_TYPE_UNSPECIFIED);
     },
     "INVALID_ARGUMENT MISSING_FIELD header.dataset_input.spec.dtype"},
    {"UnknownType",
     [](auto* h) {
       h->mutable_dataset_input()->mutable_spec()->set_dtype(static_cast<v1::DataType>(99));
     },
     "INVALID_ARGUMENT BAD_PARAMETER header.dataset_input.spec.dtype"},
    {"Complex",
     [](auto* h) {
       h->mutable_dataset_input()->mutable_spec()->set_dtype(v1::DATA_TYPE_COMPLEX64);
     },
     "UNIMPLEMENTED UNSUPPORTED_DTYPE header.dataset_input.spec.dtype"},
    {"RankThree", [](auto* h) { h->mutable_dataset_input()->mutable_spec()->add_shape(1); },
     "INVALID_ARGUMENT SHAPE_MISMATCH header.dataset_input.spec.shape"},
    {"NoColumns", [](auto* h) { h->mutable_dataset_input()->mutable_spec()->set_shape(1, 0); },
     "INVALID_ARGUMENT SHAPE_MISMATCH header.dataset_input.spec.shape[1]"},
    {"NegativeRows", [](auto* h) { h->mutable_dataset_input()->mutable_spec()->set_shape(0, -1); },
     "INVALID_ARGUMENT SHAPE_MISMATCH header.dataset_input.spec.shape[0]"},
    {"OneRow", [](auto* h) { h->mutable_dataset_input()->mutable_spec()->set_shape(0, 1); },
     "INVALID_ARGUMENT TOO_FEW_ROWS header.dataset_input.spec.shape[0]"},
    {"Overflow",
     [](auto* h) {
       auto* spec = h->mutable_dataset_input()->mutable_spec();
       spec->set_shape(0, int64_t{1} << 40);
       spec->set_shape(1, int64_t{1} << 40);
     },
     "INVALID_ARGUMENT OVERFLOW header.dataset_input.spec.shape"},
    {"TooLargeForTheServer",
     [](auto* h) {
       auto* input = h->mutable_dataset_input();
       input->mutable_spec()->set_shape(0, int64_t{1} << 30);
       input->clear_inline_data();
     },
     "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT "},
    {"InlineTooShort",
     [](auto* h) { h->mutable_dataset_input()->mutable_inline_data()->pop_back(); },
     "INVALID_ARGUMENT SHAPE_MISMATCH header.dataset_input.inline_data"},
    {"InlineTooLong",
     [](auto* h) { h->mutable_dataset_input()->set_inline_data(std::string(65536, 'x')); },
     "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT header.dataset_input.inline_data"},
    {"UnknownHandle", [](auto* h) { h->set_dataset_handle("datasets/none"); },
     "NOT_FOUND NOT_FOUND header.dataset_handle"},
};

const Refused kLabels[] = {
    {"Required", [](auto* h) { AddSpec("nh", 3, h); },
     "INVALID_ARGUMENT LABELS_REQUIRED header.labels"},
    {"TooFew",
     [](auto* h) {
       AddSpec("nh", 3, h);
       h->mutable_labels()->mutable_int64s()->add_values(1);
     },
     "INVALID_ARGUMENT BAD_LABELS header.labels"},
    {"TooMany",
     [](auto* h) {
       AddSpec("nh", 3, h);
       for (int i = 0; i < 13; ++i) h->mutable_labels()->mutable_strings()->add_values("a");
     },
     "INVALID_ARGUMENT BAD_LABELS header.labels"},
    {"NotFinite",
     [](auto* h) {
       AddSpec("nh", 3, h);
       for (int i = 0; i < 12; ++i) {
         h->mutable_labels()->mutable_doubles()->add_values(
             i == 7 ? std::numeric_limits<double>::infinity() : i);
       }
     },
     "INVALID_ARGUMENT BAD_LABELS header.labels"},
    {"NoValues",
     [](auto* h) {
       AddSpec("nh", 3, h);
       h->mutable_labels();
     },
     "INVALID_ARGUMENT MISSING_FIELD header.labels"},
    {"HereAndAnnounced",
     [](auto* h) {
       h->mutable_labels()->mutable_int64s()->add_values(1);
       h->set_labels_follow(true);
     },
     "INVALID_ARGUMENT BAD_HEADER header.labels"},
};

const Refused kExecution[] = {
    {"UnknownProvider", [](auto* h) { Execution(h)->set_provider("cuda:7"); },
     "INVALID_ARGUMENT UNKNOWN_PROVIDER header.execution.provider"},
    {"ComputeDtype", [](auto* h) { Execution(h)->set_compute_dtype(v1::DATA_TYPE_INT32); },
     "INVALID_ARGUMENT BAD_PARAMETER header.execution.compute_dtype"},
    {"NoMemory", [](auto* h) { Execution(h)->set_memory_budget_bytes(0); },
     "INVALID_ARGUMENT BAD_PARAMETER header.execution.memory_budget_bytes"},
    {"LittleMemory", [](auto* h) { Execution(h)->set_memory_budget_bytes(300); },
     "RESOURCE_EXHAUSTED EXCEEDS_MEMORY_BUDGET header.execution.memory_budget_bytes"},
    {"InFlightZero", [](auto* h) { Execution(h)->set_in_flight(0); },
     "INVALID_ARGUMENT BAD_PARAMETER header.execution.in_flight"},
    {"ThreadsNegative", [](auto* h) { Execution(h)->set_threads(-2); },
     "INVALID_ARGUMENT BAD_PARAMETER header.execution.threads"},
    {"BatchZero", [](auto* h) { Execution(h)->set_batch_size(0); },
     "INVALID_ARGUMENT BAD_PARAMETER header.execution.batch_size"},
    {"ProgressNever", [](auto* h) { Execution(h)->set_progress_interval_seconds(0); },
     "INVALID_ARGUMENT BAD_PARAMETER header.execution.progress_interval_seconds"},
    {"QueueNever", [](auto* h) { Execution(h)->set_max_queue_seconds(-1); },
     "INVALID_ARGUMENT BAD_PARAMETER header.execution.max_queue_seconds"},
    {"OnErrorUnknown", [](auto* h) { Execution(h)->set_on_error(static_cast<v1::OnError>(17)); },
     "INVALID_ARGUMENT BAD_PARAMETER header.execution.on_error"},
    {"PriorityUnknown",
     [](auto* h) { Execution(h)->set_priority(static_cast<v1::PriorityClass>(17)); },
     "INVALID_ARGUMENT BAD_PARAMETER header.execution.priority"},
    {"ExternalWithoutFiles",
     [](auto* h) { Execution(h)->set_pair_order_strategy(v1::PAIR_ORDER_STRATEGY_EXTERNAL); },
     "INVALID_ARGUMENT BAD_PARAMETER header.execution.pair_order_strategy"},
    {"DirectoryWithoutFiles", [](auto* h) { Execution(h)->set_temporary_directory("x"); },
     "INVALID_ARGUMENT BAD_PARAMETER header.execution.temporary_directory"},
    {"FilesAreNotOffered", [](auto* h) { Execution(h)->set_temporary_budget_bytes(1 << 20); },
     "UNIMPLEMENTED NOT_IMPLEMENTED header.execution.temporary_budget_bytes"},
    {"GeodesicNeedsTwoColumns",
     [](auto* h) {
       *h->mutable_dataset_input() = InlineDataset(MakeMatrix(12, 1, 1));
       Execution(h)->set_geodesic(true);
     },
     "INVALID_ARGUMENT BAD_PARAMETER header.execution.geodesic"},
};

const Refused kRest[] = {
    {"RequestId", [](auto* h) { h->set_request_id(std::string(129, 'x')); },
     "INVALID_ARGUMENT BAD_PARAMETER header.request_id"},
    {"ChunksTooSmall", [](auto* h) { h->mutable_result()->set_chunk_bytes(4095); },
     "INVALID_ARGUMENT BAD_PARAMETER header.result.chunk_bytes"},
    {"ChunksTooLarge", [](auto* h) { h->mutable_result()->set_chunk_bytes(4193281); },
     "INVALID_ARGUMENT BAD_PARAMETER header.result.chunk_bytes"},
    {"DetailUnknown",
     [](auto* h) { h->mutable_result()->set_report_detail(static_cast<v1::ReportDetail>(9)); },
     "INVALID_ARGUMENT BAD_PARAMETER header.result.report_detail"},
    {"ServerFiles", [](auto* h) { h->mutable_server_files()->set_glob("*.npy"); },
     "UNIMPLEMENTED NOT_IMPLEMENTED header.server_files"},
    {"InlineIndex",
     [](auto* h) {
       *h->mutable_inline_projections()->add_projections() =
           InlineProjection(1, MakeMatrix(12, 2, 2));
     },
     "INVALID_ARGUMENT FRAME_ORDER header.inline_projections.projections[0].index"},
    {"InlineWithoutBytes", [](auto* h) { h->mutable_inline_projections()->add_projections(); },
     "INVALID_ARGUMENT MISSING_FIELD header.inline_projections.projections[0].inline_data"},
};

std::string NameOf(const ::testing::TestParamInfo<Refused>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Specs, RefusedHeaderTest, ::testing::ValuesIn(kSpecs), NameOf);
INSTANTIATE_TEST_SUITE_P(Datasets, RefusedHeaderTest, ::testing::ValuesIn(kDatasets), NameOf);
INSTANTIATE_TEST_SUITE_P(Labels, RefusedHeaderTest, ::testing::ValuesIn(kLabels), NameOf);
INSTANTIATE_TEST_SUITE_P(Execution, RefusedHeaderTest, ::testing::ValuesIn(kExecution), NameOf);
INSTANTIATE_TEST_SUITE_P(Rest, RefusedHeaderTest, ::testing::ValuesIn(kRest), NameOf);

TEST(HeaderTest, NothingIsAdmittedWhileStartingOrDraining) {
  TestServer server;
  server.state().lifecycle.MoveTo(ServerPhase::kLameDuck);
  server.state().lifecycle.MoveTo(ServerPhase::kDraining);
  MeasureClient client(&server);
  client.Send(Header(MakeMatrix(12, 3, 1), {"stress"}));
  EXPECT_TRUE(client.ReadAll().empty());
  EXPECT_EQ(Summary(client.Finish()), "UNAVAILABLE DRAINING ");
}

TEST(HeaderTest, LabelsThatNoMeasureNeedsAreNotLookedAt) {
  TestServer server;
  v1::MeasureHeader header = Header(MakeMatrix(12, 3, 1), {"stress"});
  header.mutable_labels()->mutable_doubles()->add_values(std::numeric_limits<double>::quiet_NaN());
  MeasureClient client(&server);
  client.Send(header);
  EXPECT_EQ(client.ReadAll().size(), 2u);  // accepted, summary
  EXPECT_EQ(Summary(client.Finish()), "OK");
}

TEST(HeaderTest, AcceptedTellsThePlanBeforeAnyChunk) {
  TestServer server;
  const Matrix dataset = MakeMatrix(40, 3, 1);
  v1::MeasureHeader header = Header(dataset, {"tnc", "srho"}, 5);
  header.mutable_dataset_input()->clear_inline_data();
  header.set_request_id("the request");
  header.mutable_execution()->set_in_flight(3);
  header.mutable_execution()->set_memory_budget_bytes(int64_t{8} << 20);
  MeasureClient client(&server);
  client.Send(header);
  const v1::MeasureResponse first = client.Read();
  ASSERT_TRUE(first.has_accepted());
  const v1::MeasureAccepted& accepted = first.accepted();
  EXPECT_EQ(accepted.request_id(), "the request");
  EXPECT_EQ(accepted.memory().in_flight(), 3);
  EXPECT_EQ(accepted.memory().in_flight_limit(), v1::IN_FLIGHT_LIMIT_REQUEST);
  EXPECT_EQ(accepted.memory().input_bytes(), 40 * 3 * 8);
  EXPECT_EQ(accepted.memory().total_bytes(), accepted.planned_peak_bytes());
  EXPECT_LE(accepted.planned_peak_bytes(), int64_t{8} << 20);
  EXPECT_GT(accepted.memory().original_bytes(), 0);
  EXPECT_GT(accepted.memory().per_projection_bytes(), 40 * 2 * 8);
  EXPECT_EQ(server.state().budget.reserved_bytes(), accepted.planned_peak_bytes());
  EXPECT_EQ(accepted.granted().max_chunk_bytes(), (4 << 20) - 1024);
  EXPECT_EQ(accepted.granted().priority(), v1::PRIORITY_CLASS_DEFAULT);
  EXPECT_EQ(accepted.dataset_spec().shape(1), 3);
  client.Cancel();
  client.Finish();
  EXPECT_TRUE(server.AllReleased());
}

TEST(HeaderTest, TheTermsOfTheMemoryPlanAddUp) {
  TestServer server;
  int with_working_space = 0;
  for (const char* id : {"stress", "srho", "tnc", "mrre", "lcmc"}) {
    // Of one column: a projection takes less than the original side.
    v1::MeasureHeader header = Header(MakeMatrix(150, 40, 1), {id}, 5);
    header.mutable_execution()->set_in_flight(1);
    header.mutable_inline_projections();
    MeasureClient client(&server);
    client.Send(header);
    const v1::MeasureResponse first = client.Read();
    const v1::MeasureMemoryPlan& plan =
        first.has_single() ? first.single().accepted().memory() : first.accepted().memory();
    EXPECT_GT(plan.total_bytes(), 0) << id;
    EXPECT_EQ(plan.total_bytes(), plan.input_bytes() + plan.original_bytes() +
                                      plan.original_working_bytes() +
                                      plan.in_flight() * plan.per_projection_bytes())
        << id;
    with_working_space += plan.original_working_bytes() > 0 ? 1 : 0;
    client.ReadAll();
    client.Finish();
  }
  std::printf("%d plans with working space of the original side\n", with_working_space);
}

TEST(HeaderTest, ABudgetOneByteTooSmallIsRefusedAndTheToldOneTaken) {
  TestServer server;
  v1::MeasureHeader header = Header(MakeMatrix(60, 3, 1), {"srho", "tnc"}, 5);
  const auto try_with = [&](int64_t bytes) {
    header.mutable_execution()->set_memory_budget_bytes(bytes);
    MeasureClient client(&server);
    client.Send(header);
    const auto frames = client.ReadAll();
    const grpc::Status status = client.Finish();
    if (status.ok()) {
      EXPECT_LE(frames.at(0).accepted().planned_peak_bytes(), bytes);
    }
    return ErrorOf(status);
  };
  const CallError first = try_with(1000);
  ASSERT_EQ(first.reason, "EXCEEDS_MEMORY_BUDGET");
  const int64_t smallest = std::stoll(first.metadata.at("smallest_budget_bytes"));
  EXPECT_EQ(try_with(smallest - 1).reason, "EXCEEDS_MEMORY_BUDGET");
  EXPECT_EQ(try_with(smallest).code, grpc::StatusCode::OK);
}

TEST(HeaderTest, AFullServerSaysOverloaded) {
  TestServer server({.budget_bytes = int64_t{1} << 20});
  server.state().settings.max_queue_wait = std::chrono::milliseconds(0);
  auto held = server.state().budget.Reserve((int64_t{1} << 20) - 4000);
  ASSERT_TRUE(held.ok());
  MeasureClient client(&server);
  client.Send(Header(MakeMatrix(60, 3, 1), {"srho"}));
  EXPECT_TRUE(client.ReadAll().empty());
  const CallError error = ErrorOf(client.Finish());
  EXPECT_EQ(error.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(error.reason, "OVERLOADED");
  EXPECT_EQ(error.metadata.count("retry_delay_seconds"), 1u);
}

TEST(ListMeasuresTest, ListsAllInOrderWithTypedParameters) {
  TestServer server;
  grpc::ClientContext context;
  v1::ListMeasuresResponse response;
  ASSERT_TRUE(server.measurement().ListMeasures(&context, {}, &response).ok());
  ASSERT_EQ(response.measures_size(), 22);
  const v1::MeasureInfo& tnc = response.measures(0);
  EXPECT_EQ(tnc.id(), "trustworthiness_continuity");
  EXPECT_EQ(tnc.alias(), "tnc");
  ASSERT_EQ(tnc.parameters_size(), 1);
  EXPECT_EQ(tnc.parameters(0).name(), "k");
  EXPECT_EQ(tnc.parameters(0).type(), v1::PARAMETER_TYPE_INTEGER);
  EXPECT_EQ(tnc.parameters(0).default_value(), "20");
  ASSERT_EQ(tnc.outputs_size(), 2);
  EXPECT_EQ(tnc.outputs(0).best(), 1);
  EXPECT_EQ(tnc.outputs(0).direction(), v1::SCORE_DIRECTION_HIGHER);
  EXPECT_EQ(tnc.local_outputs(1).key(), "local_continuity");
  EXPECT_EQ(tnc.determinism(), v1::MEASURE_DETERMINISM_INTEGER);
  EXPECT_TRUE(tnc.available());
  const v1::MeasureInfo& snc = response.measures(7);
  EXPECT_EQ(snc.outputs(0).minimum(), 0);
  EXPECT_EQ(snc.local_outputs(0).key(), "local_steadiness");
  EXPECT_FALSE(snc.local_outputs(0).has_minimum());
  EXPECT_EQ(snc.local_outputs(0).maximum(), 1);
  EXPECT_EQ(snc.local_outputs(0).direction(), v1::SCORE_DIRECTION_HIGHER);
  EXPECT_EQ(response.measures(13).id(), "stress");
  EXPECT_EQ(response.measures(13).outputs(0).direction(), v1::SCORE_DIRECTION_LOWER);
  const v1::MeasureInfo& last = response.measures(21);
  EXPECT_EQ(last.alias(), "gi");
  EXPECT_EQ(last.parameters(0).type(), v1::PARAMETER_TYPE_ENUM);
  EXPECT_EQ(last.parameters(0).allowed_aliases(0), "euclidean");
  EXPECT_EQ(last.required_columns(), 2);
}

TEST(ListMeasuresTest, EveryMeasureAndParameterIsDescribed) {
  TestServer server;
  grpc::ClientContext context;
  v1::ListMeasuresResponse response;
  ASSERT_TRUE(server.measurement().ListMeasures(&context, {}, &response).ok());
  int conditions = 0, geodesic = 0;
  for (const v1::MeasureInfo& measure : response.measures()) {
    SCOPED_TRACE(measure.alias());
    EXPECT_TRUE(measure.available());
    EXPECT_FALSE(measure.title().empty());
    EXPECT_FALSE(measure.description().empty());
    EXPECT_FALSE(measure.cost().empty());
    EXPECT_GT(measure.outputs_size(), 0);
    EXPECT_GE(measure.min_rows(), 2);
    EXPECT_EQ(measure.min_classes() > 0, measure.needs_labels());
    EXPECT_FALSE(measure.references(0).empty());
    geodesic += measure.supports_geodesic();
    for (const v1::ParameterInfo& parameter : measure.parameters()) {
      SCOPED_TRACE(parameter.name());
      conditions += !parameter.condition().empty();
      if (parameter.type() == v1::PARAMETER_TYPE_MESSAGE) continue;
      EXPECT_FALSE(parameter.description().empty());
      EXPECT_FALSE(parameter.range().empty());
      const bool choice = parameter.type() == v1::PARAMETER_TYPE_ENUM;
      EXPECT_EQ(parameter.allowed_values_size() > 0, choice);
      EXPECT_EQ(parameter.allowed_values_size(), parameter.allowed_aliases_size());
    }
  }
  EXPECT_GE(conditions, 10);
  EXPECT_EQ(geodesic, 15);  // all but gi, and what looks at labels and the projection only
}

TEST(ListMeasuresTest, ConditionsSayWithWhat) {
  TestServer server;
  v1::ListMeasuresRequest request;
  v1::ListMeasuresResponse response;
  request.set_id("c_evm");
  grpc::ClientContext context;
  ASSERT_TRUE(server.measurement().ListMeasures(&context, request, &response).ok());
  bool found = false;
  for (const v1::ParameterInfo& parameter : response.measures(0).parameters()) {
    if (parameter.name() == "dbscan.metric") {
      for (const auto& alias : parameter.allowed_aliases()) EXPECT_NE(alias, "precomputed");
    }
    if (parameter.name() != "kmeans.n_init") continue;
    found = true;
    EXPECT_EQ(parameter.condition(), "only with clustering = kmeans");
  }
  EXPECT_TRUE(found);
}

TEST(ListMeasuresTest, OneByAliasOrUnknown) {
  TestServer server;
  v1::ListMeasuresRequest request;
  v1::ListMeasuresResponse response;
  request.set_id("srho");
  grpc::ClientContext context;
  ASSERT_TRUE(server.measurement().ListMeasures(&context, request, &response).ok());
  ASSERT_EQ(response.measures_size(), 1);
  EXPECT_EQ(response.measures(0).id(), "spearman_rho");
  request.set_id("nothing");
  grpc::ClientContext second;
  EXPECT_EQ(Summary(server.measurement().ListMeasures(&second, request, &response)),
            "INVALID_ARGUMENT UNKNOWN_MEASURE id");
}

}  // namespace
}  // namespace tenon::server
