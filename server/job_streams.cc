#include "server/job_streams.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backends/core/crc32c.h"
#include "backends/core/error.h"
#include "server/contraction_checks.h"
#include "server/job_board.h"
#include "server/ticker.h"
#include "server/unary.h"
#include "server/write_stream.h"

namespace tenon::server {
namespace {

constexpr double kDefaultInterval = 5;
constexpr int64_t kMinChunkBytes = 4096;

class WatchCall final : public WriteStream<v1::WatchJobResponse>, public JobListener {
 public:
  WatchCall(grpc::CallbackServerContext* context, ServerState* state, std::string owner,
            const v1::WatchJobRequest& request)
      : WriteStream(context, &state->watchdog),
        board_(*state->jobs),
        owner_(std::move(owner)),
        request_(request),
        record_(&state->metrics, Method::kJob, "tenon.v1.JobService/WatchJob") {}

 private:
  std::shared_ptr<WatchCall> self() {
    return std::static_pointer_cast<WatchCall>(shared_from_this());
  }

  void OnBegin() override {
    const absl::Status status = Follow();
    if (!status.ok()) End(status);
  }

  absl::Status Follow() {
    double interval = kDefaultInterval;
    if (request_.has_progress_interval_seconds()) {
      interval = request_.progress_interval_seconds();
      TENON_RETURN_IF_ERROR(CheckPositive(interval, "progress_interval_seconds"));
    }
    TENON_RETURN_IF_ERROR(board_.Watch(owner_, request_.name(), self()));
    const std::weak_ptr<WatchCall> weak = self();
    ticker_ = std::make_unique<Ticker>(interval, [weak] {
      if (const auto call = weak.lock()) call->SendProgress();
    });
    return absl::OkStatus();
  }

  void Note(const v1::Job& job) override {
    std::lock_guard lock(notes_mutex_);
    notes_.push_back(job);
  }

  void Wake() override {
    // Held while writing, so that two that wake it do not mix the order.
    std::lock_guard lock(notes_mutex_);
    for (v1::Job& job : notes_) {
      const bool last = HasEnded(job.state());
      v1::WatchJobResponse frame;
      *frame.mutable_job() = std::move(job);
      Write(std::move(frame));
      if (last) End(absl::OkStatus());
    }
    notes_.clear();
  }

  void Stopped() override { End(JobsStopped()); }

  void SendProgress() {
    if (!drained()) return;
    auto progress = board_.ProgressOf(owner_, request_.name());
    if (!progress.has_value()) return;
    v1::WatchJobResponse frame;
    *frame.mutable_progress() = *std::move(progress);
    Write(std::move(frame));
  }

  void OnEnd(const absl::Status& outcome) override {
    ticker_.reset();
    record_.End(outcome);
  }

  JobBoard& board_;
  const std::string owner_;
  const v1::WatchJobRequest request_;
  CallRecord record_;
  std::unique_ptr<Ticker> ticker_;
  std::mutex notes_mutex_;
  std::vector<v1::Job> notes_;
};

// Holds one piece of the result and one chunk at a time, whatever the size of the result.
class ReadCall final : public WriteStream<v1::ReadResultResponse> {
 public:
  ReadCall(grpc::CallbackServerContext* context, ServerState* state, std::string owner,
           const v1::ReadResultRequest& request)
      : WriteStream(context, &state->watchdog),
        state_(state),
        board_(*state->jobs),
        owner_(std::move(owner)),
        request_(request),
        record_(&state->metrics, Method::kJob, "tenon.v1.JobService/ReadResult") {}

 private:
  void OnBegin() override { OnWritten(); }

  void OnWritten() override {
    state_->listing.Continue([self = std::static_pointer_cast<ReadCall>(shared_from_this())] {
      if (self->ended()) return;
      const absl::Status status = AnswerWithinMemory([&] { return self->SendNext(); });
      if (!status.ok()) self->End(status);
    });
  }

  absl::Status SendNext() {
    if (!begun_) return SendHead();
    if (offset_ == end_) {
      End(absl::OkStatus());
      return absl::OkStatus();
    }
    return SendChunk();
  }

