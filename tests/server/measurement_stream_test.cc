// The life of a stream of projections: order, errors in place, back-pressure, ends.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <latch>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "backends/core/crc32c.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

constexpr int64_t kRows = 24;

Matrix Dataset() { return MakeMatrix(kRows, 5, 1); }

v1::MeasureHeader PlainHeader() { return Header(Dataset(), {"tnc", "stress"}, 5); }

double Stress(const v1::MeasureScores& scores) { return scores.specs(1).values().at("stress"); }

// The definition, for comparison.
double NaiveStress(const Matrix& original, const Matrix& projection) {
  const auto distance = [](const Matrix& m, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t c = 0; c < m.columns; ++c) {
      const double difference = m.values[static_cast<size_t>(i * m.columns + c)] -
                                m.values[static_cast<size_t>(j * m.columns + c)];
      sum += difference * difference;
    }
    return std::sqrt(sum);
  };
  double errors = 0, squares = 0;
  for (int64_t i = 0; i < original.rows; ++i) {
    for (int64_t j = i + 1; j < original.rows; ++j) {
      const double o = distance(original, i, j), e = distance(projection, i, j);
      errors += (o - e) * (o - e);
      squares += o * o;
    }
  }
  return std::sqrt(errors / squares);
}

TEST(StreamTest, ManySmallProjectionsComeBackInOrder) {
  TestServer server;
  constexpr int kCount = 200;
  MeasureClient client(&server);
  v1::MeasureHeader header = PlainHeader();
  header.mutable_execution()->set_in_flight(4);
  ASSERT_TRUE(client.Send(header));
  std::vector<v1::MeasureRequest> requests;
  for (int i = 0; i < kCount; ++i) {
    v1::Projection projection =
        InlineProjection(i, MakeMatrix(kRows, 1 + i % 3, static_cast<uint32_t>(i)));
    projection.set_name("run" + std::to_string(i));
    requests.push_back(Frame(projection));
  }
  const auto frames = client.Exchange(requests);
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), kCount + 2u);
  for (int i = 0; i < kCount; ++i) {
    const v1::MeasureScores& scores = frames[static_cast<size_t>(i) + 1].scores();
    ASSERT_EQ(scores.index(), i);
    EXPECT_EQ(scores.name(), "run" + std::to_string(i));
    EXPECT_NEAR(Stress(scores),
                NaiveStress(Dataset(), MakeMatrix(kRows, 1 + i % 3, static_cast<uint32_t>(i))),
                1e-12);
  }
  const v1::MeasureSummary& summary = frames.back().summary();
  EXPECT_EQ(summary.input_consumed_count(), kCount);
  EXPECT_EQ(summary.scored_count(), kCount);
  EXPECT_EQ(summary.error_count(), 0);
  EXPECT_TRUE(summary.stream_complete());
  EXPECT_LE(summary.report().max_in_flight_observed(), 4);
  EXPECT_GE(summary.report().max_in_flight_observed(), 1);
  EXPECT_TRUE(server.AllReleased());
}

// Bad projections of every kind between good ones.
struct BadProjection {
  v1::MeasureRequest frame;
  std::vector<v1::MeasureRequest> chunks;
  std::string summary;
};

