// Calls in the background: Client::Async and its like.

#ifndef TENON_CLIENT_CPP_INCLUDE_TENON_ASYNC_H_
#define TENON_CLIENT_CPP_INCLUDE_TENON_ASYNC_H_

#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "tenon/call.h"

namespace tenon::client {

// What a call in the background is cancelled by; used by the library.
struct AsyncState {
  // `caller` may be null, else it outlives the call.
  explicit AsyncState(Canceller* caller) { link.emplace(&canceller, caller); }
  Canceller canceller;
  std::optional<CancelLink> link;  // until the call has ended
};

// A call that runs, or waits for one of the client's threads. Movable; Cancel() from any thread,
// the rest from one at a time.
template <typename T>
class Pending {
 public:
  Pending(std::shared_ptr<AsyncState> state, std::future<absl::StatusOr<T>> future)
      : state_(std::move(state)), future_(std::move(future)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept {
    GiveUp();
    state_ = std::move(other.state_);
    future_ = std::move(other.future_);
    return *this;
  }
  // Cancels the call and waits for its end, unless Get() or the owner of a moved future has it.
  ~Pending() { GiveUp(); }

  // Waits for the answer; once.
  absl::StatusOr<T> Get() { return future_.get(); }
  // To wait for it with a time limit, or to move away: what the request's views show must stay
  // until the future is ready.
  std::future<absl::StatusOr<T>>& future() { return future_; }
  // The call ends with CANCELLED, on the server too, unless it has ended already.
  void Cancel() { state_->canceller.Cancel(); }

 private:
  void GiveUp() {
    if (!future_.valid()) return;
    Cancel();
    future_.wait();
  }

  std::shared_ptr<AsyncState> state_;
  std::future<absl::StatusOr<T>> future_;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_INCLUDE_TENON_ASYNC_H_
