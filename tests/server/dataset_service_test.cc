// DatasetService over a channel.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backends/core/error.h"
#include "server/gauges.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

using ::testing::HasSubstr;

// One upload of a data set.
class Upload {
 public:
  explicit Upload(TestServer* server, std::chrono::milliseconds timeout = std::chrono::hours(1))
      : context_(Within(timeout)),
        writer_(server->datasets().CreateDataset(context_.get(), &response)) {}

  void Header(const v1::CreateDatasetHeader& header) {
    v1::CreateDatasetRequest frame;
    *frame.mutable_header() = header;
    writer_->Write(frame);
  }
  void Chunk(
      int64_t offset, const std::string& data,
      const std::function<void(v1::TensorChunk*)>& change = [](auto*) {}) {
    v1::CreateDatasetRequest frame;
    frame.mutable_chunk()->set_offset_bytes(offset);
    frame.mutable_chunk()->set_data(data);
    change(frame.mutable_chunk());
    writer_->Write(frame);
  }
  void Empty() { writer_->Write(v1::CreateDatasetRequest()); }
  void Cancel() { context_->TryCancel(); }
  void WritesDone() { writer_->WritesDone(); }
  std::string HalfClose() {
    WritesDone();
    return Finish();
  }
  // For calls that end by themselves.
  std::string Finish() { return Summary(writer_->Finish()); }

  v1::CreateDatasetResponse response;

 private:
  static std::unique_ptr<grpc::ClientContext> Within(std::chrono::milliseconds timeout) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + timeout);
    return context;
  }

  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientWriter<v1::CreateDatasetRequest>> writer_;
};

void Await(const std::function<bool()>& holds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  ASSERT_TRUE(holds());
}

v1::CreateDatasetHeader HeaderOf(const Matrix& matrix, bool with_data) {
  v1::CreateDatasetHeader header;
  SetSpec(matrix.rows, matrix.columns, header.mutable_spec());
  if (with_data) header.set_inline_data(matrix.bytes());
  return header;
}

std::string Create(TestServer* server, uint32_t seed) {
  Upload upload(server);
  upload.Header(HeaderOf(MakeMatrix(10, 3, seed), true));
  EXPECT_EQ(upload.HalfClose(), "OK");
  return upload.response.dataset().name();
}

TEST(DatasetUploadTest, ChunksAndInlineGiveTheSameName) {
  TestServer server;
  const Matrix matrix = MakeMatrix(10, 3, 1);
  Upload first(&server);
  v1::CreateDatasetHeader header = HeaderOf(matrix, false);
  header.set_request_id("mine");
  header.set_display_name("digits");
  header.set_ttl_seconds(60);
  first.Header(header);
  const std::string bytes = matrix.bytes();
  first.Chunk(0, bytes.substr(0, 101));
  first.Chunk(101, bytes.substr(101));
  ASSERT_EQ(first.HalfClose(), "OK");
  EXPECT_FALSE(first.response.existed());
  EXPECT_EQ(first.response.request_id(), "mine");
  const v1::Dataset& dataset = first.response.dataset();
  EXPECT_EQ(dataset.name().size(), 9u + 64);
  EXPECT_EQ(dataset.display_name(), "digits");
  EXPECT_EQ(dataset.spec().shape(0), 10);
  EXPECT_EQ(dataset.size_bytes(), 240);
  EXPECT_EQ(dataset.expire_time().seconds() - dataset.last_use_time().seconds(), 60);
  EXPECT_EQ(dataset.active_calls(), 0);
  EXPECT_EQ(dataset.owner(), "");

  Upload second(&server);
  header = HeaderOf(matrix, true);
  header.set_expected_sha256(dataset.name().substr(9));
  second.Header(header);
  ASSERT_EQ(second.HalfClose(), "OK");
  EXPECT_TRUE(second.response.existed());
  EXPECT_EQ(second.response.dataset().name(), dataset.name());
  EXPECT_FALSE(second.response.request_id().empty());
  EXPECT_TRUE(server.AllReleased());
  EXPECT_EQ(server.state().store->bytes(), 240);
}