std::vector<BadProjection> BadProjections() {
  std::vector<BadProjection> all;
  const Matrix points = MakeMatrix(kRows, 2, 3);
  const auto add = [&](v1::Projection projection, const std::string& summary) -> BadProjection& {
    all.push_back({Frame(projection), {}, summary});
    return all.back();
  };
  add(InlineProjection(0, MakeMatrix(kRows + 1, 2, 3)),
      "INVALID_ARGUMENT SHAPE_MISMATCH projection.spec.shape[0]");
  Matrix not_finite = points;
  not_finite.values[7] = std::numeric_limits<double>::quiet_NaN();
  add(InlineProjection(0, not_finite), "INVALID_ARGUMENT NOT_FINITE projection");
  v1::Projection projection = InlineProjection(0, points);
  projection.mutable_spec()->set_shape(1, 0);
  add(projection, "INVALID_ARGUMENT SHAPE_MISMATCH projection.spec.shape[1]");
  projection = InlineProjection(0, points);
  projection.mutable_spec()->add_shape(1);
  add(projection, "INVALID_ARGUMENT SHAPE_MISMATCH projection.spec.shape");
  projection = InlineProjection(0, points);
  projection.mutable_spec()->set_dtype(v1::DATA_TYPE_COMPLEX128);
  add(projection, "UNIMPLEMENTED UNSUPPORTED_DTYPE projection.spec.dtype");
  projection = InlineProjection(0, points);
  projection.mutable_spec()->clear_dtype();
  add(projection, "INVALID_ARGUMENT MISSING_FIELD projection.spec.dtype");
  projection = InlineProjection(0, points);
  projection.mutable_inline_data()->pop_back();
  add(projection, "INVALID_ARGUMENT SHAPE_MISMATCH projection.inline_data");
  projection = InlineProjection(0, points);
  projection.set_inline_data(std::string(65536, '\0'));
  add(projection, "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT projection.inline_data");
  projection = InlineProjection(0, points);
  projection.set_name(std::string(1025, 'x'));
  add(projection, "INVALID_ARGUMENT BAD_PARAMETER projection.name");
  projection = InlineProjection(0, points);
  projection.mutable_spec()->set_dtype(v1::DATA_TYPE_BOOL);
  projection.set_inline_data(std::string(kRows * 2, '\2'));
  add(projection, "INVALID_ARGUMENT BAD_PARAMETER projection");
  projection = InlineProjection(0, points);
  projection.clear_inline_data();
  add(projection, "INVALID_ARGUMENT CHUNK_ORDER projection_chunk.offset_bytes").chunks = {
      ProjectionChunk(0, 8, "12345678"), ProjectionChunk(0, 0, "dropped")};
  add(projection, "DATA_LOSS CHECKSUM_MISMATCH projection_chunk.crc32c").chunks = {
      ProjectionChunk(0, 0, "12345678")};
  all.back().chunks[0].mutable_projection_chunk()->set_crc32c(12);
  add(projection, "INVALID_ARGUMENT CHUNK_OVERFLOW projection_chunk.data").chunks = {
      ProjectionChunk(0, 0, points.bytes() + "x")};
  projection.mutable_spec()->set_shape(1, int64_t{1} << 58);
  add(projection, "INVALID_ARGUMENT OVERFLOW projection.spec.shape");
  projection.mutable_spec()->set_shape(1, int64_t{1} << 40);
  add(projection, "RESOURCE_EXHAUSTED EXCEEDS_MEMORY_BUDGET projection.spec.shape");
  return all;
}

void SetIndex(int64_t index, BadProjection* bad) {
  bad->frame.mutable_projection()->set_index(index);
  for (auto& chunk : bad->chunks) chunk.mutable_projection_chunk()->set_set(index);
}

TEST(StreamTest, BadProjectionsAreAnsweredInTheirPlace) {
  TestServer server;
  MeasureClient client(&server);
  ASSERT_TRUE(client.Send(PlainHeader()));
  std::vector<BadProjection> bad = BadProjections();
  const Matrix points = MakeMatrix(kRows, 2, 3);
  int64_t index = 0;
  std::vector<v1::MeasureRequest> requests;
  for (BadProjection& entry : bad) {
    SetIndex(index++, &entry);
    requests.push_back(entry.frame);
    requests.insert(requests.end(), entry.chunks.begin(), entry.chunks.end());
    requests.push_back(Frame(InlineProjection(index++, points)));
  }
  const auto frames = client.Exchange(requests);
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), static_cast<size_t>(index) + 2);
  for (size_t i = 0; i < bad.size(); ++i) {
    const v1::MeasureItemError& error = frames[1 + 2 * i].item_error();
    EXPECT_EQ(error.index(), static_cast<int64_t>(2 * i));
    EXPECT_EQ(Summary(error.error()), bad[i].summary);
    EXPECT_FALSE(error.error().message().empty());
    const v1::MeasureScores& scores = frames[2 + 2 * i].scores();
    EXPECT_EQ(scores.index(), static_cast<int64_t>(2 * i + 1));
    EXPECT_NEAR(Stress(scores), NaiveStress(Dataset(), points), 1e-12);
  }
  const v1::MeasureSummary& summary = frames.back().summary();
  EXPECT_EQ(summary.error_count(), static_cast<int64_t>(bad.size()));
  EXPECT_EQ(summary.scored_count(), static_cast<int64_t>(bad.size()));
  int64_t counted = 0;
  for (const v1::ErrorCount& count : summary.report().errors()) counted += count.count();
  EXPECT_EQ(counted, summary.error_count());
  EXPECT_TRUE(server.AllReleased());
}

