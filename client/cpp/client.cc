#include "tenon/client.h"

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "client/cpp/call_context.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/contract_reader.h"
#include "client/cpp/contract_upload.h"
#include "client/cpp/credentials.h"
#include "client/cpp/duplex.h"
#include "client/cpp/retrier.h"
#include "client/cpp/shared_placement.h"
#include "client/cpp/status.h"
#include "client/cpp/wire.h"

namespace tenon::client {
namespace {

constexpr int kMostAsyncThreads = 1024;

grpc::ChannelArguments MakeArguments(const std::string& address, const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetUserAgentPrefix(options.user_agent);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  // 0: pings go on, however long a computation sends nothing.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A connection of its own for every client: throughput beyond one connection needs it.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A proxy of the environment never leads to this machine itself.
  if (IsLocal(address)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!options.tls_server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls_server_name);
  }
  return arguments;
}

// Bytes of one result; 0 when the request does not tell them.
int64_t ResultBytes(const ContractRequest& request) {
  auto network = request.network.has_value() ? absl::StatusOr<Network>(*request.network)
                                             : ParseEinsum(request.einsum);
  if (!network.ok() || network->inputs.size() != request.operands.size()) return 0;
  TensorSpec result;
  result.dtype = static_cast<DType>(request.result.dtype());
  const bool promote = result.dtype == DType::kUnspecified;
  for (size_t k = 0; k < request.operands.size(); ++k) {
    const TensorSpec& spec = request.operands[k].tensor.spec;
    if (spec.dtype == DType::kUnspecified || spec.shape.size() != network->inputs[k].size()) {
      return 0;
    }
    for (size_t i = 0; i < spec.shape.size(); ++i) {
      network->sizes[network->inputs[k][i]] = spec.shape[i];
    }
    if (promote) result.dtype = k == 0 ? spec.dtype : PromoteDTypes(result.dtype, spec.dtype);
  }
  for (const std::string& index : network->output) {
    const auto size = network->sizes.find(index);
    if (size == network->sizes.end()) return 0;
    result.shape.push_back(size->second);
  }
  return CheckedByteCount(result).value_or(0);
}

using ContractStream = Duplex<v1::ContractRequest, v1::ContractResponse>;

absl::Status RunContract(ContractStream* stream, ContractUpload* upload, ContractReader* reader,
                         int32_t chunk_bytes) {
  std::atomic<int32_t> granted_bytes = chunk_bytes;
  if (upload->header_is_all()) {
    stream->WriteLast(upload->header());
  } else {
    stream->StartWriter([&](ContractStream* writer) {
      if (!writer->Write(upload->header()) || !writer->WaitAccepted()) return absl::OkStatus();
      TENON_RETURN_IF_ERROR(upload->SendRest(
          granted_bytes, [&](const v1::ContractRequest& frame) { return writer->Write(frame); }));
      writer->WritesDone();
      return absl::OkStatus();
    });
  }
  absl::Status local;
  v1::ContractResponse frame;
  while (local.ok() && stream->Read(&frame)) {
    local = CatchExceptions([&] { return reader->Add(frame); });
    if (local.ok() && frame.has_accepted()) {
      if (reader->max_chunk_bytes() > 0) {
        granted_bytes = std::min(chunk_bytes, reader->max_chunk_bytes());
      }
      stream->SetAccepted();
    }
  }
  return stream->Finish(local);
}

}  // namespace

absl::StatusOr<Client> Client::Connect(const std::string& address) {
  return Connect(address, ClientOptions());
}

absl::StatusOr<Client> Client::Connect(const std::string& address, ClientOptions options) {
  if (address.empty()) {
    return Error(Reason::kBadParameter, "the address of the server is empty").Field("address");
  }
  if (options.chunk_bytes < kMinChunkBytes || options.chunk_bytes > kMaxChunkBytes) {
    return Error(Reason::kBadParameter,
                 StrCat("chunk_bytes is ", options.chunk_bytes, "; it must lie between ",
                        kMinChunkBytes, " and ", kMaxChunkBytes))
        .Field("chunk_bytes");
  }
  if (options.async_threads < 1 || options.async_threads > kMostAsyncThreads) {
    return Error(Reason::kBadParameter, StrCat("async_threads is ", options.async_threads,
                                               "; it must lie between 1 and ", kMostAsyncThreads))
        .Field("async_threads");
  }
  TENON_ASSIGN_OR_RETURN(const auto credentials, MakeCredentials(address, options));
  auto impl = std::make_shared<Impl>();
  impl->endpoint.address = address;
  impl->endpoint.token = options.token;
  impl->options = std::move(options);
  impl->threads.emplace(impl->options.async_threads);
  impl->endpoint.channel =
      grpc::CreateCustomChannel(address, credentials, MakeArguments(address, impl->options));
  impl->contraction = v1::ContractionService::NewStub(impl->endpoint.channel);
  impl->dataset = v1::DatasetService::NewStub(impl->endpoint.channel);
  impl->job = v1::JobService::NewStub(impl->endpoint.channel);
  impl->measurement = v1::MeasurementService::NewStub(impl->endpoint.channel);
  impl->provider = v1::ProviderService::NewStub(impl->endpoint.channel);
  impl->admin = v1::AdminService::NewStub(impl->endpoint.channel);
  return Client(std::move(impl));
}

