// What JobService answers beside the states of jobs.

#include "server/job_service.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/server/job_test_server.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

class JobServiceTest : public ::testing::Test {
 protected:
  JobTestServer& server() {
    if (server_ == nullptr) server_ = std::make_unique<JobTestServer>(folder_.path(), options_);
    return *server_;
  }
  std::string Refusal(const v1::SubmitContractionHeader& header) {
    return Summary(server().Submit(header).status);
  }

  TestFolder folder_;
  JobServerOptions options_;
  std::unique_ptr<JobTestServer> server_;
};

TEST_F(JobServiceTest, ASubmissionTellsTheWholeJob) {
  options_.run = false;
  v1::SubmitContractionHeader header = ProductJob("one", false);
  header.set_display_name("a product");
  const auto submitted = server().Submit(
      header, {Encode(v1::DATA_TYPE_FLOAT64, kLeft), Encode(v1::DATA_TYPE_FLOAT64, kRight)});
  ASSERT_EQ(Summary(submitted.status), "OK");
  const v1::SubmitContractionResponse& response = submitted.response;
  EXPECT_FALSE(response.existed());
  EXPECT_GT(response.planned_peak_bytes(), 96);
  EXPECT_EQ(response.memory().total_bytes(), response.planned_peak_bytes());
  const v1::Job& job = response.job();
  EXPECT_EQ(job.name().substr(0, 5), "jobs/");
  EXPECT_EQ(job.request_id(), "one");
  EXPECT_EQ(job.display_name(), "a product");
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_TRUE(job.has_create_time());
  EXPECT_FALSE(job.has_start_time());
  EXPECT_FALSE(job.has_expire_time());
  EXPECT_FALSE(job.plan().program_fingerprint().empty());
  EXPECT_EQ(job.plan().path().steps_size(), 1);
  EXPECT_EQ(job.result_spec().dtype(), v1::DATA_TYPE_FLOAT64);
  EXPECT_EQ(job.result_bytes(), 32);
  EXPECT_EQ(job.groups_total(), 1);
  EXPECT_GE(job.stored_bytes(), 64);
  server().StartRunner();
  const v1::Job ended = server().Wait(job.name());
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(ended.has_start_time());
  EXPECT_TRUE(ended.has_end_time());
  EXPECT_TRUE(ended.has_expire_time());
  EXPECT_EQ(ended.report().plan().program_fingerprint(), job.plan().program_fingerprint());
  EXPECT_EQ(ended.report().sets(), 1);
  EXPECT_EQ(ended.groups_done(), 1);
}

TEST_F(JobServiceTest, TheSameRequestIdReturnsTheJob) {
  const auto first = server().Submit(ProductJob("one"));
  const auto again = server().Submit(ProductJob("one"));
  ASSERT_EQ(Summary(again.status), "OK");
  EXPECT_TRUE(again.response.existed());
  EXPECT_EQ(again.response.job().name(), first.response.job().name());
  EXPECT_EQ(again.response.planned_peak_bytes(), first.response.planned_peak_bytes());
  v1::SubmitContractionHeader other = ProductJob("one");
  other.set_display_name("other");
  EXPECT_EQ(Refusal(other), "ALREADY_EXISTS ALREADY_EXISTS header.contraction.request_id");
  // Without one every submission is a job of its own.
  const auto anonymous = server().Submit(ProductJob(""));
  EXPECT_FALSE(anonymous.response.job().request_id().empty());
  EXPECT_NE(server().Submit(ProductJob("")).response.job().name(), anonymous.response.job().name());
  EXPECT_FALSE(server().Submit(ProductJob("one"), {}, "somebody").response.existed());
}

