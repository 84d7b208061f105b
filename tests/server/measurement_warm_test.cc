// What is built from a stored data set is there for the calls that follow.

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

constexpr int64_t kRows = 60;

std::string Store(TestServer* server, const Matrix& matrix) {
  grpc::ClientContext context;
  v1::CreateDatasetResponse response;
  const auto writer = server->datasets().CreateDataset(&context, &response);
  v1::CreateDatasetRequest frame;
  SetSpec(matrix.rows, matrix.columns, frame.mutable_header()->mutable_spec());
  frame.mutable_header()->set_inline_data(matrix.bytes());
  writer->Write(frame);
  writer->WritesDone();
  EXPECT_EQ(Summary(writer->Finish()), "OK");
  return response.dataset().name();
}

v1::Dataset Get(TestServer* server, const std::string& name) {
  grpc::ClientContext context;
  v1::GetDatasetRequest request;
  v1::GetDatasetResponse response;
  request.set_name(name);
  EXPECT_EQ(Summary(server->datasets().GetDataset(&context, request, &response)), "OK");
  return response.dataset();
}

v1::MeasureHeader HandleHeader(const std::string& handle, const std::vector<std::string>& ids) {
  v1::MeasureHeader header;
  header.set_dataset_handle(handle);
  for (const std::string& id : ids) AddSpec(id, 5, &header);
  return header;
}

struct Answer {
  v1::MeasureAccepted accepted;
  v1::MeasureScores scores;
  v1::MeasureReport report;
  std::string dataset_handle;
};

Answer Measure(TestServer* server, const v1::MeasureHeader& header, int64_t rows = kRows) {
  MeasureClient client(server);
  client.Send(header);
  const auto frames = client.Exchange({Frame(InlineProjection(0, MakeMatrix(rows, 2, 9)))});
  EXPECT_EQ(Summary(client.Finish()), "OK");
  if (frames.size() != 3) return {};
  EXPECT_TRUE(frames[1].has_scores());
  return {frames[0].accepted(), frames[1].scores(), frames[2].summary().report(),
          frames[2].summary().dataset_handle()};
}

TEST(WarmTest, ARepeatedCallBuildsNothingAndScoresTheSame) {
  TestServer server;
  const std::string handle = Store(&server, MakeMatrix(kRows, 5, 1));
  const v1::MeasureHeader header = HandleHeader(handle, {"tnc", "kl_div", "srho"});
  const Answer cold = Measure(&server, header);
  EXPECT_FALSE(cold.report.original_resources_reused());
  EXPECT_GT(cold.report.original_resource_seconds(), 0);
  ASSERT_GT(cold.report.original_resources_size(), 0);
  for (const auto& resource : cold.report.original_resources()) {
    EXPECT_TRUE(resource.built_in_run());
    EXPECT_FALSE(resource.reused());
  }
  ASSERT_TRUE(server.AllReleased());
  const int64_t kept = server.state().store->resource_bytes();
  EXPECT_EQ(kept, cold.report.original_resource_bytes());
  EXPECT_EQ(server.state().budget.reserved_bytes(),
            kept + kRows * 5 * 8 + ContentStore::kEntryBytes);

  const Answer warm = Measure(&server, header);
  EXPECT_TRUE(warm.report.original_resources_reused());
  EXPECT_EQ(warm.report.original_resource_seconds(), 0);
  EXPECT_EQ(warm.report.original_resource_bytes(), kept);
  ASSERT_EQ(warm.report.original_resources_size(), cold.report.original_resources_size());
  for (const auto& resource : warm.report.original_resources()) {
    EXPECT_FALSE(resource.built_in_run());
    EXPECT_TRUE(resource.reused());
    EXPECT_EQ(resource.build_seconds(), 0);
  }
  for (const auto& planned : warm.accepted.original_resources()) EXPECT_TRUE(planned.reused());
  EXPECT_GE(warm.accepted.memory().original_bytes(), kept);
  for (int spec = 0; spec < 3; ++spec) {
    for (const auto& [key, value] : cold.scores.specs(spec).values()) {
      EXPECT_EQ(warm.scores.specs(spec).values().at(key), value) << key;
    }
  }
  EXPECT_TRUE(server.AllReleased());
  EXPECT_EQ(server.state().store->resource_bytes(), kept);
}