TEST(StreamTest, UndefinedScoresAreErrorsOfTheirProjection) {
  TestServer server;
  MeasureClient client(&server);
  ASSERT_TRUE(client.Send(Header(Dataset(), {"srho"})));
  Matrix constant{kRows, 2, std::vector<double>(kRows * 2, 1.5)};
  ASSERT_TRUE(client.Send(Frame(InlineProjection(0, constant))));
  const auto frames = client.ReadAll();
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[1].item_error().error().reason(), "UNDEFINED_SCORE");
}

TEST(StreamTest, WithoutMeasuresProjectionsAreOnlyChecked) {
  TestServer server;
  MeasureClient client(&server);
  ASSERT_TRUE(client.Send(Header(Dataset(), {})));
  const auto frames = client.Exchange({Frame(InlineProjection(0, MakeMatrix(kRows, 2, 3))),
                                       Frame(InlineProjection(1, MakeMatrix(kRows - 1, 2, 3)))});
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_TRUE(frames[1].has_scores());
  EXPECT_EQ(frames[1].scores().specs_size(), 0);
  EXPECT_EQ(frames[2].item_error().error().reason(), "SHAPE_MISMATCH");
}

TEST(StreamTest, OnErrorStopEndsWithTheSummary) {
  TestServer server;
  MeasureClient client(&server);
  v1::MeasureHeader header = PlainHeader();
  header.mutable_execution()->set_on_error(v1::ON_ERROR_STOP);
  ASSERT_TRUE(client.Send(header));
  const auto frames = client.Exchange({Frame(InlineProjection(0, MakeMatrix(kRows, 2, 3))),
                                       Frame(InlineProjection(1, MakeMatrix(kRows - 1, 2, 3))),
                                       Frame(InlineProjection(2, MakeMatrix(kRows, 2, 3)))});
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_TRUE(frames[1].has_scores());
  EXPECT_EQ(frames[2].item_error().index(), 1);
  EXPECT_FALSE(frames[3].summary().stream_complete());
  EXPECT_EQ(frames[3].summary().error_count(), 1);
  EXPECT_TRUE(server.AllReleased());
}

class GatedTest : public ::testing::Test {
 protected:
  ~GatedTest() override { Gate::Open(); }

  // Only measures whose projections need nothing from each other: what the first one builds for all
  // makes the others wait.
  v1::MeasureHeader GatedHeader(int in_flight) {
    v1::MeasureHeader header = Header(Dataset(), {"sn_stress", "stress"});
    header.mutable_execution()->set_provider("gated");
    header.mutable_execution()->set_in_flight(in_flight);
    return header;
  }

  TestServer server_;
};