TEST_F(JobServiceTest, HeadersAreRefused) {
  options_.run = false;
  const auto with = [](const auto& change) {
    v1::SubmitContractionHeader header = ProductJob("one");
    change(&header);
    return header;
  };
  using Header = v1::SubmitContractionHeader*;
  EXPECT_EQ(Refusal(with([](Header h) {
              h->mutable_contraction()->mutable_network()->mutable_operands(1)->set_varying(true);
            })),
            "INVALID_ARGUMENT BAD_PARAMETER header.contraction.network.operands[1].varying");
  EXPECT_EQ(Refusal(with([](Header h) { h->clear_contraction(); })),
            "INVALID_ARGUMENT MISSING_FIELD header.contraction.network");
  EXPECT_EQ(Refusal(with([](Header h) { h->set_display_name(std::string(257, 'x')); })),
            "INVALID_ARGUMENT BAD_PARAMETER header.display_name");
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(Refusal(with([&](Header h) { h->set_ttl_seconds(bad); })),
              "INVALID_ARGUMENT BAD_PARAMETER header.ttl_seconds");
    EXPECT_EQ(Refusal(with([&](Header h) { h->set_max_run_seconds(bad); })),
              "INVALID_ARGUMENT BAD_PARAMETER header.max_run_seconds");
  }
  EXPECT_EQ(Refusal(with([](Header h) {
              h->mutable_contraction()->mutable_execution()->add_providers("none");
            })),
            "INVALID_ARGUMENT UNKNOWN_PROVIDER header.contraction.execution.providers[0]");
  EXPECT_EQ(Refusal(with([](Header h) {
              h->mutable_contraction()->mutable_execution()->set_required_fingerprint("other");
            })),
            "FAILED_PRECONDITION FINGERPRINT_MISMATCH "
            "header.contraction.execution.required_fingerprint");
  EXPECT_EQ(Refusal(with([](Header h) {
              h->mutable_contraction()->mutable_execution()->set_memory_budget_bytes(16);
            })),
            "RESOURCE_EXHAUSTED EXCEEDS_MEMORY_BUDGET "
            "header.contraction.execution.memory_budget_bytes");
  v1::ListJobsResponse list;
  EXPECT_TRUE(server().List({}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
}

TEST_F(JobServiceTest, WhatTheStoreCannotHoldIsRefusedBeforeAChunkIsRead) {
  options_.settings.budget_bytes = int64_t{2} << 20;
  v1::SubmitContractionHeader header;
  AddOperand(header.mutable_contraction(), {"i"}, v1::DATA_TYPE_FLOAT64, {1 << 19});
  SetOutput(header.mutable_contraction(), {});
  v1::SubmitContractionResponse response;
  grpc::ClientContext context;
  const auto stream = server().stub().SubmitContraction(&context, &response);
  v1::SubmitContractionRequest frame;
  *frame.mutable_header() = header;
  stream->Write(frame);
  // Nothing more is sent, and the stream stays open.
  EXPECT_EQ(Summary(stream->Finish()), "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT header");
  EXPECT_EQ(Refusal(ProductJob("one")), "OK");
}

TEST_F(JobServiceTest, ADrainingServerTakesNoJobs) {
  server().state().lifecycle.MoveTo(ServerPhase::kLameDuck);
  server().state().lifecycle.MoveTo(ServerPhase::kDraining);
  EXPECT_EQ(Refusal(ProductJob("one")), "UNAVAILABLE DRAINING ");
}

TEST_F(JobServiceTest, WithoutAStoreNothingIsOffered) {
  std::unique_ptr<grpc::Service> service;
  ContractionServerOptions options;
  options.extend = [&](ServerState* state, grpc::ServerBuilder* builder) {
    service = MakeJobService(state);
    builder->RegisterService(service.get());
  };
  {
    ContractionTestServer plain(options);
    const auto stub = v1::JobService::NewStub(plain.channel());
    grpc::ClientContext contexts[3];
    v1::GetJobResponse got;
    EXPECT_EQ(Summary(stub->GetJob(&contexts[0], {}, &got)), "UNIMPLEMENTED NOT_IMPLEMENTED ");
    v1::CancelJobResponse cancelled;
    EXPECT_EQ(Summary(stub->CancelJob(&contexts[1], {}, &cancelled)),
              "UNIMPLEMENTED NOT_IMPLEMENTED ");
    v1::SubmitContractionResponse submitted;
    EXPECT_EQ(Summary(stub->SubmitContraction(&contexts[2], &submitted)->Finish()),
              "UNIMPLEMENTED NOT_IMPLEMENTED ");
  }
}

TEST_F(JobServiceTest, JobsBelongToTheirOwner) {
  const std::string mine = server().Submit(ProductJob("one"), {}, "me").response.job().name();
  server().Submit(ProductJob("two"), {}, "you");
  v1::Job job;
  ASSERT_EQ(Summary(server().Get(mine, &job, "me")), "OK");
  EXPECT_EQ(job.owner(), "me");
  constexpr char kNotFound[] = "NOT_FOUND NOT_FOUND name";
  EXPECT_EQ(Summary(server().Get(mine, &job, "you")), kNotFound);
  EXPECT_EQ(Summary(server().Cancel(mine, nullptr, "you")), kNotFound);
  EXPECT_EQ(Summary(server().Delete(mine, nullptr, "you")), kNotFound);
  v1::ReadResultRequest read;
  read.set_name(mine);
  EXPECT_EQ(Summary(server().ReadResult(read, "you").status), kNotFound);
  v1::ListJobsRequest request;
  v1::ListJobsResponse list;
  ASSERT_TRUE(server().List(request, &list, "you").ok());
  ASSERT_EQ(list.jobs_size(), 1);
  EXPECT_EQ(list.jobs(0).request_id(), "two");
  request.set_all_owners(true);
  EXPECT_EQ(Summary(server().List(request, &list, "you")),
            "PERMISSION_DENIED PERMISSION_DENIED all_owners");
  ASSERT_TRUE(server().List(request, &list, "root").ok());
  EXPECT_EQ(list.jobs_size(), 2);
}

// What fills the store or keeps it busy can be looked at and put out; results are their owner's.
TEST_F(JobServiceTest, AdministratorsEndOthersJobs) {
  options_.run = false;
  const std::string name = server().Submit(ProductJob("one"), {}, "me").response.job().name();
  v1::Job job;
  ASSERT_EQ(Summary(server().Get(name, &job, "root")), "OK");
  EXPECT_EQ(job.owner(), "me");
  EXPECT_EQ(Summary(server().Cancel(name, nullptr, "root")), "OK");
  v1::ReadResultRequest read;
  read.set_name(name);
  EXPECT_EQ(Summary(server().ReadResult(read, "root").status), "NOT_FOUND NOT_FOUND name");
  EXPECT_EQ(Summary(server().Delete(name, nullptr, "root")), "OK");
  EXPECT_EQ(Summary(server().Get(name, &job, "me")), "NOT_FOUND NOT_FOUND name");
}

TEST_F(JobServiceTest, ListsComeInPagesTheNewestFirst) {
  options_.run = false;
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) {
    names.push_back(server().Submit(ProductJob(std::to_string(i))).response.job().name());
  }
  server().Cancel(names[1]);
  v1::ListJobsRequest request;
  request.set_page_size(2);
  request.add_states(v1::JOB_STATE_QUEUED);
  std::vector<std::string> seen;
  for (int page = 0; page < 2; ++page) {
    v1::ListJobsResponse list;
    ASSERT_TRUE(server().List(request, &list).ok());
    EXPECT_EQ(list.jobs_size(), 2);
    EXPECT_EQ(list.next_page_token().empty(), page == 1);
    for (const v1::Job& job : list.jobs()) {
      seen.push_back(job.name());
      EXPECT_FALSE(job.plan().has_path());
    }
    request.set_page_token(list.next_page_token());
  }
  EXPECT_EQ(seen, (std::vector<std::string>{names[4], names[3], names[2], names[0]}));
  request.Clear();
  request.add_states(v1::JOB_STATE_UNSPECIFIED);
  v1::ListJobsResponse list;
  ASSERT_TRUE(server().List(request, &list).ok());
  EXPECT_EQ(list.jobs_size(), 5);
}

