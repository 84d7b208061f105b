// The jobs of a Client.

#include "tenon/job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "client/cpp/call_context.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/contract_upload.h"
#include "client/cpp/retrier.h"
#include "client/cpp/status.h"
#include "client/cpp/wire.h"
#include "tenon/client.h"

namespace tenon::client {
namespace {

// The frames of both streams have the same parts.
v1::SubmitContractionRequest FrameOfJob(const v1::ContractRequest& frame) {
  v1::SubmitContractionRequest out;
  if (frame.has_chunk()) *out.mutable_chunk() = frame.chunk();
  if (frame.has_operand_set()) *out.mutable_operand_set() = frame.operand_set();
  return out;
}

absl::Status CheckRequest(const JobRequest& request) {
  if (request.contraction.next_set) {
    return Error(Reason::kBadParameter, "a job has one set of operands").Field("next_set");
  }
  return absl::OkStatus();
}

v1::SubmitContractionHeader HeaderOfJob(const JobRequest& request, const ContractUpload& upload) {
  v1::SubmitContractionHeader header;
  *header.mutable_contraction() = upload.header().header();
  header.set_display_name(request.display_name);
  if (request.ttl.has_value()) header.set_ttl_seconds(absl::ToDoubleSeconds(*request.ttl));
  if (request.max_run_time.has_value()) {
    header.set_max_run_seconds(absl::ToDoubleSeconds(*request.max_run_time));
  }
  return header;
}

// A result that may come in several reads.
class ResultReader {
 public:
  bool complete() const { return begun_ && assembler_.complete(); }
  int64_t filled_bytes() const { return begun_ ? assembler_.filled_bytes() : 0; }

  absl::Status Add(const v1::ReadResultResponse& frame) {
    if (frame.has_result() == in_read_) {
      return BrokenContract(in_read_ ? "the result is described twice"
                                     : "a chunk comes before the result is described");
    }
    if (frame.has_result()) return Begin(frame.result());
    if (!frame.has_chunk()) return BrokenContract("a frame is empty or of an unknown kind");
    return assembler_.Append(frame.chunk());
  }
  void EndRead() { in_read_ = false; }

  absl::StatusOr<JobResult> Take() {
    const v1::SetReport& report = head_.report();
    if (report.has_result_crc32c() &&
        Crc32c(AsText(assembler_.bytes())) != report.result_crc32c()) {
      return BadChecksum("the result of the job");
    }
    JobResult result;
    result.tensor = assembler_.Take();
    if (head_.has_log10_scale()) result.log10_scale = head_.log10_scale();
    result.report = report;
    return result;
  }

 private:
  absl::Status Begin(const v1::ContractResult& result) {
    in_read_ = true;
    if (begun_) return absl::OkStatus();
    TENON_ASSIGN_OR_RETURN(const TensorSpec spec, FromWire(result.spec()));
    TENON_RETURN_IF_ERROR(assembler_.Begin(spec));
    head_ = result;
    begun_ = true;
    return absl::OkStatus();
  }