TEST(WarmTest, KeepResourcesFalseLeavesNothing) {
  TestServer server;
  const std::string handle = Store(&server, MakeMatrix(kRows, 5, 1));
  v1::MeasureHeader header = HandleHeader(handle, {"tnc"});
  header.mutable_execution()->set_keep_resources(false);
  Measure(&server, header);
  EXPECT_EQ(server.state().store->resource_bytes(), 0);
  EXPECT_TRUE(server.AllReleased());
}

TEST(WarmTest, ADatasetThatIsKeptKeepsWhatWasBuilt) {
  TestServer server;
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 5, 1), {"tnc", "kl_div"}, 5);
  header.mutable_dataset_input()->set_keep(true);
  const Answer first = Measure(&server, header);
  const Answer second = Measure(&server, HandleHeader(first.dataset_handle, {"tnc", "kl_div"}));
  EXPECT_TRUE(second.report.original_resources_reused());
  EXPECT_TRUE(server.AllReleased());
}

TEST(WarmTest, TheDatasetTellsItsResourcesAndDeletionFreesThem) {
  TestServer server;
  const std::string handle = Store(&server, MakeMatrix(kRows, 5, 1));
  EXPECT_EQ(Get(&server, handle).resources_size(), 0);
  Measure(&server, HandleHeader(handle, {"tnc", "kl_div"}));
  ASSERT_TRUE(server.AllReleased());
  const v1::Dataset dataset = Get(&server, handle);
  ASSERT_GE(dataset.resources_size(), 2);
  EXPECT_EQ(dataset.active_calls(), 0);
  int64_t bytes = 0;
  std::set<v1::ResourceKind> kinds;
  for (const auto& resource : dataset.resources()) {
    bytes += resource.size_bytes();
    kinds.insert(resource.key().kind());
    EXPECT_EQ(resource.key().space(), v1::RESOURCE_SPACE_ORIGINAL);
    EXPECT_EQ(resource.provider().actual(), "cpu");
    EXPECT_EQ(resource.dtype(), v1::DATA_TYPE_FLOAT64);
    EXPECT_GT(resource.build_seconds(), 0);
  }
  EXPECT_TRUE(kinds.contains(v1::RESOURCE_KIND_NEIGHBORS));
  EXPECT_TRUE(kinds.contains(v1::RESOURCE_KIND_DENSITY));
  EXPECT_FALSE(kinds.contains(v1::RESOURCE_KIND_UNSPECIFIED));
  EXPECT_EQ(dataset.resource_bytes(), bytes);

  v1::ListDatasetsResponse list;
  grpc::ClientContext list_context;
  ASSERT_TRUE(server.datasets().ListDatasets(&list_context, {}, &list).ok());
  EXPECT_EQ(list.datasets(0).resources_size(), 0);
  EXPECT_EQ(list.datasets(0).resource_bytes(), bytes);
  EXPECT_EQ(list.total_bytes(), bytes + kRows * 5 * 8);

  v1::DeleteDatasetRequest request;
  request.set_name(handle);
  v1::DeleteDatasetResponse response;
  grpc::ClientContext context;
  ASSERT_EQ(Summary(server.datasets().DeleteDataset(&context, request, &response)), "OK");
  EXPECT_EQ(response.freed_bytes(), bytes + kRows * 5 * 8);
  EXPECT_EQ(server.state().budget.reserved_bytes(), 0);
}