TEST_F(JobServiceTest, BadPagesAreRefused) {
  const auto list = [&](int32_t size, const std::string& token, int state) {
    v1::ListJobsRequest request;
    v1::ListJobsResponse response;
    request.set_page_size(size);
    request.set_page_token(token);
    request.add_states(static_cast<v1::JobState>(state));
    return Summary(server().List(request, &response));
  };
  EXPECT_EQ(list(0, "", 1), "OK");
  EXPECT_EQ(list(-1, "", 1), "INVALID_ARGUMENT BAD_PARAMETER page_size");
  EXPECT_EQ(list(1001, "", 1), "INVALID_ARGUMENT BAD_PARAMETER page_size");
  EXPECT_EQ(list(1, "", 99), "INVALID_ARGUMENT BAD_PARAMETER states[0]");
  for (const char* token : {"x", "v1.jobs.", "v1.jobs.-3", "v1.jobs.1x", "v1.12.tensors/abc"}) {
    EXPECT_EQ(list(1, token, 1), "INVALID_ARGUMENT BAD_PARAMETER page_token") << token;
  }
}

// A result of two and a half pieces of the store.
class JobReadTest : public JobServiceTest {
 protected:
  void SetUp() override {
    v1::SubmitContractionHeader header;
    v1::ContractHeader* contraction = header.mutable_contraction();
    std::vector<std::complex<double>> rows, columns;
    for (int i = 0; i < 640; ++i) rows.emplace_back(i + 1);
    for (int i = 0; i < 512; ++i) columns.emplace_back(1.0 / (i + 1));
    AddOperand(contraction, {"i"}, v1::DATA_TYPE_FLOAT64, {640}, rows);
    AddOperand(contraction, {"j"}, v1::DATA_TYPE_FLOAT64, {512}, columns);
    SetOutput(contraction, {"i", "j"});
    request_.set_name(server().Submit(header).response.job().name());
    ASSERT_EQ(server().Wait(request_.name()).state(), v1::JOB_STATE_SUCCEEDED);
    for (const auto& row : rows) {
      std::vector<std::complex<double>> products;
      for (const auto& column : columns) products.push_back(row.real() * column.real());
      expected_ += Encode(v1::DATA_TYPE_FLOAT64, products);
    }
  }