struct Refused {
  const char* name;
  std::function<void(v1::CreateDatasetHeader*)> change;
  const char* summary;
};

class RefusedUploadTest : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedUploadTest, EndsAtTheHeader) {
  TestServer server;
  v1::CreateDatasetHeader header = HeaderOf(MakeMatrix(10, 3, 1), true);
  GetParam().change(&header);
  Upload upload(&server);
  upload.Header(header);
  EXPECT_EQ(upload.Finish(), GetParam().summary);  // without a half-close
  EXPECT_TRUE(server.AllReleased());
}

INSTANTIATE_TEST_SUITE_P(
    Headers, RefusedUploadTest,
    ::testing::Values(
        Refused{"OneRow", [](auto* h) { h->mutable_spec()->set_shape(0, 1); },
                "INVALID_ARGUMENT TOO_FEW_ROWS header.spec.shape[0]"},
        Refused{"Vector", [](auto* h) { h->mutable_spec()->mutable_shape()->RemoveLast(); },
                "INVALID_ARGUMENT SHAPE_MISMATCH header.spec.shape"},
        Refused{"Complex", [](auto* h) { h->mutable_spec()->set_dtype(v1::DATA_TYPE_COMPLEX64); },
                "UNIMPLEMENTED UNSUPPORTED_DTYPE header.spec.dtype"},
        Refused{"NoSpec", [](auto* h) { h->clear_spec(); },
                "INVALID_ARGUMENT MISSING_FIELD header.spec.dtype"},
        Refused{"Large",
                [](auto* h) {
                  h->mutable_spec()->set_shape(0, int64_t{1} << 40);
                  h->clear_inline_data();
                },
                "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT "},
        Refused{"WrongBytes", [](auto* h) { h->mutable_inline_data()->pop_back(); },
                "INVALID_ARGUMENT SHAPE_MISMATCH header.inline_data"},
        Refused{"TooLargeInside", [](auto* h) { h->set_inline_data(std::string(65536, '\0')); },
                "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT header.inline_data"},
        Refused{"Ttl", [](auto* h) { h->set_ttl_seconds(0); },
                "INVALID_ARGUMENT BAD_PARAMETER header.ttl_seconds"},
        Refused{"Hash", [](auto* h) { h->set_expected_sha256("abc"); },
                "INVALID_ARGUMENT BAD_PARAMETER header.expected_sha256"},
        Refused{"Id", [](auto* h) { h->set_request_id(std::string(129, 'x')); },
                "INVALID_ARGUMENT BAD_PARAMETER header.request_id"},
        Refused{"Name", [](auto* h) { h->set_display_name(std::string(257, 'x')); },
                "INVALID_ARGUMENT BAD_PARAMETER header.display_name"}),
    [](const auto& info) { return info.param.name; });

TEST(DatasetUploadTest, ValuesAndHashAreChecked) {
  TestServer server;
  Matrix matrix = MakeMatrix(10, 3, 1);
  Upload wrong_hash(&server);
  v1::CreateDatasetHeader header = HeaderOf(matrix, true);
  header.set_expected_sha256(std::string(64, 'a'));
  wrong_hash.Header(header);
  EXPECT_EQ(wrong_hash.HalfClose(), "DATA_LOSS CHECKSUM_MISMATCH header.expected_sha256");
  matrix.values[4] = std::numeric_limits<double>::quiet_NaN();
  Upload not_finite(&server);
  not_finite.Header(HeaderOf(matrix, true));
  EXPECT_EQ(not_finite.HalfClose(), "INVALID_ARGUMENT NOT_FINITE header.spec");
  EXPECT_TRUE(server.AllReleased());
  EXPECT_EQ(server.state().store->bytes(), 0);
}

