// Uploads of data sets and tensors: the streams CreateDataset and CreateTensor.

#ifndef TENON_SERVER_DATASET_UPLOAD_H_
#define TENON_SERVER_DATASET_UPLOAD_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "backends/core/error.h"
#include "server/bidi_stream.h"
#include "server/chunk_view.h"
#include "server/content_store.h"
#include "server/frames.h"
#include "server/principal.h"
#include "server/queue_wait.h"
#include "server/state.h"
#include "server/tensor_receiver.h"
#include "server/unary.h"
#include "server/write_watchdog.h"
#include "tenon/v1/dataset.pb.h"

namespace tenon::server {

// Descriptions as messages.
void WriteDescription(const ContentStore::Description& description, v1::Dataset* out);
void WriteDescription(const ContentStore::Description& description, v1::StoredTensor* out);

// What both kinds of upload share; knows their states, not their messages.
class UploadState {
 public:
  // The fields that both headers have.
  struct Header {
    std::string request_id, display_name, expected_sha256;
    const v1::TensorSpec* spec = nullptr;
    const std::string* inline_data = nullptr;  // null: chunks follow
    std::optional<double> ttl_seconds;
  };

  UploadState(ServerState* state, ContentStore::Kind kind) : state_(state), kind_(kind) {}

  // Whose it will be; before anything else.
  void set_owner(std::string owner) { owner_ = std::move(owner); }

  // Frames in the order of the table in dataset.proto. The header tells the bytes to reserve for
  // what will be stored; nothing else may come before Admit has got them.
  absl::StatusOr<int64_t> OnHeader(const Header& header);
  // `inline_data`: the header's.
  absl::Status Admit(Reservation memory, const std::string* inline_data);
  absl::Status OnChunk(const ChunkView& chunk);
  absl::Status OnHalfClose() const;
  // Checks the values, hashes and stores; reads all bytes. Then tells the description.
  absl::StatusOr<ContentStore::Description> Store(const CancelToken* cancel, bool* created);
  const std::string& request_id() const { return request_id_; }

 private:
  enum class State { kStart, kUpload, kComplete };
  std::string_view StateName() const;
  absl::Status CheckHeader(const Header& header) const;

  ServerState* const state_;
  const ContentStore::Kind kind_;
  std::string owner_;
  State upload_ = State::kStart;
  std::string request_id_;
  TensorSpec spec_;  // until Admit
  ContentStore::PutOptions options_;
  TensorReceiver data_;
};

// One upload. It waits for memory before it reads on, and for a slot to be stored; whoever ends the
// call takes it out of the line. Parses the frames itself, because gRPC's typed reactors can't tell
// one that does not parse from the half-close. Deletes itself after OnDone.
template <typename Request, typename Response>
class UploadReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer>, public WatchedStream {
 public:
  UploadReactor(grpc::CallbackServerContext* context, ServerState* state, ContentStore::Kind kind,
                std::string_view name, grpc::ByteBuffer* response)
      : context_(context),
        state_(state),
        record_(&state->metrics, Method::kDataset, name),
        upload_(state, kind),
        response_(response),
        cancel_(CallDeadline(*context)),
        wait_(state, cancel_.deadline()) {
    state_->watchdog.Add(this);
    const absl::Status allowed = CheckCaller(context);
    if (!allowed.ok()) {
      Release(allowed);
      return;
    }
    upload_.set_owner(CallerOf(*context));
    record_.set_caller(CallerOf(*context));
    Read();
    Release();
  }

 private:
  void OnReadDone(bool ok) override {
    {
      std::lock_guard lock(mutex_);
      waits_since_.reset();
      if (finished_) return;
      ++holders_;
    }
    Release(FailureOf([&] {
      if (ok) return OnFrame();
      return context_->IsCancelled() ? Cancelled() : OnHalfClose();
    }));
  }

  absl::Status OnFrame() {
    static constexpr int kChunkFields[] = {Request::kChunkFieldNumber};
    ++frames_;
    if (const auto split = SplitChunk(&received_, kChunkFields)) return OnChunk(split->chunk);
    TENON_RETURN_IF_ERROR(ParseFrame(frames_, &received_, &request_));
    switch (request_.frame_case()) {
      case Request::kHeader:
        return OnHeader();
      case Request::kChunk:
        return OnChunk(request_.chunk());
      case Request::FRAME_NOT_SET:
        break;
    }
    return Error(Reason::kMissingField, "the frame is empty").Field("frame");
  }

  absl::Status OnChunk(const ChunkView& chunk) {
    TENON_RETURN_IF_ERROR(upload_.OnChunk(chunk));
    Read();
    return absl::OkStatus();
  }

  const std::string* InlineData() const {
    return request_.header().has_inline_data() ? &request_.header().inline_data() : nullptr;
  }

