// Calls that are answered at once, on gRPC's own thread.

#ifndef TENON_SERVER_UNARY_H_
#define TENON_SERVER_UNARY_H_

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "backends/core/error.h"
#include "server/logging.h"
#include "server/metrics.h"
#include "server/principal.h"
#include "server/status.h"

namespace tenon::server {

// What every call leaves behind: the count, the seconds and a line in the log. The call is in
// flight from construction to End; End is called once.
class CallRecord {
 public:
  CallRecord(Metrics* metrics, Method method, std::string_view name)
      : metrics_(metrics), method_(method), name_(name) {
    metrics_->CallBegan(method_);
  }
  // For the log.
  void set_request_id(std::string_view id) { request_id_ = id; }
  void set_caller(std::string name) { caller_ = std::move(name); }
  void End(const absl::Status& status, LogFields more = {}) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    metrics_->CallEnded(method_, status, seconds);
    LogFields fields = CallerFields(caller_);
    std::move(more.begin(), more.end(), std::back_inserter(fields));
    LogRequest(name_, request_id_, status, seconds, std::move(fields));
  }

 private:
  Metrics* const metrics_;
  const Method method_;
  const std::string_view name_;  // full name, a literal
  std::string request_id_, caller_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What `answer` returns; OVERLOADED where there is no memory for it.
template <typename Answer>
absl::Status AnswerWithinMemory(Answer&& answer) {
  try {
    return std::forward<Answer>(answer)();
  } catch (const std::bad_alloc&) {
    return Error(Reason::kOverloaded, "there is no memory for the answer")
        .Meta("retry_delay_seconds", 1);
  }
}

// Whether the caller may call the method at all: those of administration need an administrator.
inline absl::Status CheckAccess(Method method, grpc::ServerContextBase* context) {
  return method == Method::kAdmin ? CheckAdministrator(context) : CheckCaller(context);
}

// Runs `answer`, which fills the response and returns a status, and ends the call; not for callers
// who may not call it. `answer` must
// not wait for anything.
template <typename Answer>
grpc::ServerUnaryReactor* AnswerNow(grpc::CallbackServerContext* context, Metrics* metrics,
                                    Method method, std::string_view name, Answer&& answer) {
  CallRecord record(metrics, method, name);
  absl::Status status = CheckAccess(method, context);
  if (status.ok()) {
    record.set_caller(CallerOf(*context));
    status = AnswerWithinMemory(std::forward<Answer>(answer));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  record.End(status);
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace tenon::server

#endif  // TENON_SERVER_UNARY_H_