TEST_F(GatedTest, NoMoreThanInFlightAreHeld) {
  Gate::Close();
  MeasureClient client(&server_);
  v1::MeasureHeader header = GatedHeader(2);
  ASSERT_TRUE(client.Send(header));
  const int64_t bytes = kRows * 2 * 8;
  std::thread writer([&] {
    for (int i = 0; i < 12; ++i) {
      client.Send(Frame(InlineProjection(i, MakeMatrix(kRows, 2, static_cast<uint32_t>(i)))));
    }
    client.HalfClose();
  });
  ASSERT_TRUE(client.Read().has_accepted());
  Gate::AwaitInside(2);
  Gate::Open();
  const auto frames = client.ReadRest();
  writer.join();
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 13u);
  EXPECT_EQ(Gate::max_inside(), 2);
  EXPECT_EQ(frames.back().summary().report().max_in_flight_observed(), 2);
  EXPECT_EQ(frames.back().summary().report().timing().received_bytes(), 12 * bytes + kRows * 5 * 8);
}

TEST_F(GatedTest, StopFinishesWhatIsInFlight) {
  Gate::Close();
  MeasureClient client(&server_);
  ASSERT_TRUE(client.Send(GatedHeader(3)));
  for (int i = 0; i < 2; ++i) {
    client.Send(Frame(InlineProjection(i, MakeMatrix(kRows, 2, static_cast<uint32_t>(i)))));
  }
  client.Stop();
  Gate::AwaitInside(2);
  Gate::Open();
  const auto frames = client.ReadRest();  // without a half-close
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_EQ(frames[1].scores().index(), 0);
  EXPECT_EQ(frames[2].scores().index(), 1);
  EXPECT_FALSE(frames[3].summary().stream_complete());
  EXPECT_EQ(frames[3].summary().scored_count(), 2);
}

// A data set that a call keeps is in use until the client knows that the call is over.
TEST_F(GatedTest, WhatACallKeepsCantBeDeletedBeforeItsEnd) {
  Gate::Close();
  v1::MeasureHeader header = GatedHeader(1);
  header.mutable_dataset_input()->set_keep(true);
  MeasureClient client(&server_);
  ASSERT_TRUE(client.Send(header));
  client.Send(Frame(InlineProjection(0, MakeMatrix(kRows, 2, 1))));
  Gate::AwaitInside(1);
  const auto stored = server_.state().store->List(ContentStore::Kind::kDataset, std::nullopt);
  ASSERT_EQ(stored.size(), 1u);
  const auto remove = [&] {
    v1::DeleteDatasetRequest request;
    v1::DeleteDatasetResponse response;
    request.set_name(stored[0].handle);
    grpc::ClientContext context;
    return Summary(server_.datasets().DeleteDataset(&context, request, &response));
  };
  EXPECT_EQ(stored[0].active_uses, 1);
  EXPECT_EQ(remove(), "FAILED_PRECONDITION IN_USE name");
  Gate::Open();
  const auto frames = client.ReadAll();
  EXPECT_EQ(frames.back().summary().dataset_handle(), stored[0].handle);
  EXPECT_EQ(remove(), "OK");
  EXPECT_EQ(Summary(client.Finish()), "OK");
  EXPECT_TRUE(server_.AllReleased());
}

// A projection that is wider than planned takes what it needs more, not a plan's whole peak.
TEST_F(GatedTest, AWideProjectionTakesItsOwnBytesMore) {
  constexpr int64_t kMany = 400, kWide = 40;
  Gate::Close();
  v1::MeasureHeader header = Header(MakeMatrix(kMany, 4, 1), {"tnc", "kl_div", "stress"}, 5);
  header.mutable_execution()->set_provider("gated");
  header.mutable_execution()->set_in_flight(4);
  header.mutable_dataset_input()->clear_inline_data();
  MeasureClient client(&server_);
  ASSERT_TRUE(client.Send(header));
  const v1::MeasureAccepted accepted = client.Read().accepted();
  client.Send(DatasetChunk(0, MakeMatrix(kMany, 4, 1).bytes()));
  client.Send(Frame(InlineProjection(0, MakeMatrix(kMany, 2, 1))));
  Gate::AwaitInside(1);
  const int64_t before = server_.state().budget.reserved_bytes();
  client.Stop();
  Gate::Open();
  client.ReadRest();
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_TRUE(server_.AllReleased());

  Gate::Close();
  MeasureClient wide(&server_);
  ASSERT_TRUE(wide.Send(header));
  ASSERT_TRUE(wide.Read().has_accepted());
  wide.Send(DatasetChunk(0, MakeMatrix(kMany, 4, 1).bytes()));
  v1::Projection projection;
  SetSpec(kMany, kWide, projection.mutable_spec());
  const std::string bytes = MakeMatrix(kMany, kWide, 1).bytes();
  wide.Send(Frame(projection));
  wide.Send(ProjectionChunk(0, 0, bytes));
  Gate::AwaitInside(1);
  const int64_t extra = server_.state().budget.reserved_bytes() - before;
  const auto more = static_cast<int64_t>(bytes.size());
  EXPECT_GT(extra, 0);
  // As it came, widened, and transposed by the provider's blocks at most.
  EXPECT_LE(extra, 3 * more) << accepted.DebugString();
  Gate::Open();
  wide.HalfClose();
  const auto frames = wide.ReadRest();
  EXPECT_TRUE(frames[0].has_scores()) << frames[0].DebugString();
  EXPECT_EQ(Summary(wide.Finish()), "OK");
}