TEST(DatasetUploadTest, TheStateTableHolds) {
  TestServer server;
  const Matrix matrix = MakeMatrix(10, 3, 1);
  const auto result = [&](const std::function<void(Upload*)>& act) {
    Upload upload(&server);
    act(&upload);
    return upload.HalfClose();
  };
  const std::string order = "INVALID_ARGUMENT FRAME_ORDER ";
  const std::string truncated = "INVALID_ARGUMENT TRUNCATED_UPLOAD ";
  // START
  EXPECT_EQ(result([](Upload* u) { u->Chunk(0, "x"); }), order + "chunk");
  EXPECT_EQ(result([](Upload*) {}), truncated + "header");
  EXPECT_EQ(result([](Upload* u) { u->Empty(); }), "INVALID_ARGUMENT MISSING_FIELD frame");
  // UPLOAD
  const auto begin = [&](Upload* u) { u->Header(HeaderOf(matrix, false)); };
  EXPECT_EQ(result([&](Upload* u) { begin(u), begin(u); }), order + "header");
  EXPECT_EQ(result([&](Upload* u) { begin(u), u->Chunk(0, "x"); }), truncated + "chunk");
  EXPECT_EQ(result([&](Upload* u) { begin(u), u->Chunk(1, "x"); }),
            "INVALID_ARGUMENT CHUNK_ORDER chunk.offset_bytes");
  EXPECT_EQ(result([&](Upload* u) { begin(u), u->Chunk(0, "x", [](auto* c) { c->set_set(2); }); }),
            "INVALID_ARGUMENT CHUNK_ORDER chunk.set");
  EXPECT_EQ(result([&](Upload* u) { begin(u), u->Chunk(0, matrix.bytes() + "x"); }),
            "INVALID_ARGUMENT CHUNK_OVERFLOW chunk.data");
  EXPECT_EQ(
      result([&](Upload* u) { begin(u), u->Chunk(0, "x", [](auto* c) { c->set_crc32c(1); }); }),
      "DATA_LOSS CHECKSUM_MISMATCH chunk.crc32c");
  // COMPLETE
  const auto all = [&](Upload* u) { u->Header(HeaderOf(matrix, true)); };
  EXPECT_EQ(result([&](Upload* u) { all(u), all(u); }), order + "header");
  EXPECT_EQ(result([&](Upload* u) { all(u), u->Chunk(0, "x"); }), order + "chunk");
  EXPECT_EQ(result(all), "OK");
}

TEST(DatasetUploadTest, BytesAreReservedBeforeTheyComeAndReleasedByCancel) {
  TestServer server({.budget_bytes = 1000 + ContentStore::kEntryBytes});
  server.state().settings.max_queue_wait = std::chrono::milliseconds(0);
  auto held = server.state().budget.Reserve(800);
  ASSERT_TRUE(held.ok());
  Upload refused(&server);
  refused.Header(HeaderOf(MakeMatrix(10, 3, 1), false));
  EXPECT_EQ(refused.Finish(), "RESOURCE_EXHAUSTED OVERLOADED ");
  held->Release();
  Upload cancelled(&server);
  cancelled.Header(HeaderOf(MakeMatrix(10, 3, 1), false));
  cancelled.Chunk(0, "12345678");
  cancelled.Cancel();
  EXPECT_EQ(cancelled.Finish().substr(0, 9), "CANCELLED");
  EXPECT_TRUE(server.AllReleased());
}

// A server whose memory others hold.
class UploadQueueTest : public ::testing::Test {
 protected:
  UploadQueueTest() : server_({.budget_bytes = kBudget, .executor_threads = 1, .max_queued = 2}) {
    auto held = server_.state().budget.Reserve(kBudget);
    EXPECT_TRUE(held.ok());
    if (held.ok()) held_ = *std::move(held);
  }
  ~UploadQueueTest() override {
    held_.Release();
    EXPECT_TRUE(server_.AllReleased());
  }
  void AwaitWaiting(size_t count) {
    Await([&] { return server_.state().budget.waiting(Priority::kDefault) == count; });
  }
  void AwaitNoCalls() {
    Await([&] { return server_.state().metrics.in_flight() == 0; });
  }
  int64_t admitted() { return server_.state().metrics.Waits(Priority::kDefault).admitted; }