  absl::Status SendHead() {
    begun_ = true;
    TENON_ASSIGN_OR_RETURN(const auto found, board_.FindResult(owner_, request_.name()));
    number_ = found.first;
    TENON_RETURN_IF_ERROR(ReadRange(found.second));
    chunk_bytes_ = state_->limits.default_chunk_bytes;
    if (request_.has_chunk_bytes()) {
      chunk_bytes_ = request_.chunk_bytes();
      if (chunk_bytes_ < kMinChunkBytes || chunk_bytes_ > state_->limits.max_chunk_bytes) {
        return OutOfRange("chunk_bytes",
                          StrCat(kMinChunkBytes, " to ", state_->limits.max_chunk_bytes, " bytes"),
                          StrCat(chunk_bytes_));
      }
    }
    // A piece, a chunk, and the chunk's message.
    TENON_ASSIGN_OR_RETURN(memory_,
                           state_->budget.Reserve(JobStore::kPieceBytes + 2 * chunk_bytes_));
    TENON_ASSIGN_OR_RETURN(const std::string bytes,
                           Checked(board_.store().ReadAll(number_, JobData::kResultHead)));
    v1::ReadResultResponse frame;
    if (!frame.mutable_result()->ParseFromString(bytes)) {
      return Error(Reason::kChecksumMismatch, "the result's description does not parse");
    }
    Write(std::move(frame));
    return absl::OkStatus();
  }

  absl::Status ReadRange(int64_t size) {
    offset_ = request_.offset_bytes();
    if (offset_ < 0 || offset_ > size) {
      return OutOfRange("offset_bytes", StrCat("0 to ", size, " bytes"), StrCat(offset_));
    }
    end_ = size;
    if (!request_.has_limit_bytes()) return absl::OkStatus();
    if (request_.limit_bytes() < 0) {
      return OutOfRange("limit_bytes", "at least 0", StrCat(request_.limit_bytes()));
    }
    end_ = offset_ + std::min(request_.limit_bytes(), size - offset_);
    return absl::OkStatus();
  }

  absl::Status SendChunk() {
    v1::ReadResultResponse frame;
    v1::TensorChunk* chunk = frame.mutable_chunk();
    chunk->set_offset_bytes(offset_);
    std::string& data = *chunk->mutable_data();
    const int64_t end = std::min(offset_ + chunk_bytes_, end_);
    data.reserve(static_cast<size_t>(end - offset_));
    while (offset_ < end) {
      TENON_RETURN_IF_ERROR(LoadPiece(offset_ / JobStore::kPieceBytes));
      const int64_t from = offset_ % JobStore::kPieceBytes;
      const int64_t count =
          std::min(end - offset_, static_cast<int64_t>(piece_bytes_.size()) - from);
      if (count <= 0) return Error(Reason::kChecksumMismatch, "the result in the store is cut");
      data.append(piece_bytes_, static_cast<size_t>(from), static_cast<size_t>(count));
      offset_ += count;
    }
    if (request_.checksums()) chunk->set_crc32c(Crc32c(data));
    sent_bytes_ += static_cast<int64_t>(data.size());
    Write(std::move(frame));
    return absl::OkStatus();
  }

  absl::Status LoadPiece(int64_t piece) {
    if (piece == piece_) return absl::OkStatus();
    TENON_ASSIGN_OR_RETURN(piece_bytes_,
                           Checked(board_.store().ReadPiece(number_, JobData::kResult, piece)));
    piece_ = piece;
    return absl::OkStatus();
  }

  // What is missing because the job was deleted meanwhile is no damage.
  absl::StatusOr<std::string> Checked(absl::StatusOr<std::string> bytes) {
    if (bytes.ok()) return bytes;
    TENON_RETURN_IF_ERROR(board_.FindResult(owner_, request_.name()).status());
    return bytes;
  }

  void OnEnd(const absl::Status& outcome) override {
    state_->metrics.AddPayloadBytes(Method::kJob, Direction::kSent, sent_bytes_);
    record_.End(outcome);
  }

  ServerState* const state_;
  JobBoard& board_;
  const std::string owner_;
  const v1::ReadResultRequest request_;
  CallRecord record_;
  Reservation memory_;
  // The rest belongs to the task in `listing`, of which there is one at a time.
  bool begun_ = false;
  int64_t number_ = 0;
  int64_t offset_ = 0, end_ = 0, chunk_bytes_ = 0;
  int64_t piece_ = -1;
  std::string piece_bytes_;
  std::atomic<int64_t> sent_bytes_ = 0;
};

}  // namespace

grpc::ServerWriteReactor<v1::WatchJobResponse>* StartWatchJob(grpc::CallbackServerContext* context,
                                                              ServerState* state,
                                                              const std::string& owner,
                                                              const v1::WatchJobRequest& request) {
  auto call = std::make_shared<WatchCall>(context, state, owner, request);
  call->Begin();
  return call.get();
}

grpc::ServerWriteReactor<v1::ReadResultResponse>* StartReadResult(
    grpc::CallbackServerContext* context, ServerState* state, const std::string& owner,
    const v1::ReadResultRequest& request) {
  auto call = std::make_shared<ReadCall>(context, state, owner, request);
  call->Begin();
  return call.get();
}

}  // namespace tenon::server
