// Uploads of data sets and tensors: the streams CreateDataset and CreateTensor.

#ifndef TENON_SERVER_DATASET_UPLOAD_H_
#define TENON_SERVER_DATASET_UPLOAD_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
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
#include "server/content_store.h"
#include "server/frames.h"
#include "server/principal.h"
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

  // Frames in the order of the table in dataset.proto. The bytes are reserved by the header.
  absl::Status OnHeader(const Header& header);
  absl::Status OnChunk(const v1::TensorChunk& chunk);
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
  ContentStore::PutOptions options_;
  TensorReceiver data_;
};

// One upload. Parses the frames itself, because gRPC's typed reactors can't tell one that does not
// parse from the half-close. Deletes itself after OnDone.
template <typename Request, typename Response>
class UploadReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer>, public WatchedStream {
 public:
  UploadReactor(grpc::CallbackServerContext* context, ServerState* state, ContentStore::Kind kind,
                std::string_view name, grpc::ByteBuffer* response)
      : context_(context),
        state_(state),
        record_(&state->metrics, Method::kDataset, name),
        upload_(state, kind),
        response_(response) {
    state_->watchdog.Add(this);
    const absl::Status allowed = CheckCaller(context);
    if (!allowed.ok()) {
      Release(allowed);
      return;
    }
    upload_.set_owner(CallerOf(*context));
    record_.set_caller(CallerOf(*context));
    StartRead(&received_);
    Release();
  }

 private:
  void OnReadDone(bool ok) override {
    {
      std::lock_guard lock(mutex_);
      if (finished_) return;
      ++holders_;
    }
    absl::Status status;
    try {
      status = ok ? OnFrame() : context_->IsCancelled() ? Cancelled() : upload_.OnHalfClose();
    } catch (const std::bad_alloc&) {
      status = OutOfMemory();
    }
    if (!status.ok()) return Release(status);
    if (ok) {
      StartRead(&received_);
      return Release();
    }
    // The last read is over: nothing else touches the upload while it is stored.
    try {
      status = state_->executor.Submit([this] { Release(Store()); });
    } catch (const std::bad_alloc&) {
      status = OutOfMemory();
    }
    if (!status.ok()) Release(status);
  }

  absl::Status OnFrame() {
    TENON_RETURN_IF_ERROR(ParseFrame(++frames_, &received_, &request_));
    switch (request_.frame_case()) {
      case Request::kHeader:
        return OnHeader();
      case Request::kChunk:
        return upload_.OnChunk(request_.chunk());
      case Request::FRAME_NOT_SET:
        break;
    }
    return Error(Reason::kMissingField, "the frame is empty").Field("frame");
  }

  absl::Status OnHeader() {
    const auto& header = request_.header();
    UploadState::Header fields;
    fields.request_id = header.request_id();
    fields.display_name = header.display_name();
    fields.expected_sha256 = header.expected_sha256();
    fields.spec = &header.spec();
    if (header.has_inline_data()) fields.inline_data = &header.inline_data();
    if (header.has_ttl_seconds()) fields.ttl_seconds = header.ttl_seconds();
    return upload_.OnHeader(fields);
  }

  absl::Status Store() {
    try {
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

  static absl::Status Cancelled() {
    return Error(Reason::kClientCancelled, "the upload was cancelled");
  }
  static absl::Status OutOfMemory() {
    return Error(Reason::kOverloaded, "there is no memory for the upload")
        .Meta("retry_delay_seconds", 1);
  }

  // Whoever works on the upload holds it: the constructor, a reaction, the executor's task, the end
  // from outside. The call ends when nobody does and it is known how; the first to know decides.
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

  void OnCancel() override { cancel_.Cancel(); }
  void OnDone() override {
    state_->watchdog.Remove(this);
    delete this;
  }

  // It writes nothing before the end.
  bool WriteStalledSince(std::chrono::steady_clock::time_point) override { return false; }
  void CutSlowReader() override {}
  void EndCall(const absl::Status& why) override {
    {
      std::lock_guard lock(mutex_);
      ++holders_;
    }
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
  int64_t frames_ = 0;  // that came

  std::mutex mutex_;
  int holders_ = 1;  // the constructor
  bool finished_ = false;
  std::optional<absl::Status> outcome_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_DATASET_UPLOAD_H_
