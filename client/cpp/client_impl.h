// What the copies of a Client share.

#ifndef TENON_CLIENT_CPP_CLIENT_IMPL_H_
#define TENON_CLIENT_CPP_CLIENT_IMPL_H_

#include <functional>
#include <memory>
#include <optional>

#include "client/cpp/call_context.h"
#include "client/cpp/call_threads.h"
#include "client/cpp/retrier.h"
#include "client/cpp/status.h"
#include "tenon/client.h"
#include "tenon/v1/admin.grpc.pb.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tenon/v1/dataset.grpc.pb.h"
#include "tenon/v1/job.grpc.pb.h"
#include "tenon/v1/measurement.grpc.pb.h"
#include "tenon/v1/provider.grpc.pb.h"

namespace tenon::client {

// Whether doing a call twice has the outcome of doing it once.
enum class Twice { kSame, kDiffers };

struct Client::Impl {
  Endpoint endpoint;
  ClientOptions options;
  std::optional<CallThreads> threads;  // of background calls
  std::unique_ptr<v1::ContractionService::Stub> contraction;
  std::unique_ptr<v1::DatasetService::Stub> dataset;
  std::unique_ptr<v1::JobService::Stub> job;
  std::unique_ptr<v1::MeasurementService::Stub> measurement;
  std::unique_ptr<v1::ProviderService::Stub> provider;
  std::unique_ptr<v1::AdminService::Stub> admin;

  Retrier MakeRetrier(const CallOptions& call) const {
    return Retrier(call, options.default_timeout, call.retry.value_or(options.retry), MayRepeat,
                   true);
  }

  // Tries `attempt` with the time that is left, again while the policy says so and `whole` says
  // that its input is still there and nothing of it has been handed out. The error of the last try.
  absl::Status Repeating(const CallOptions& call,
                         const std::function<absl::Status(const CallOptions&)>& attempt,
                         const std::function<bool()>& whole) const {
    Retrier retrier = MakeRetrier(call);
    for (;;) {
      const absl::Status ended = attempt(retrier.options());
      endpoint.Note(ended);
      if (endpoint.answered()) retrier.Heard();
      if (ended.ok() || !whole() || !retrier.Again(ended, false)) {
        const bool cancelled = !ended.ok() && call.canceller != nullptr &&
                               call.canceller->cancelled() && MayRepeat(ended);
        return cancelled ? absl::CancelledError("cancelled before the next try") : ended;
      }
    }
  }

  // A call with one message each way.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Unary(const std::unique_ptr<Stub>& stub,
                                 grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Response*),
                                 const Request& request, const CallOptions& call,
                                 Twice twice = Twice::kSame) const {
    Response response;
    TENON_RETURN_IF_ERROR(CatchExceptions([&] {
      const auto attempt = [&](const CallOptions& left) {
        CallContext context(left, options.default_timeout, endpoint);
        const grpc::Status status = (stub.get()->*method)(context.get(), request, &response);
        return StatusFromGrpc(status, endpoint.address, endpoint.connected());
      };
      return Repeating(call, attempt, [twice] { return twice == Twice::kSame; });
    }));
    return response;
  }
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_CLIENT_IMPL_H_