  static constexpr int64_t kBudget = 1000 + ContentStore::kEntryBytes;
  const Matrix matrix_ = MakeMatrix(10, 3, 1);
  TestServer server_;
  Reservation held_;
};

TEST_F(UploadQueueTest, WaitsForMemoryAndThenReads) {
  Upload upload(&server_);
  upload.Header(HeaderOf(matrix_, false));
  AwaitWaiting(1);
  EXPECT_EQ(server_.state().executor.running(), 0);  // it holds no thread
  held_.Release();
  upload.Chunk(0, matrix_.bytes());
  EXPECT_EQ(upload.HalfClose(), "OK");
  EXPECT_EQ(admitted(), 1);
}

TEST_F(UploadQueueTest, InlineDataWaitsToo) {
  v1::CreateTensorResponse created;
  grpc::ClientContext context;
  const auto writer = server_.datasets().CreateTensor(&context, &created);
  v1::CreateTensorRequest frame;
  SetSpec(matrix_.rows, matrix_.columns, frame.mutable_header()->mutable_spec());
  frame.mutable_header()->set_inline_data(matrix_.bytes());
  writer->Write(frame);
  writer->WritesDone();
  AwaitWaiting(1);
  held_.Release();
  EXPECT_EQ(Summary(writer->Finish()), "OK");
  EXPECT_EQ(created.tensor().size_bytes(), 240);
}

TEST_F(UploadQueueTest, WhoeverCancelsLeavesTheLine) {
  Upload upload(&server_);
  upload.Header(HeaderOf(matrix_, false));
  AwaitWaiting(1);
  upload.Cancel();
  EXPECT_EQ(upload.Finish().substr(0, 9), "CANCELLED");
  AwaitWaiting(0);
  AwaitNoCalls();
  EXPECT_EQ(admitted(), 0);
}

TEST_F(UploadQueueTest, TheDeadlineEndsTheWait) {
  Upload upload(&server_, std::chrono::milliseconds(100));
  upload.Header(HeaderOf(matrix_, false));
  EXPECT_EQ(upload.Finish().substr(0, 17), "DEADLINE_EXCEEDED");
  AwaitWaiting(0);
  AwaitNoCalls();
  EXPECT_THAT(MetricsText(server_.state()),
              HasSubstr("tenon_admission_rejections_total{reason=\"expired\"} 1\n"));
}

TEST_F(UploadQueueTest, TheWayOutEndsTheWait) {
  Upload upload(&server_);
  upload.Header(HeaderOf(matrix_, false));
  AwaitWaiting(1);
  server_.state().watchdog.EndAll(Error(Reason::kDraining, "told to stop"));
  EXPECT_EQ(upload.Finish(), "UNAVAILABLE DRAINING ");
  EXPECT_EQ(server_.state().budget.waiting(Priority::kDefault), 0u);
}

TEST_F(UploadQueueTest, WhatCannotWaitIsRefusedAtTheHeader) {
  Upload large(&server_);
  v1::CreateDatasetHeader header = HeaderOf(matrix_, false);
  header.mutable_spec()->set_shape(0, 1000);
  large.Header(header);
  EXPECT_EQ(large.Finish(), "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT ");  // it would never fit
  Upload first(&server_), second(&server_), third(&server_);
  for (Upload* upload : {&first, &second}) upload->Header(HeaderOf(matrix_, false));
  AwaitWaiting(2);
  third.Header(HeaderOf(matrix_, false));
  EXPECT_EQ(third.Finish(), "RESOURCE_EXHAUSTED OVERLOADED ");  // the line is full
  for (Upload* upload : {&first, &second}) {
    upload->Cancel();
    upload->Finish();
  }
  AwaitNoCalls();
}