TEST_F(GatedTest, CancelReleasesEverything) {
  Gate::Close();
  {
    MeasureClient client(&server_);
    ASSERT_TRUE(client.Send(GatedHeader(2)));
    for (int i = 0; i < 2; ++i) {
      client.Send(Frame(InlineProjection(i, MakeMatrix(kRows, 2, static_cast<uint32_t>(i)))));
    }
    Gate::AwaitInside(2);
    EXPECT_GT(server_.state().budget.reserved_bytes(), 0);
    client.Cancel();
    client.ReadRest();
    EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(server_.AllReleased());  // with the gate still closed
}

TEST(StreamTest, AQueueThatIsFullRefusesAtTheHeader) {
  TestServer small({.executor_threads = 1, .max_queued = 0});
  std::latch running(1), done(1);
  ASSERT_TRUE(small.state()
                  .executor
                  .Submit([&] {
                    running.count_down();
                    done.wait();
                  })
                  .ok());
  running.wait();
  MeasureClient client(&small);
  ASSERT_TRUE(client.Send(PlainHeader()));
  EXPECT_TRUE(client.ReadRest().empty());
  EXPECT_EQ(Summary(client.Finish()), "RESOURCE_EXHAUSTED OVERLOADED ");
  EXPECT_TRUE(small.AllReleased());
  done.count_down();
}

TEST(StreamTest, OneExecutorThreadIsEnough) {
  TestServer server({.executor_threads = 1});
  MeasureClient client(&server);
  v1::MeasureHeader header = PlainHeader();
  header.mutable_execution()->set_in_flight(4);
  ASSERT_TRUE(client.Send(header));
  std::vector<v1::MeasureRequest> requests;
  for (int i = 0; i < 20; ++i) {
    requests.push_back(Frame(InlineProjection(i, MakeMatrix(kRows, 2, static_cast<uint32_t>(i)))));
  }
  const auto frames = client.Exchange(requests);
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 22u);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(frames[i + 1].scores().index(), static_cast<int>(i));
}

TEST(StreamTest, ChunkedProjectionsEqualInlineOnes) {
  TestServer server;
  const Matrix points = MakeMatrix(kRows, 2, 9);
  MeasureClient client(&server);
  ASSERT_TRUE(client.Send(PlainHeader()));
  client.Send(Frame(InlineProjection(0, points)));
  v1::Projection announced = InlineProjection(1, points);
  announced.clear_inline_data();
  client.Send(Frame(announced));
  const std::string bytes = points.bytes();
  for (size_t offset = 0; offset < bytes.size(); offset += 100) {
    v1::MeasureRequest frame =
        ProjectionChunk(1, static_cast<int64_t>(offset), bytes.substr(offset, 100));
    frame.mutable_projection_chunk()->set_crc32c(Crc32c(frame.projection_chunk().data()));
    ASSERT_TRUE(client.Send(frame));
  }
  const auto frames = client.ReadAll();
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 4u);
  for (int spec = 0; spec < 2; ++spec) {
    for (const auto& [key, value] : frames[1].scores().specs(spec).values()) {
      EXPECT_EQ(frames[2].scores().specs(spec).values().at(key), value);
    }
  }
}

