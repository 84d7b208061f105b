// Calls that end before they begin.

#ifndef TENON_SERVER_REFUSAL_H_
#define TENON_SERVER_REFUSAL_H_

#include <grpcpp/grpcpp.h>

#include <string_view>

#include "backends/core/error.h"
#include "server/state.h"
#include "server/unary.h"

namespace tenon::server {

// Refuses a call, of any kind, with `why`, or with NOT_IMPLEMENTED, or because the server is
// starting or draining. `Reactor` is the base that the generated method returns. Deletes itself.
template <typename Reactor>
class Refusal final : public Reactor {
 public:
  Refusal(ServerState* state, Method method, std::string_view name) {
    absl::Status status = state->lifecycle.CheckAdmitting();
    if (status.ok()) {
      status = Error(Reason::kNotImplemented, StrCat("this server does not offer ", name, " yet"))
                   .Meta("method", std::string(name));
    }
    End(state, method, name, status);
  }
  Refusal(ServerState* state, Method method, std::string_view name, const absl::Status& why) {
    End(state, method, name, why);
  }

 private:
  void End(ServerState* state, Method method, std::string_view name, const absl::Status& status) {
    CallRecord(&state->metrics, method, name).End(status);
    this->Finish(ToGrpcStatus(status));
  }
  void OnDone() override { delete this; }
};

}  // namespace tenon::server

#endif  // TENON_SERVER_REFUSAL_H_