// All of it has come; no thread is free to store it.
TEST_F(UploadQueueTest, WhoeverCancelsIsNotStored) {
  held_.Release();
  std::promise<void> released;
  const auto gate = released.get_future().share();
  ASSERT_TRUE(server_.state().executor.Submit([gate] { gate.wait(); }).ok());
  Await([&] { return server_.state().executor.running() == 1; });
  Upload upload(&server_);
  upload.Header(HeaderOf(matrix_, true));
  upload.WritesDone();
  Await([&] { return server_.state().executor.queued() == 1; });
  upload.Cancel();
  EXPECT_EQ(upload.Finish().substr(0, 9), "CANCELLED");
  Await([&] { return server_.state().executor.queued() == 0; });
  AwaitNoCalls();
  released.set_value();
  EXPECT_EQ(server_.state().store->bytes(), 0);
}

TEST(DatasetTest, GetAndDelete) {
  TestServer server;
  const std::string name = Create(&server, 1);
  v1::GetDatasetRequest get;
  v1::GetDatasetResponse got;
  get.set_name(name);
  grpc::ClientContext context;
  ASSERT_TRUE(server.datasets().GetDataset(&context, get, &got).ok());
  EXPECT_EQ(got.dataset().name(), name);
  EXPECT_EQ(got.dataset().size_bytes(), 240);

  const auto remove = [&](const std::string& which, int64_t* freed = nullptr) {
    v1::DeleteDatasetRequest request;
    v1::DeleteDatasetResponse response;
    request.set_name(which);
    grpc::ClientContext delete_context;
    const auto status = server.datasets().DeleteDataset(&delete_context, request, &response);
    if (freed != nullptr) *freed = response.freed_bytes();
    return Summary(status);
  };
  {
    const auto use = server.state().store->Get(ContentStore::Kind::kDataset, "", name);
    EXPECT_EQ(remove(name), "FAILED_PRECONDITION IN_USE name");
  }
  int64_t freed = 0;
  EXPECT_EQ(remove(name, &freed), "OK");
  EXPECT_EQ(freed, 240);
  EXPECT_TRUE(server.AllReleased());
  EXPECT_EQ(remove(name), "NOT_FOUND NOT_FOUND name");
  EXPECT_EQ(remove(""), "INVALID_ARGUMENT MISSING_FIELD name");
  grpc::ClientContext again;
  EXPECT_EQ(Summary(server.datasets().GetDataset(&again, get, &got)), "NOT_FOUND NOT_FOUND name");
}

// The upload itself succeeds however soon its content expires.
TEST(DatasetTest, AVeryShortTimeToLiveIsTaken) {
  TestServer server;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Upload upload(&server);
    v1::CreateDatasetHeader header = HeaderOf(MakeMatrix(10, 3, seed), true);
    header.set_ttl_seconds(1e-10);
    upload.Header(header);
    ASSERT_EQ(upload.HalfClose(), "OK");
    EXPECT_EQ(upload.response.dataset().active_calls(), 0);
  }
}

TEST(DatasetTest, ListComesInPages) {
  TestServer server;
  std::set<std::string> all;
  for (uint32_t seed = 0; seed < 7; ++seed) all.insert(Create(&server, seed));
  ASSERT_EQ(all.size(), 7u);
  v1::ListDatasetsRequest request;
  request.set_page_size(3);
  std::vector<std::string> seen;
  for (int page = 0; page < 3; ++page) {
    v1::ListDatasetsResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(server.datasets().ListDatasets(&context, request, &response).ok());
    EXPECT_EQ(response.datasets_size(), page == 2 ? 1 : 3);
    EXPECT_EQ(response.total_bytes(), 7 * 240);
    EXPECT_EQ(response.next_page_token().empty(), page == 2);
    for (const auto& dataset : response.datasets()) seen.push_back(dataset.name());
    request.set_page_token(response.next_page_token());
  }
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()), all);
  EXPECT_EQ(seen.size(), 7u);
}