  v1::ReadResultRequest request_;
  std::string expected_;
};

TEST_F(JobReadTest, AnyRangeInChunksOfAnySize) {
  const auto size = static_cast<int64_t>(expected_.size());
  ASSERT_GT(size, 2 * JobStore::kPieceBytes);
  for (const int64_t offset :
       {int64_t{0}, int64_t{1}, JobStore::kPieceBytes - 1, JobStore::kPieceBytes, size - 1, size}) {
    for (const int32_t chunk : {4096, 100'000, 1 << 20, 4193280}) {
      request_.set_offset_bytes(offset);
      request_.set_chunk_bytes(chunk);
      request_.set_checksums(true);
      const auto read = server().ReadResult(request_);
      ASSERT_EQ(Summary(read.status), "OK");
      EXPECT_EQ(read.order_error, "");
      EXPECT_EQ(read.chunks, (size - offset + chunk - 1) / chunk);
      EXPECT_EQ(read.checked_chunks, read.chunks);
      EXPECT_TRUE(read.bytes == expected_.substr(static_cast<size_t>(offset)));
      EXPECT_EQ(read.result->spec().shape(0), 640);
    }
  }
  EXPECT_TRUE(server().contraction().AllReleased());
}

TEST_F(JobReadTest, ALimitEndsIt) {
  request_.set_offset_bytes(1000);
  for (const int64_t limit : {int64_t{0}, int64_t{1}, int64_t{2'000'000}, int64_t{1} << 40}) {
    request_.set_limit_bytes(limit);
    const auto read = server().ReadResult(request_);
    EXPECT_EQ(Summary(read.status), "OK");
    EXPECT_TRUE(read.bytes == expected_.substr(1000, static_cast<size_t>(limit)));
    EXPECT_EQ(read.checked_chunks, 0);
  }
}

TEST_F(JobReadTest, BadRangesAreRefused) {
  const auto refused = [&](const auto& change) {
    v1::ReadResultRequest request = request_;
    change(&request);
    return Summary(server().ReadResult(request).status);
  };
  using Request = v1::ReadResultRequest*;
  const auto beyond = static_cast<int64_t>(expected_.size()) + 1;
  for (const int64_t offset : {int64_t{-1}, beyond}) {
    EXPECT_EQ(refused([&](Request r) { r->set_offset_bytes(offset); }),
              "INVALID_ARGUMENT BAD_PARAMETER offset_bytes");
  }
  for (const int32_t chunk : {0, 4095, 4193281}) {
    EXPECT_EQ(refused([&](Request r) { r->set_chunk_bytes(chunk); }),
              "INVALID_ARGUMENT BAD_PARAMETER chunk_bytes");
  }
  EXPECT_EQ(refused([&](Request r) { r->set_limit_bytes(-1); }),
            "INVALID_ARGUMENT BAD_PARAMETER limit_bytes");
  EXPECT_EQ(refused([&](Request r) { r->set_name("jobs/x"); }), "NOT_FOUND NOT_FOUND name");
}

TEST_F(JobReadTest, DeletingFreesWhatItHeld) {
  int64_t freed = 0;
  EXPECT_EQ(Summary(server().Delete(request_.name(), &freed)), "OK");
  EXPECT_GE(freed, static_cast<int64_t>(expected_.size()));
  EXPECT_EQ(Summary(server().ReadAll(request_.name()).status), "NOT_FOUND NOT_FOUND name");
}

}  // namespace
}  // namespace tenon::server