  // Nothing is read while it waits for memory, so that request_ stays.
  absl::Status OnHeader() {
    const auto& header = request_.header();
    UploadState::Header fields;
    fields.request_id = header.request_id();
    fields.display_name = header.display_name();
    fields.expected_sha256 = header.expected_sha256();
    fields.spec = &header.spec();
    fields.inline_data = InlineData();
    if (header.has_ttl_seconds()) fields.ttl_seconds = header.ttl_seconds();
    TENON_ASSIGN_OR_RETURN(const int64_t bytes, upload_.OnHeader(fields));
    Hold();
    auto reserved = wait_.ForMemory(
        &state_->budget, bytes,
        [this](Reservation memory) {
          auto held = std::make_shared<Reservation>(std::move(memory));
          state_->executor.Continue(
              [this, held] { Release(FailureOf([&] { return Admit(std::move(*held)); })); });
        },
        [this](const absl::Status& why) { Release(why); });
    if (reserved.ok() && !reserved->has_value()) {
      LeaveIfOver();
      return absl::OkStatus();
    }
    Release();
    TENON_RETURN_IF_ERROR(reserved.status());
    return Admit(*std::move(*reserved));
  }

  absl::Status Admit(Reservation memory) {
    TENON_RETURN_IF_ERROR(cancel_.Check());
    TENON_RETURN_IF_ERROR(upload_.Admit(std::move(memory), InlineData()));
    Read();
    return absl::OkStatus();
  }

  // The last read is over: nothing else touches the upload while it is stored.
  absl::Status OnHalfClose() {
    TENON_RETURN_IF_ERROR(upload_.OnHalfClose());
    Hold();
    const absl::Status waits = wait_.ForSlot(
        &state_->executor, [this] { Release(Store()); },
        [this](const absl::Status& why) { Release(why); });
    if (waits.ok()) {
      LeaveIfOver();
    } else {
      Release();
    }
    return waits;
  }

  absl::Status Store() {
    try {
      wait_.Admitted();
      bool created = false;
      TENON_ASSIGN_OR_RETURN(const auto stored, upload_.Store(&cancel_, &created));
      return WriteResponse(stored, !created);
    } catch (const std::bad_alloc&) {
      return OutOfMemory();
    }
  }

  absl::Status WriteResponse(const ContentStore::Description& stored, bool existed) {
    Response response;
    if constexpr (requires { response.mutable_dataset(); }) {
      WriteDescription(stored, response.mutable_dataset());
    } else {
      WriteDescription(stored, response.mutable_tensor());
    }
    response.set_existed(existed);
    response.set_request_id(upload_.request_id());
    return SerializeFrame(response, response_);
  }

  // Of a call that gRPC says is cancelled.
  absl::Status Cancelled() {
    cancel_.Cancel(ReasonOfCancel(cancel_));
    return cancel_.Check();
  }
  static absl::Status OutOfMemory() {
    return Error(Reason::kOverloaded, "there is no memory for the upload")
        .Meta("retry_delay_seconds", 1);
  }

  // What `act` returns, unless that is OK: then the call goes on.
  template <typename Act>
  static std::optional<absl::Status> FailureOf(Act&& act) {
    try {
      const absl::Status status = act();
      if (status.ok()) return std::nullopt;
      return status;
    } catch (const std::bad_alloc&) {
      return OutOfMemory();
    }
  }

  // Whoever works on the upload holds it: the constructor, a reaction, the wait in a line and the
  // task after it, the end from outside. The call ends when nobody does and it is known how; the
  // first to know decides.
  void Hold() {
    std::lock_guard lock(mutex_);
    ++holders_;
  }
  void Release(std::optional<absl::Status> outcome = std::nullopt) {
    {
      std::lock_guard lock(mutex_);
      if (!outcome_.has_value()) outcome_ = std::move(outcome);
      if (--holders_ > 0 || !outcome_.has_value() || finished_) return;
      finished_ = true;
    }
    record_.End(*outcome_);
    Finish(ToGrpcStatus(*outcome_));
  }

  void OnCancel() override {
    const absl::Status why = Cancelled();
    if (wait_.Leave()) Release(wait_.OutcomeInQueue(why));
  }
  // The end of the call takes it out of the line, unless it came before it was there.
  void LeaveIfOver() {
    bool ended = false;
    {
      std::lock_guard lock(mutex_);
      ended = outcome_.has_value();
    }
    if ((ended || cancel_.cancelled()) && wait_.Leave()) Release(cancel_.Check());
  }
  void OnDone() override {
    state_->watchdog.Remove(this);
    delete this;
  }

  void Read() {
    {
      std::lock_guard lock(mutex_);
      waits_since_ = std::chrono::steady_clock::now();
    }
    StartRead(&received_);
  }
  ClientWaits WaitsForClient() override {
    std::lock_guard lock(mutex_);
    if (finished_) return {};
    return {.upload = waits_since_, .next = {}};
  }
  // It writes nothing before the end.
  bool WriteStalledSince(std::chrono::steady_clock::time_point) override { return false; }
  void CutSlowReader() override {}
  void EndCall(const absl::Status& why) override {
    Hold();
    if (wait_.Leave()) Release(why);
    Release(why);
  }

  grpc::CallbackServerContext* const context_;
  ServerState* const state_;
  CallRecord record_;
  UploadState upload_;
  grpc::ByteBuffer* const response_;
  grpc::ByteBuffer received_;
  Request request_;
  CancelToken cancel_;
  QueueWait wait_;
  int64_t frames_ = 0;  // that came

  std::mutex mutex_;
  int holders_ = 1;  // the constructor
  bool finished_ = false;
  std::optional<ClientWaits::TimePoint> waits_since_;  // a read that has not returned
  std::optional<absl::Status> outcome_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_DATASET_UPLOAD_H_
