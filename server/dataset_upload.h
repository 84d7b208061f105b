// Uploads of data sets and tensors: the streams CreateDataset and CreateTensor.

#ifndef TENON_SERVER_DATASET_UPLOAD_H_
#define TENON_SERVER_DATASET_UPLOAD_H_

#include <grpcpp/grpcpp.h>

#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "backends/core/error.h"
#include "server/content_store.h"
#include "server/state.h"
#include "server/tensor_receiver.h"
#include "server/unary.h"
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
  State upload_ = State::kStart;
  std::string request_id_;
  ContentStore::PutOptions options_;
  TensorReceiver data_;
};

// One upload. Deletes itself after OnDone.
template <typename Request, typename Response>
class UploadReactor final : public grpc::ServerReadReactor<Request> {
 public:
  UploadReactor(grpc::CallbackServerContext* context, ServerState* state, ContentStore::Kind kind,
                std::string_view name, Response* response)
      : context_(context),
        state_(state),
        record_(&state->metrics, Method::kDataset, name),
        upload_(state, kind),
        response_(response) {
    this->StartRead(&request_);
  }

 private:
  void OnReadDone(bool ok) override {
    absl::Status status;
    try {
      status = ok ? OnFrame() : context_->IsCancelled() ? Cancelled() : upload_.OnHalfClose();
    } catch (const std::bad_alloc&) {
      status = OutOfMemory();
    }
    if (!status.ok()) return End(status);
    if (ok) return this->StartRead(&request_);
    // The last read is over: nothing else touches this object while it is stored.
    try {
      status = state_->executor.Submit([this] { Store(); });
    } catch (const std::bad_alloc&) {
      status = OutOfMemory();
    }
    if (!status.ok()) End(status);
  }

  absl::Status OnFrame() {
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

  void Store() {
    try {
      bool created = false;
      const auto stored = upload_.Store(&cancel_, &created);
      if (!stored.ok()) return End(stored.status());
      if constexpr (requires { response_->mutable_dataset(); }) {
        WriteDescription(*stored, response_->mutable_dataset());
      } else {
        WriteDescription(*stored, response_->mutable_tensor());
      }
      response_->set_existed(!created);
      response_->set_request_id(upload_.request_id());
    } catch (const std::bad_alloc&) {
      return End(OutOfMemory());
    }
    End(absl::OkStatus());
  }

  static absl::Status Cancelled() {
    return Error(Reason::kClientCancelled, "the upload was cancelled");
  }
  static absl::Status OutOfMemory() {
    return Error(Reason::kOverloaded, "there is no memory for the upload")
        .Meta("retry_delay_seconds", 1);
  }

  // Every path ends here, once: the reader's until it hands over to the executor's task.
  void End(const absl::Status& status) {
    record_.End(status);
    this->Finish(ToGrpcStatus(status));
  }

  void OnCancel() override { cancel_.Cancel(); }
  void OnDone() override { delete this; }

  grpc::CallbackServerContext* const context_;
  ServerState* const state_;
  CallRecord record_;
  UploadState upload_;
  Response* const response_;
  Request request_;
  CancelToken cancel_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_DATASET_UPLOAD_H_