absl::StatusOr<ContractOutcome> Client::ContractOnce(const ContractRequest& request,
                                                     const std::string& request_id,
                                                     const CallOptions& options,
                                                     const ContractCallbacks& callbacks,
                                                     SharedPlacement* placement, bool* whole) {
  TENON_ASSIGN_OR_RETURN(ContractUpload upload, ContractUpload::Create(request, placement));
  upload.SetRequestId(request_id);
  ContractReader reader(callbacks, placement);
  ContractStream stream(options, impl_->options.default_timeout, impl_->endpoint,
                        [&](auto* context) { return impl_->contraction->Contract(context); });
  const absl::Status ran = RunContract(&stream, &upload, &reader, impl_->options.chunk_bytes);
  if (reader.accepted()) impl_->endpoint.NoteAnswer();
  const auto refusal = ServerErrorOf(ran);
  const bool refused = !reader.accepted() && refusal && !refusal->reason.empty();
  if (placement != nullptr && (ran.ok() || refused)) placement->ReleaseResults();
  *whole = !upload.has_asked_for_sets() && !reader.has_handed_out();
  TENON_RETURN_IF_ERROR(ran);
  auto outcome = reader.Take();
  if (outcome.ok() && !request.next_set && outcome->report.sets() != 1) {
    return BrokenContract(StrCat("there are ", outcome->report.sets(), " results, not one"));
  }
  return outcome;
}

absl::StatusOr<ContractOutcome> Client::Contract(const ContractRequest& request,
                                                 const CallOptions& options,
                                                 const ContractCallbacks& callbacks) {
  const std::string id = request.request_id.empty() ? NewRequestId() : request.request_id;
  absl::StatusOr<ContractOutcome> outcome = absl::UnknownError("");
  bool whole = true;
  const auto attempt = [&](const CallOptions& left) -> absl::Status {
    const std::string token = request.pool == nullptr ? "" : request.pool->EnsureConnected();
    if (!token.empty()) {
      const int64_t result_bytes = request.result_in_pool ? ResultBytes(request) : 0;
      SharedPlacement placement(request.pool, token, result_bytes);
      outcome = ContractOnce(request, id, left, callbacks, &placement, &whole);
      // Refused before next_set or a callback was called.
      if (!IsPoolRefused(outcome.status())) return outcome.status();
    }
    outcome = ContractOnce(request, id, left, callbacks, nullptr, &whole);
    return outcome.status();
  };
  const absl::Status status = CatchExceptions(
      [&] { return impl_->Repeating(options, attempt, [&whole] { return whole; }); });
  if (!status.ok()) return status;
  return outcome;
}

absl::StatusOr<std::shared_ptr<SharedPool>> Client::OpenSharedPool(int64_t size_bytes,
                                                                   const CallOptions& options) {
  TENON_ASSIGN_OR_RETURN(const v1::GetServerInfoResponse info, GetServerInfo(options));
  const auto feature =
      std::find_if(info.features().begin(), info.features().end(),
                   [](const v1::Feature& f) { return f.name() == "shared_memory"; });
  if (feature == info.features().end() || !feature->available()) {
    return Error(Reason::kNotImplemented, "the server shares no memory");
  }
  return SharedPool::Connect(feature->detail(), size_bytes);
}

absl::StatusOr<v1::EstimateResponse> Client::Estimate(const ContractRequest& request,
                                                      const CallOptions& options) {
  v1::EstimateRequest wire;
  TENON_RETURN_IF_ERROR(CatchExceptions([&]() -> absl::Status {
    TENON_ASSIGN_OR_RETURN(*wire.mutable_header(), BuildContractHeader(request, false));
    return absl::OkStatus();
  }));
  return impl_->Unary(impl_->contraction, &v1::ContractionService::Stub::Estimate, wire, options);
}

absl::StatusOr<v1::PlanResult> Client::Plan(const ContractRequest& request,
                                            const CallOptions& options,
                                            const PlanCallbacks& callbacks) {
  std::optional<v1::PlanResult> plan;
  TENON_RETURN_IF_ERROR(CatchExceptions([&]() -> absl::Status {
    v1::PlanContractionRequest wire;
    TENON_RETURN_IF_ERROR(BuildPlanRequest(request, &wire));
    bool whole = true;  // no improvement is out
    const auto attempt = [&](const CallOptions& left) {
      CallContext context(left, impl_->options.default_timeout, impl_->endpoint);
      const auto reader = impl_->contraction->PlanContraction(context.get(), wire);
      v1::PlanContractionResponse frame;
      while (reader->Read(&frame)) {
        impl_->endpoint.NoteAnswer();
        if (frame.has_improvement() && callbacks.on_improvement) {
          whole = false;
          callbacks.on_improvement(frame.improvement());
        }
        if (frame.has_progress() && callbacks.on_progress) callbacks.on_progress(frame.progress());
        if (frame.has_plan()) plan = std::move(*frame.mutable_plan());
      }
      return StatusFromGrpc(reader->Finish(), impl_->endpoint.address, impl_->endpoint.connected());
    };
    return impl_->Repeating(options, attempt, [&whole] { return whole; });
  }));
  if (!plan.has_value()) return BrokenContract("the search ended without a plan");
  return *std::move(plan);
}

