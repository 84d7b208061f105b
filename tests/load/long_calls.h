// Measurements, searches and jobs that run for seconds, for who ends them early.

#ifndef TENON_TESTS_LOAD_LONG_CALLS_H_
#define TENON_TESTS_LOAD_LONG_CALLS_H_

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenon/v1/job.grpc.pb.h"
#include "tenon/v1/measurement.grpc.pb.h"
#include "tests/load/load_fixture.h"
#include "tests/support/temporary_folder.h"

namespace tenon::testing {

class LongCallsTest : public LoadServerTest {
 protected:
  using MeasureStream = grpc::ClientReaderWriter<v1::MeasureRequest, v1::MeasureResponse>;

  void TearDown() override { server_.reset(); }  // before its folder

  server::Config ConfigWithJobs() const {
    server::Config config = TestConfig();
    config.state_dir = folder_.path();
    config.state_budget_bytes = 1024 * kMiB;
    return config;
  }

  // `columns` coordinates of so many rows, all different.
  static std::string Rows(int64_t rows, int64_t columns, int64_t seed) {
    std::vector<double> values(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<double>(i + 1) * (1 + 0.1 * static_cast<double>(seed)));
    }
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
  }
  static void SetMatrix(int64_t rows, int64_t columns, v1::TensorSpec* spec) {
    spec->set_dtype(v1::DATA_TYPE_FLOAT64);
    spec->add_shape(rows);
    spec->add_shape(columns);
  }

  // A stream of projections of a data set of 3 columns.
  static v1::MeasureRequest MeasureHeader(int64_t rows) {
    v1::MeasureRequest request;
    v1::MeasureSpec* spec = request.mutable_header()->add_specs();
    spec->set_id("tnc");
    spec->mutable_trustworthiness_continuity()->set_k(20);
    SetMatrix(rows, 3, request.mutable_header()->mutable_dataset_input()->mutable_spec());
    request.mutable_header()->mutable_client_stream();
    return request;
  }
  static bool SendDataset(int64_t rows, MeasureStream* stream) {
    v1::MeasureRequest request;
    request.mutable_dataset_chunk()->set_data(Rows(rows, 3, 0));
    return stream->Write(request);
  }
  static v1::MeasureRequest ProjectionOf(int64_t rows, int64_t index) {
    v1::MeasureRequest request;
    request.mutable_projection()->set_index(index);
    SetMatrix(rows, 2, request.mutable_projection()->mutable_spec());
    request.mutable_projection()->set_inline_data(Rows(rows, 2, 1 + index % 10));
    return request;
  }

  // A lattice of 12 x 12 tensors, searched for two minutes.
  static v1::PlanContractionRequest LongSearch(double progress_interval) {
    constexpr int kWidth = 12;
    v1::PlanContractionRequest request;
    for (int t = 0; t < kWidth * kWidth; ++t) {
      v1::Operand* operand = request.mutable_network()->add_operands();
      const auto bond = [operand](int a, int b) {
        operand->add_indices(std::to_string(a) + "-" + std::to_string(b));
        operand->mutable_spec()->add_shape(2);
      };
      operand->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT64);
      if (t % kWidth > 0) bond(t - 1, t);
      if (t % kWidth < kWidth - 1) bond(t, t + 1);
      if (t >= kWidth) bond(t - kWidth, t);
      if (t < kWidth * (kWidth - 1)) bond(t, t + kWidth);
    }
    request.mutable_search()->set_max_time_seconds(120);
    request.mutable_search()->set_cache(v1::PLAN_CACHE_POLICY_BYPASS);
    request.mutable_execution()->set_progress_interval_seconds(progress_interval);
    return request;
  }

  // The name of a job with this header and operands of zeros.
  std::string SubmitJob(const v1::ContractRequest& header) const {
    v1::SubmitContractionRequest request;
    *request.mutable_header()->mutable_contraction() = header.header();
    v1::SubmitContractionResponse response;
    grpc::ClientContext context;
    const auto writer = v1::JobService::NewStub(channel_)->SubmitContraction(&context, &response);
    writer->Write(request);
    const auto& operands = header.header().einsum().operands();
    for (int32_t operand = 0; operand < operands.size(); ++operand) {
      int64_t operand_bytes = sizeof(float);
      for (const int64_t extent : operands[operand].spec().shape()) operand_bytes *= extent;
      v1::TensorChunk* chunk = request.mutable_chunk();
      chunk->set_operand(operand);
      for (int64_t offset = 0; offset < operand_bytes; offset += kMiB) {
        chunk->set_offset_bytes(offset);
        chunk->mutable_data()->resize(static_cast<size_t>(std::min(kMiB, operand_bytes - offset)));
        writer->Write(request);
      }
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job().name();
  }
  // Half a teraflop in 8192 slices and 128 groups; returns when it runs.
  std::string SubmitLongJob() const {
    constexpr int64_t kSlices = 8192;
    v1::ContractRequest header =
        Header("ij,jk,kl->il", {{128, kSlices}, {kSlices, 1024}, {1024, 256}});
    v1::ExplicitPlan* plan = header.mutable_header()->mutable_path();
    plan->mutable_path()->set_format(v1::PATH_FORMAT_SSA);
    for (const auto& [a, b] : {std::pair{0, 1}, std::pair{3, 2}}) {
      v1::PathStep* step = plan->mutable_path()->add_steps();
      step->add_operands(a);
      step->add_operands(b);
    }
    plan->add_sliced_indices("j");
    const std::string name = SubmitJob(header);
    WaitForJob(name, v1::JOB_STATE_RUNNING);
    return name;
  }
  // Follows the job until it is in this state or has ended.
  v1::JobState WaitForJob(const std::string& name,
                          v1::JobState wanted = v1::JOB_STATE_SUCCEEDED) const {
    v1::WatchJobRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    const auto reader = v1::JobService::NewStub(channel_)->WatchJob(&context, request);
    v1::WatchJobResponse frame;
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    while (state != wanted && reader->Read(&frame)) {
      if (frame.has_job()) state = frame.job().state();
    }
    context.TryCancel();
    while (reader->Read(&frame)) {
    }
    reader->Finish();
    return state;
  }
  v1::JobState JobState(const std::string& name) const {
    v1::GetJobRequest request;
    request.set_name(name);
    v1::GetJobResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(v1::JobService::NewStub(channel_)->GetJob(&context, request, &response).ok());
    return response.job().state();
  }
  void CancelJob(const std::string& name) const {
    v1::CancelJobRequest request;
    request.set_name(name);
    v1::CancelJobResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(v1::JobService::NewStub(channel_)->CancelJob(&context, request, &response).ok());
  }

  const TemporaryFolder folder_;
};

}  // namespace tenon::testing

#endif  // TENON_TESTS_LOAD_LONG_CALLS_H_