TEST(StreamTest, LargeLocalArraysFollowInChunks) {
  TestServer server;
  server.state().limits.max_inline_bytes = 6000;
  constexpr int64_t kMany = 800;  // 6400 bytes of scores
  MeasureClient client(&server);
  v1::MeasureHeader header;
  SetSpec(kMany, 2, header.mutable_dataset_input()->mutable_spec());
  AddSpec("lcmc", 3, &header);
  header.set_return_local(true);
  header.mutable_result()->set_chunk_bytes(4096);
  header.mutable_result()->set_checksums(true);
  ASSERT_TRUE(client.Send(header));
  const Matrix points = MakeMatrix(kMany, 2, 4);
  ASSERT_TRUE(client.Send(DatasetChunk(0, points.bytes())));
  v1::Projection announced = InlineProjection(0, points);
  announced.clear_inline_data();
  client.Send(Frame(announced));
  client.Send(ProjectionChunk(0, 0, points.bytes()));
  const auto frames = client.ReadAll();
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 5u);  // accepted, scores, two chunks, summary
  ASSERT_EQ(frames[1].scores().local_arrays_size(), 1);
  const v1::LocalArray& array = frames[1].scores().local_arrays(0);
  EXPECT_EQ(array.key(), "local_lcmc");
  EXPECT_FALSE(array.has_inline_data());
  EXPECT_EQ(array.tensor().shape(0), kMany);
  std::string bytes;
  for (size_t i = 2; i < 4; ++i) {
    const v1::TensorChunk& chunk = frames[i].local_chunk();
    EXPECT_EQ(chunk.offset_bytes(), static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(chunk.crc32c(), Crc32c(chunk.data()));
    bytes += chunk.data();
  }
  ASSERT_EQ(bytes.size(), kMany * sizeof(double));
  double sum = 0;
  for (int64_t i = 0; i < kMany; ++i) {
    double value = 0;
    std::memcpy(&value, bytes.data() + i * 8, 8);
    sum += value;
  }
  // The projection is the data set: all neighbours are shared.
  EXPECT_NEAR(sum / kMany, 1 - 3.0 / (kMany - 1), 1e-9);
  EXPECT_EQ(frames.back().summary().report().timing().sent_bytes(), kMany * 8);
}

TEST(StreamTest, AnEmptySourceStillChecksTheDataset) {
  TestServer server;
  MeasureClient good(&server);
  good.Send(Header(Dataset(), {"kl_div"}));
  const auto frames = good.ReadAll();
  EXPECT_EQ(Summary(good.Finish()), "OK");
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_TRUE(frames[1].summary().stream_complete());
  EXPECT_GT(frames[1].summary().report().original_resource_bytes(), 0);

  Matrix bad = Dataset();
  bad.values[3] = std::numeric_limits<double>::infinity();
  MeasureClient client(&server);
  client.Send(Header(bad, {"stress"}));
  client.ReadAll();
  const CallError error = ErrorOf(client.Finish());
  EXPECT_EQ(error.reason, "NOT_FINITE");
  EXPECT_EQ(error.metadata.at("row"), "0");
  EXPECT_EQ(error.metadata.at("column"), "3");
}