absl::StatusOr<v1::ListMeasuresResponse> Client::ListMeasures(const std::string& id,
                                                              const CallOptions& options) {
  v1::ListMeasuresRequest request;
  request.set_id(id);
  return impl_->Unary(impl_->measurement, &v1::MeasurementService::Stub::ListMeasures, request,
                      options);
}

absl::StatusOr<v1::GetServerInfoResponse> Client::GetServerInfo(const CallOptions& options) {
  return impl_->Unary(impl_->provider, &v1::ProviderService::Stub::GetServerInfo,
                      v1::GetServerInfoRequest(), options);
}

absl::StatusOr<v1::ListProvidersResponse> Client::ListProviders(const std::string& name,
                                                                const CallOptions& options) {
  v1::ListProvidersRequest request;
  request.set_name(name);
  return impl_->Unary(impl_->provider, &v1::ProviderService::Stub::ListProviders, request, options);
}

absl::StatusOr<v1::DrainResponse> Client::Drain(const v1::DrainRequest& request,
                                                const CallOptions& options) {
  return impl_->Unary(impl_->admin, &v1::AdminService::Stub::Drain, request, options,
                      Twice::kDiffers);
}

absl::StatusOr<v1::SetLogLevelResponse> Client::SetLogLevel(const v1::SetLogLevelRequest& request,
                                                            const CallOptions& options) {
  return impl_->Unary(impl_->admin, &v1::AdminService::Stub::SetLogLevel, request, options,
                      Twice::kDiffers);
}

absl::StatusOr<v1::TrimResponse> Client::Trim(const v1::TrimRequest& request,
                                              const CallOptions& options) {
  return impl_->Unary(impl_->admin, &v1::AdminService::Stub::Trim, request, options,
                      Twice::kDiffers);
}

absl::StatusOr<v1::GetStatisticsResponse> Client::GetStatistics(const std::string& method_prefix,
                                                                const CallOptions& options) {
  v1::GetStatisticsRequest request;
  request.set_method_prefix(method_prefix);
  return impl_->Unary(impl_->provider, &v1::ProviderService::Stub::GetStatistics, request, options);
}

void Client::RunLater(std::function<void(Client, const CallOptions&)> task, CallOptions options) {
  const absl::Time end = absl::Now() + options.timeout.value_or(impl_->options.default_timeout);
  impl_->threads->Run(
      [client = std::optional<Client>(*this), task = std::move(task), options, end]() mutable {
        options.timeout = end - absl::Now();
        Client mine = *std::move(client);
        client.reset();
        task(std::move(mine), options);
      });
}

Pending<ContractOutcome> Client::ContractAsync(ContractRequest request, CallOptions options,
                                               ContractCallbacks callbacks) {
  return Async([request = std::move(request), callbacks = std::move(callbacks)](
                   Client& client,
                   const CallOptions& left) { return client.Contract(request, left, callbacks); },
               std::move(options));
}

Pending<v1::PlanResult> Client::PlanAsync(ContractRequest request, CallOptions options,
                                          PlanCallbacks callbacks) {
  return Async([request = std::move(request), callbacks = std::move(callbacks)](
                   Client& client,
                   const CallOptions& left) { return client.Plan(request, left, callbacks); },
               std::move(options));
}

Pending<MeasureOutcome> Client::MeasureAllAsync(MeasureRequest request, CallOptions options,
                                                std::function<absl::Status(MeasureItem)> on_item) {
  return Async([request = std::move(request), on_item = std::move(on_item)](
                   Client& client,
                   const CallOptions& left) { return client.MeasureAll(request, left, on_item); },
               std::move(options));
}

absl::StatusOr<v1::GetServerInfoResponse> Client::WaitUntilReady(absl::Duration time,
                                                                 const CallOptions& options) {
  const absl::Time end = absl::Now() + time;
  const absl::Duration kPause = absl::Milliseconds(100);
  Canceller never;
  Canceller* canceller = options.canceller != nullptr ? options.canceller : &never;
  for (;;) {
    const absl::Duration left = end - absl::Now();
    // Every try gets a little time, the last one too.
    const CallOptions attempt{std::max(left, kPause), canceller,
                              RetryPolicy{.patience = absl::ZeroDuration()}};
    absl::StatusOr<v1::GetServerInfoResponse> info = GetServerInfo(attempt);
    if (info.ok() && info->state() == v1::SERVER_STATE_READY) return info;
    const bool may_come = info.ok() || info.status().code() == absl::StatusCode::kUnavailable ||
                          info.status().code() == absl::StatusCode::kDeadlineExceeded;
    if (may_come && left > kPause && !canceller->WaitFor(kPause)) continue;
    if (!info.ok()) return info;
    return Error(Reason::kStarting, StrCat("the server is not ready, its state is ",
                                           v1::ServerState_Name(info->state())));
  }
}

}  // namespace tenon::client
