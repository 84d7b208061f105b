#include <condition_variable>
#include <mutex>

#include "tenon/call.h"

namespace tenon::client {

struct Canceller::State {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  bool cancelled = false;
  int next_id = 0;
  std::map<int, std::function<void()>> actions;
};

Canceller::Canceller() : state_(std::make_unique<State>()) {}
Canceller::~Canceller() = default;

void Canceller::Cancel() {
  // Actions run under the lock: when Remove has returned, none is running. They are short.
  const std::lock_guard lock(state_->mutex);
  state_->cancelled = true;
  state_->changed.notify_all();
  for (const auto& [id, action] : state_->actions) action();
}

bool Canceller::cancelled() const {
  const std::lock_guard lock(state_->mutex);
  return state_->cancelled;
}

bool Canceller::WaitFor(absl::Duration time) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, absl::ToChronoNanoseconds(time),
                                  [this] { return state_->cancelled; });
}

int Canceller::Add(std::function<void()> action) {
  const std::lock_guard lock(state_->mutex);
  if (state_->cancelled) action();
  const int id = state_->next_id++;
  state_->actions.emplace(id, std::move(action));
  return id;
}

void Canceller::Remove(int id) {
  const std::lock_guard lock(state_->mutex);
  state_->actions.erase(id);
}

CancelLink::CancelLink(Canceller* to, Canceller* from) : from_(from) {
  if (from_ != nullptr) id_ = from_->Add([to] { to->Cancel(); });
}
CancelLink::~CancelLink() {
  if (from_ != nullptr) from_->Remove(id_);
}

}  // namespace tenon::client