TEST(WarmTest, UnderPressureResourcesGoBeforeContentsTheOldestFirst) {
  TestServer server;
  const std::string old = Store(&server, MakeMatrix(kRows, 5, 1));
  const std::string recent = Store(&server, MakeMatrix(kRows, 5, 2));
  Measure(&server, HandleHeader(old, {"tnc"}));
  Measure(&server, HandleHeader(recent, {"tnc"}));
  ASSERT_TRUE(server.AllReleased());
  const int64_t each = Get(&server, old).resource_bytes();
  ASSERT_GT(each, 0);
  const int64_t data = server.state().store->bytes();
  server.state().store->Evict(1);
  EXPECT_EQ(Get(&server, old).resource_bytes(), 0);
  EXPECT_EQ(Get(&server, recent).resource_bytes(), each);
  server.state().store->Evict(each);
  EXPECT_EQ(Get(&server, recent).resource_bytes(), 0);
  EXPECT_EQ(server.state().store->bytes(), data);
  server.state().store->Evict(1);
  EXPECT_LT(server.state().store->bytes(), data);
  EXPECT_TRUE(server.AllReleased());
}

TEST(PrecomputedTest, AStoredMatrixIsWhatTheSameDistancesAre) {
  TestServer server;
  const Matrix points = MakeMatrix(kRows, 3, 1);
  Matrix distances{kRows, kRows, {}};
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kRows; ++j) {
      double sum = 0;
      for (size_t c = 0; c < 3; ++c) {
        sum += std::abs(points.values[static_cast<size_t>(i) * 3 + c] -
                        points.values[static_cast<size_t>(j) * 3 + c]);
      }
      distances.values.push_back(sum);
    }
  }
  v1::MeasureHeader header;
  header.set_dataset_handle(Store(&server, points));
  v1::GapIndexParameters* parameters = header.add_specs()->mutable_gap_index();
  header.mutable_specs(0)->set_id("gi");
  parameters->set_metric(v1::ROW_METRIC_CITYBLOCK);
  const double wanted = Measure(&server, header).scores.specs(0).values().at("gap_index");
  const std::string matrix = Store(&server, distances);
  parameters->set_metric(v1::ROW_METRIC_PRECOMPUTED);
  parameters->set_precomputed_handle(matrix);
  EXPECT_NEAR(Measure(&server, header).scores.specs(0).values().at("gap_index"), wanted, 1e-12);

  parameters->set_precomputed_handle(header.dataset_handle());
  MeasureClient client(&server);
  client.Send(header);
  EXPECT_TRUE(client.ReadAll().empty());
  EXPECT_EQ(Summary(client.Finish()),
            "INVALID_ARGUMENT SHAPE_MISMATCH header.specs[0].gap_index.precomputed_handle");
}

TEST(FallbackTest, WhatAProviderDoesNotBuildIsBuiltByTheCpuIfAllowed) {
  TestServer server;
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 5, 1), {"tnc", "stress"}, 5);
  header.mutable_execution()->set_provider("partial");
  MeasureClient refused(&server);
  refused.Send(header);
  EXPECT_TRUE(refused.ReadAll().empty());
  EXPECT_EQ(ErrorOf(refused.Finish()).reason, "UNSUPPORTED_BY_PROVIDER");

  header.mutable_execution()->set_allow_fallback(true);
  const Answer answer = Measure(&server, header);
  ASSERT_EQ(answer.report.fallbacks_size(), 2);
  for (const auto& fallback : answer.report.fallbacks()) {
    EXPECT_EQ(fallback.requested(), "partial");
    EXPECT_EQ(fallback.actual(), "cpu");
    EXPECT_FALSE(fallback.fallback_reason().empty());
  }
  ASSERT_EQ(answer.report.providers_size(), 2);
  EXPECT_EQ(answer.report.providers(0).provider(), "partial");
  EXPECT_EQ(answer.report.providers(1).provider(), "cpu");
  EXPECT_GT(answer.report.providers(1).timing().execution_seconds(), 0);
  for (const auto& resource : answer.scores.run_info().resources()) {
    const bool pairs = resource.key().kind() == v1::RESOURCE_KIND_PAIR_STATISTICS;
    EXPECT_EQ(resource.provider().actual(), pairs ? "partial" : "cpu");
    EXPECT_EQ(resource.provider().fallback_reason().empty(), pairs);
  }
}