TEST(DatasetTest, BadPagesAreRefused) {
  TestServer server;
  const auto list = [&](int32_t size, const std::string& token) {
    v1::ListDatasetsRequest request;
    v1::ListDatasetsResponse response;
    request.set_page_size(size);
    request.set_page_token(token);
    grpc::ClientContext context;
    return Summary(server.datasets().ListDatasets(&context, request, &response));
  };
  EXPECT_EQ(list(0, ""), "OK");
  EXPECT_EQ(list(-1, ""), "INVALID_ARGUMENT BAD_PARAMETER page_size");
  EXPECT_EQ(list(1001, ""), "INVALID_ARGUMENT BAD_PARAMETER page_size");
  for (const char* token :
       {"x", "v1.12.tensors/abc", "v1.twelve.datasets/abc", "v2.1.datasets/a"}) {
    EXPECT_EQ(list(1, token), "INVALID_ARGUMENT BAD_PARAMETER page_token") << token;
  }
}

TEST(TensorTest, UploadsGetsListsAndDeletes) {
  TestServer server;
  v1::CreateTensorResponse created;
  grpc::ClientContext context;
  const auto writer = server.datasets().CreateTensor(&context, &created);
  v1::CreateTensorRequest frame;
  v1::TensorSpec* spec = frame.mutable_header()->mutable_spec();
  spec->set_dtype(v1::DATA_TYPE_COMPLEX64);
  for (int i = 0; i < 3; ++i) spec->add_shape(2);
  // Any value is legal in an operand.
  const float values[16] = {std::numeric_limits<float>::quiet_NaN()};
  frame.mutable_header()->set_inline_data(values, sizeof(values));
  writer->Write(frame);
  writer->WritesDone();
  ASSERT_EQ(Summary(writer->Finish()), "OK");
  EXPECT_EQ(created.tensor().name().substr(0, 8), "tensors/");
  EXPECT_EQ(created.tensor().size_bytes(), 64);

  v1::GetTensorRequest get;
  v1::GetTensorResponse got;
  get.set_name(created.tensor().name());
  grpc::ClientContext get_context;
  ASSERT_TRUE(server.datasets().GetTensor(&get_context, get, &got).ok());
  v1::ListTensorsResponse list;
  grpc::ClientContext list_context;
  ASSERT_TRUE(server.datasets().ListTensors(&list_context, {}, &list).ok());
  ASSERT_EQ(list.tensors_size(), 1);
  v1::ListDatasetsResponse datasets;
  grpc::ClientContext datasets_context;
  ASSERT_TRUE(server.datasets().ListDatasets(&datasets_context, {}, &datasets).ok());
  EXPECT_EQ(datasets.datasets_size(), 0);
  v1::DeleteTensorRequest remove;
  v1::DeleteTensorResponse removed;
  remove.set_name(created.tensor().name());
  grpc::ClientContext delete_context;
  ASSERT_TRUE(server.datasets().DeleteTensor(&delete_context, remove, &removed).ok());
  EXPECT_EQ(removed.freed_bytes(), 64);
}

TEST(TensorTest, OnlyContractionTypesAreTaken) {
  TestServer server;
  v1::CreateTensorResponse created;
  grpc::ClientContext context;
  const auto writer = server.datasets().CreateTensor(&context, &created);
  v1::CreateTensorRequest frame;
  frame.mutable_header()->mutable_spec()->set_dtype(v1::DATA_TYPE_INT32);
  frame.mutable_header()->mutable_spec()->add_shape(0);
  writer->Write(frame);
  EXPECT_EQ(Summary(writer->Finish()), "UNIMPLEMENTED UNSUPPORTED_DTYPE header.spec.dtype");
}

}  // namespace
}  // namespace tenon::server
