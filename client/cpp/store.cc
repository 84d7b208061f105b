// What a Client keeps on the server.

#include "tenon/store.h"

#include <utility>

#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "client/cpp/call_context.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/status.h"
#include "client/cpp/wire.h"
#include "tenon/client.h"

namespace tenon::client {
namespace {

using DatasetStub = v1::DatasetService::Stub;

// The first frame; both kinds of upload have the same.
template <typename Request>
Request FirstFrame(const TensorView& array, const StoreOptions& store) {
  Request frame;
  auto* header = frame.mutable_header();
  header->set_request_id(store.request_id.empty() ? NewRequestId()
                                                  : ReplaceInvalidUtf8(store.request_id));
  *header->mutable_spec() = ToWire(array.spec);
  header->set_display_name(ReplaceInvalidUtf8(store.display_name));
  if (store.ttl.has_value()) header->set_ttl_seconds(absl::ToDoubleSeconds(*store.ttl));
  if (static_cast<int64_t>(array.bytes.size()) < kInlineLimitBytes) {
    header->set_inline_data(std::string(AsText(array.bytes)));
  }
  return frame;
}

// Writes all frames of an upload. A write that fails says nothing: the status does.
template <typename Request>
void WriteAll(const Request& first, const TensorView& array, bool checksums, int32_t chunk_bytes,
              grpc::ClientWriter<Request>* stream) {
  bool open = stream->Write(first);
  if (open && !first.header().has_inline_data()) {
    Request frame;
    SendChunks(array.bytes, chunk_bytes, checksums, frame.mutable_chunk(),
               [&] { return stream->Write(frame); });
  }
  stream->WritesDone();
}

}  // namespace

template <typename Request, typename Response, typename Open>
absl::StatusOr<Response> Client::Store(const TensorView& array, const StoreOptions& store,
                                       const CallOptions& options, Open open) {
  Response response;
  TENON_RETURN_IF_ERROR(CatchExceptions([&]() -> absl::Status {
    TENON_RETURN_IF_ERROR(CheckView(array, "header.spec"));
    const auto first = FirstFrame<Request>(array, store);
    const auto attempt = [&](const CallOptions& left) {
      CallContext context(left, impl_->options.default_timeout, impl_->endpoint);
      const auto stream = open(context.get(), &response);
      WriteAll(first, array, store.checksums, impl_->options.chunk_bytes, stream.get());
      return StatusFromGrpc(stream->Finish(), impl_->endpoint.address, impl_->endpoint.connected());
    };
    return impl_->Repeating(options, attempt, [] { return true; });
  }));
  return response;
}

absl::StatusOr<v1::CreateDatasetResponse> Client::CreateDataset(const TensorView& array,
                                                                const StoreOptions& store,
                                                                const CallOptions& options) {
  return Store<v1::CreateDatasetRequest, v1::CreateDatasetResponse>(
      array, store, options, [&](auto* context, auto* response) {
        return impl_->dataset->CreateDataset(context, response);
      });
}

absl::StatusOr<v1::CreateTensorResponse> Client::CreateTensor(const TensorView& array,
                                                              const StoreOptions& store,
                                                              const CallOptions& options) {
  return Store<v1::CreateTensorRequest, v1::CreateTensorResponse>(
      array, store, options, [&](auto* context, auto* response) {
        return impl_->dataset->CreateTensor(context, response);
      });
}

absl::StatusOr<v1::Dataset> Client::GetDataset(const std::string& name,
                                               const CallOptions& options) {
  v1::GetDatasetRequest request;
  request.set_name(name);
  auto response = impl_->Unary(impl_->dataset, &DatasetStub::GetDataset, request, options);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_dataset());
}

absl::StatusOr<v1::StoredTensor> Client::GetTensor(const std::string& name,
                                                   const CallOptions& options) {
  v1::GetTensorRequest request;
  request.set_name(name);
  auto response = impl_->Unary(impl_->dataset, &DatasetStub::GetTensor, request, options);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_tensor());
}

absl::StatusOr<v1::ListDatasetsResponse> Client::ListDatasets(
    const v1::ListDatasetsRequest& request, const CallOptions& options) {
  return impl_->Unary(impl_->dataset, &DatasetStub::ListDatasets, request, options);
}

absl::StatusOr<v1::ListTensorsResponse> Client::ListTensors(const v1::ListTensorsRequest& request,
                                                            const CallOptions& options) {
  return impl_->Unary(impl_->dataset, &DatasetStub::ListTensors, request, options);
}

absl::StatusOr<int64_t> Client::DeleteDataset(const std::string& name, const CallOptions& options) {
  v1::DeleteDatasetRequest request;
  request.set_name(name);
  auto response =
      impl_->Unary(impl_->dataset, &DatasetStub::DeleteDataset, request, options, Twice::kDiffers);
  if (!response.ok()) return response.status();
  return response->freed_bytes();
}

absl::StatusOr<int64_t> Client::DeleteTensor(const std::string& name, const CallOptions& options) {
  v1::DeleteTensorRequest request;
  request.set_name(name);
  auto response =
      impl_->Unary(impl_->dataset, &DatasetStub::DeleteTensor, request, options, Twice::kDiffers);
  if (!response.ok()) return response.status();
  return response->freed_bytes();
}

}  // namespace tenon::client