  bool begun_ = false;    // the memory is there
  bool in_read_ = false;  // this read has described the result
  v1::ContractResult head_;
  TensorAssembler assembler_;
};

// Whether the same read may do better: no server answered, or this one could not.
bool MayResume(const absl::Status& status) {
  return IsUnreachable(status) || status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kResourceExhausted ||
         status.code() == absl::StatusCode::kAborted;
}

}  // namespace

absl::StatusOr<v1::SubmitContractionResponse> Client::SubmitJob(const JobRequest& request,
                                                                const CallOptions& options) {
  v1::SubmitContractionResponse response;
  TENON_RETURN_IF_ERROR(CatchExceptions([&]() -> absl::Status {
    TENON_RETURN_IF_ERROR(CheckRequest(request));
    // The same id at every try: what an earlier one has stored is found again.
    const std::string& given = request.contraction.request_id;
    const std::string id = given.empty() ? NewRequestId() : given;
    return impl_->Repeating(
        options, [&](const CallOptions& left) { return SubmitOnce(request, id, left, &response); },
        [] { return true; });
  }));
  return response;
}

absl::Status Client::SubmitOnce(const JobRequest& request, const std::string& request_id,
                                const CallOptions& options,
                                v1::SubmitContractionResponse* response) {
  TENON_ASSIGN_OR_RETURN(ContractUpload upload, ContractUpload::Create(request.contraction));
  upload.SetRequestId(request_id);
  CallContext context(options, impl_->options.default_timeout, impl_->endpoint);
  const auto stream = impl_->job->SubmitContraction(context.get(), response);
  v1::SubmitContractionRequest first;
  *first.mutable_header() = HeaderOfJob(request, upload);
  absl::Status local;
  if (stream->Write(first) && !upload.header_is_all()) {
    local = upload.SendRest(impl_->options.chunk_bytes, [&](const v1::ContractRequest& frame) {
      return stream->Write(FrameOfJob(frame));
    });
  }
  if (!local.ok()) context.get()->TryCancel();
  stream->WritesDone();
  const absl::Status status =
      StatusFromGrpc(stream->Finish(), impl_->endpoint.address, impl_->endpoint.connected());
  return local.ok() ? status : local;
}

absl::StatusOr<v1::Job> Client::GetJob(const std::string& name, const CallOptions& options) {
  v1::GetJobRequest request;
  request.set_name(name);
  auto response = impl_->Unary(impl_->job, &v1::JobService::Stub::GetJob, request, options);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::ListJobsResponse> Client::ListJobs(const v1::ListJobsRequest& request,
                                                      const CallOptions& options) {
  return impl_->Unary(impl_->job, &v1::JobService::Stub::ListJobs, request, options);
}

absl::StatusOr<v1::Job> Client::CancelJob(const std::string& name, const CallOptions& options) {
  v1::CancelJobRequest request;
  request.set_name(name);
  auto response = impl_->Unary(impl_->job, &v1::JobService::Stub::CancelJob, request, options);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<int64_t> Client::DeleteJob(const std::string& name, const CallOptions& options) {
  v1::DeleteJobRequest request;
  request.set_name(name);
  auto response =
      impl_->Unary(impl_->job, &v1::JobService::Stub::DeleteJob, request, options, Twice::kDiffers);
  if (!response.ok()) return response.status();
  return response->freed_bytes();
}

absl::StatusOr<v1::Job> Client::WatchJob(const std::string& name, const CallOptions& options,
                                         const JobCallbacks& callbacks,
                                         const JobWatchOptions& watch) {
  v1::WatchJobRequest request;
  request.set_name(name);
  request.set_progress_interval_seconds(absl::ToDoubleSeconds(watch.progress_interval));
  std::optional<v1::Job> job;
  TENON_RETURN_IF_ERROR(CatchExceptions([&]() -> absl::Status {
    Retrier retrier(options, impl_->options.default_timeout, watch.retry, MayResume, false);
    for (;;) {
      bool came = false;
      const absl::Status ended = WatchOnce(request, retrier.options(), [&](const auto& frame) {
        came = true;
        retrier.Heard();
        if (frame.has_progress() && callbacks.on_progress) callbacks.on_progress(frame.progress());
        if (!frame.has_job()) return;
        job = frame.job();
        if (callbacks.on_job) callbacks.on_job(*job);
      });
      if (ended.ok() || !retrier.Again(ended, came)) return ended;
    }
  }));
  if (!job.has_value()) return BrokenContract("the watch ended without a job");
  return *std::move(job);
}

absl::Status Client::WatchOnce(const v1::WatchJobRequest& request, const CallOptions& options,
                               const std::function<void(const v1::WatchJobResponse&)>& add) {
  CallContext context(options, impl_->options.default_timeout, impl_->endpoint);
  const auto stream = impl_->job->WatchJob(context.get(), request);
  v1::WatchJobResponse frame;
  while (stream->Read(&frame)) add(frame);
  return StatusFromGrpc(stream->Finish(), impl_->endpoint.address, impl_->endpoint.connected());
}

absl::StatusOr<JobResult> Client::ReadJobResult(const std::string& name, const CallOptions& options,
                                                const JobRetry& retry) {
  absl::StatusOr<JobResult> result = absl::UnknownError("");
  const absl::Status status = CatchExceptions([&]() -> absl::Status {
    ResultReader reader;
    Retrier retrier(options, impl_->options.default_timeout, retry, MayResume, false);
    for (;;) {
      const int64_t before = reader.filled_bytes();
      const absl::Status ended = ReadOnce(name, retrier.options(), before, [&](const auto& frame) {
        retrier.Heard();
        return reader.Add(frame);
      });
      reader.EndRead();
      if (ended.ok() && reader.complete()) break;
      if (ended.ok()) return BrokenContract("the read ended with OK before the result did");
      if (!retrier.Again(ended, reader.filled_bytes() > before)) return ended;
    }
    result = reader.Take();
    return result.status();
  });
  if (!status.ok()) return status;
  return result;
}

absl::Status Client::ReadOnce(
    const std::string& name, const CallOptions& options, int64_t offset,
    const std::function<absl::Status(const v1::ReadResultResponse&)>& add) {
  v1::ReadResultRequest request;
  request.set_name(name);
  request.set_offset_bytes(offset);
  request.set_checksums(true);
  CallContext context(options, impl_->options.default_timeout, impl_->endpoint);
  const auto stream = impl_->job->ReadResult(context.get(), request);
  v1::ReadResultResponse frame;
  absl::Status local;
  while (local.ok() && stream->Read(&frame)) local = add(frame);
  if (!local.ok()) context.get()->TryCancel();
  while (stream->Read(&frame)) {
  }
  const absl::Status status =
      StatusFromGrpc(stream->Finish(), impl_->endpoint.address, impl_->endpoint.connected());
  return local.ok() ? status : local;
}

}  // namespace tenon::client