TEST(StreamTest, ReportsAreFilled) {
  TestServer server;
  MeasureClient client(&server);
  v1::MeasureHeader header = PlainHeader();
  header.mutable_result()->set_report_detail(v1::REPORT_DETAIL_TIMELINE);
  header.mutable_execution()->set_progress_interval_seconds(1e-9);
  client.Send(header);
  std::vector<v1::MeasureRequest> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(Frame(InlineProjection(i, MakeMatrix(kRows, 2, static_cast<uint32_t>(i)))));
  }
  const auto frames = client.Exchange(requests);
  EXPECT_EQ(Summary(client.Finish()), "OK");
  int scores = 0, progress = 0;
  for (const auto& frame : frames) {
    progress += frame.has_progress();
    if (!frame.has_scores()) continue;
    ++scores;
    const v1::RunInfo& info = frame.scores().run_info();
    EXPECT_GT(info.timing().execution_seconds(), 0);
    EXPECT_EQ(info.timing().timing_scope(), v1::TIMING_SCOPE_SYNCHRONOUS_HOST);
    EXPECT_EQ(info.measures_size(), 2);
    EXPECT_EQ(info.measures(0).id(), "trustworthiness_continuity");
    ASSERT_GT(info.resources_size(), 0);
    for (const v1::ResourceReport& resource : info.resources()) {
      EXPECT_NE(resource.key().kind(), v1::RESOURCE_KIND_UNSPECIFIED);
      EXPECT_NE(resource.key().space(), v1::RESOURCE_SPACE_UNSPECIFIED);
      EXPECT_EQ(resource.provider().actual(), "cpu");
    }
  }
  EXPECT_EQ(scores, 3);
  EXPECT_GE(progress, 1);
  const v1::MeasureReport& report = frames.back().summary().report();
  EXPECT_EQ(report.timeline_size(), 3);
  EXPECT_EQ(report.measures_size(), 2);
  EXPECT_TRUE(report.has_further_projection_seconds());
  EXPECT_GT(report.memory().planned_peak_bytes(), 0);
  EXPECT_EQ(report.providers(0).provider(), "cpu");
  EXPECT_GT(report.timing().request_seconds(), 0);
}

TEST(StreamTest, BriefReportsLeaveRunInfoOut) {
  TestServer server;
  MeasureClient client(&server);
  v1::MeasureHeader header = PlainHeader();
  header.mutable_result()->set_report_detail(v1::REPORT_DETAIL_BRIEF);
  client.Send(header);
  client.Send(Frame(InlineProjection(0, MakeMatrix(kRows, 2, 1))));
  const auto frames = client.ReadAll();
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_FALSE(frames[1].scores().has_run_info());
  EXPECT_EQ(frames[2].summary().report().original_resources_size(), 0);
}

TEST(HandleTest, AKeptDatasetIsNotSentAgainAndGivesTheSameBits) {
  TestServer server;
  v1::MeasureHeader header = PlainHeader();
  header.mutable_dataset_input()->set_keep(true);
  const v1::Projection projection = InlineProjection(0, MakeMatrix(kRows, 2, 5));
  MeasureClient first(&server);
  first.Send(header);
  first.Send(Frame(projection));
  const auto before = first.ReadAll();
  EXPECT_EQ(Summary(first.Finish()), "OK");
  ASSERT_EQ(before.size(), 3u);
  const std::string handle = before[2].summary().dataset_handle();
  ASSERT_EQ(handle.substr(0, 9), "datasets/");
  EXPECT_TRUE(before[0].accepted().dataset_handle().empty());

  header.set_dataset_handle(handle);
  MeasureClient second(&server);
  second.Send(header);
  second.Send(Frame(projection));
  const auto after = second.ReadAll();
  EXPECT_EQ(Summary(second.Finish()), "OK");
  ASSERT_EQ(after.size(), 3u);
  EXPECT_EQ(after[0].accepted().dataset_handle(), handle);
  EXPECT_EQ(after[0].accepted().memory().input_bytes(), 0);
  EXPECT_EQ(after[2].summary().dataset_handle(), handle);
  for (int spec = 0; spec < 2; ++spec) {
    for (const auto& [key, value] : before[1].scores().specs(spec).values()) {
      EXPECT_EQ(after[1].scores().specs(spec).values().at(key), value) << key;
    }
  }
  EXPECT_EQ(server.state().store->bytes(), kRows * 5 * 8);
  EXPECT_TRUE(server.AllReleased());
}

}  // namespace
}  // namespace tenon::server