TEST(SkipTest, AMeasureThatFailsLeavesItsErrorInItsPlace) {
  TestServer server;
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 5, 1), {"gi", "stress", "srho"});
  header.mutable_execution()->set_on_error(v1::ON_ERROR_SKIP_MEASURE);
  MeasureClient client(&server);
  client.Send(header);
  Matrix constant{kRows, 2, std::vector<double>(kRows * 2, 1.0)};
  const auto frames = client.Exchange(
      {Frame(InlineProjection(0, constant)), Frame(InlineProjection(1, MakeMatrix(kRows, 3, 2)))});
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 4u);
  const auto& first = frames[1].scores();
  ASSERT_EQ(first.specs_size(), 3);
  EXPECT_EQ(Summary(first.specs(0).error()), "INVALID_ARGUMENT UNDEFINED_SCORE header.specs[0]");
  EXPECT_EQ(first.specs(0).id(), "gap_index");
  EXPECT_EQ(first.specs(0).values_size(), 0);
  EXPECT_EQ(first.specs(1).values().at("stress"), 1);
  EXPECT_EQ(first.specs(2).error().reason(), "UNDEFINED_SCORE");
  EXPECT_EQ(frames[2].scores().specs(0).error().field(), "header.specs[0]");  // three columns
  EXPECT_FALSE(frames[2].scores().specs(2).has_error());
  const v1::MeasureSummary& summary = frames[3].summary();
  EXPECT_EQ(summary.scored_count(), 2);
  EXPECT_EQ(summary.error_count(), 0);
  int64_t errors = 0;
  for (const auto& count : summary.report().errors()) errors += count.count();
  EXPECT_EQ(errors, 3);
}

TEST(BatchTest, ProjectionsOfOneWidthAreBuiltTogetherAndScoreTheSame) {
  TestServer server;
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 5, 1), {"tnc", "stress", "srho"}, 5);
  for (int i = 0; i < 12; ++i) {
    *header.mutable_inline_projections()->add_projections() =
        InlineProjection(i, MakeMatrix(kRows, i == 5 ? 3 : 2, static_cast<uint32_t>(i)));
  }
  header.mutable_execution()->set_in_flight(4);
  std::vector<v1::MeasureSingle> singles;
  for (const int size : {1, 4}) {
    header.mutable_execution()->set_batch_size(size);
    MeasureClient client(&server);
    client.Send(header);
    const auto frames = client.ReadRest();
    EXPECT_EQ(Summary(client.Finish()), "OK");
    ASSERT_EQ(frames.size(), 1u);
    singles.push_back(frames[0].single());
    const auto& report = singles.back().summary().report();
    EXPECT_LE(report.max_batch_observed(), size);
    EXPECT_LE(report.memory_plan().batch_size(), size);
    EXPECT_NE(report.memory_plan().batch_limit(), v1::BATCH_LIMIT_UNSPECIFIED);
  }
  for (int i = 0; i < 12; ++i) {
    for (int spec = 0; spec < 3; ++spec) {
      for (const auto& [key, value] : singles[0].items(i).scores().specs(spec).values()) {
        EXPECT_EQ(singles[1].items(i).scores().specs(spec).values().at(key), value) << key;
      }
    }
  }
}

TEST(SeedTest, ADrawnSeedIsToldAndRepeatsTheScore) {
  TestServer server;
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 5, 1), {"snc", "stress"});
  header.mutable_specs(0)->mutable_steadiness_cohesiveness()->set_iteration(10);
  const Answer first = Measure(&server, header);
  ASSERT_TRUE(first.scores.specs(0).has_seed());
  EXPECT_FALSE(first.scores.specs(1).has_seed());
  header.mutable_specs(0)->mutable_steadiness_cohesiveness()->mutable_random()->set_seed(
      first.scores.specs(0).seed());
  const Answer second = Measure(&server, header);
  EXPECT_EQ(second.scores.specs(0).seed(), first.scores.specs(0).seed());
  for (const auto& [key, value] : first.scores.specs(0).values()) {
    EXPECT_EQ(second.scores.specs(0).values().at(key), value) << key;
  }
}

}  // namespace
}  // namespace tenon::server
