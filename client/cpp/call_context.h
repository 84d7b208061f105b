// The gRPC side of one call: deadline, cancelling and the token.

#ifndef TENON_CLIENT_CPP_CALL_CONTEXT_H_
#define TENON_CLIENT_CPP_CALL_CONTEXT_H_

#include <grpcpp/client_context.h>

#include <chrono>

#include "client/cpp/status.h"
#include "tenon/call.h"

namespace tenon::client {

// A context that ends with its deadline and with the caller's Canceller.
class CallContext {
 public:
  CallContext(const CallOptions& options, absl::Duration default_timeout, const Endpoint& endpoint)
      : canceller_(options.canceller) {
    if (!endpoint.token.empty()) {
      context_.AddMetadata("authorization", "Bearer " + endpoint.token);
    }
    const absl::Duration timeout = options.timeout.value_or(default_timeout);
    context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    if (canceller_ != nullptr) id_ = canceller_->Add([this] { context_.TryCancel(); });
  }
  ~CallContext() {
    if (canceller_ != nullptr) canceller_->Remove(id_);
  }
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;

  grpc::ClientContext* get() { return &context_; }

 private:
  grpc::ClientContext context_;
  Canceller* canceller_;
  int id_ = 0;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_CALL_CONTEXT_H_
