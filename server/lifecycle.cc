#include "server/lifecycle.h"

#include <array>
#include <utility>

#include "backends/core/error.h"

namespace tenon::server {
namespace {

constexpr size_t kPhases = 5;

// Row: from, column: to, both in the order of the enumeration; the table of the header.
constexpr std::array<std::array<bool, kPhases>, kPhases> kLegal = {{
    {false, true, false, true, true},
    {false, false, true, true, false},
    {false, false, false, true, false},
    {false, false, false, false, true},
    {false, false, false, false, false},
}};

}  // namespace

std::string_view ServerPhaseName(ServerPhase phase) {
  constexpr std::array<std::string_view, kPhases> kNames = {"starting", "ready", "lame-duck",
                                                            "draining", "stopped"};
  return kNames[static_cast<size_t>(phase)];
}

ServerPhase Lifecycle::phase() const {
  std::lock_guard lock(mutex_);
  return phase_;
}

bool Lifecycle::MoveTo(ServerPhase phase) {
  std::lock_guard transition(transition_mutex_);
  std::vector<std::function<void(ServerPhase)>> listeners;
  {
    std::lock_guard lock(mutex_);
    if (!kLegal[static_cast<size_t>(phase_)][static_cast<size_t>(phase)]) return false;
    phase_ = phase;
    if (phase != ServerPhase::kReady && !told_to_stop_.has_value()) told_to_stop_ = now_();
    if (phase == ServerPhase::kStopped) stopped_ = now_();
    listeners = listeners_;
  }
  for (const auto& listener : listeners) listener(phase);
  return true;
}

double Lifecycle::drain_seconds() const {
  std::lock_guard lock(mutex_);
  if (!told_to_stop_.has_value()) return 0;
  return std::chrono::duration<double>(stopped_.value_or(now_()) - *told_to_stop_).count();
}

void Lifecycle::AddListener(std::function<void(ServerPhase)> listener) {
  std::lock_guard lock(mutex_);
  listeners_.push_back(std::move(listener));
}

absl::Status Lifecycle::CheckAdmitting() const {
  switch (phase()) {
    case ServerPhase::kStarting:
      return Error(Reason::kStarting, "the server is starting: its providers warm up")
          .Meta("retry_delay_seconds", 1);
    case ServerPhase::kReady:
    case ServerPhase::kLameDuck:
      return absl::OkStatus();
    case ServerPhase::kDraining:
    case ServerPhase::kStopped:
      return Error(Reason::kDraining, "the server is shutting down and takes no new work")
          .Meta("retry_delay_seconds", 1);
  }
  return Error(Reason::kInternal, "the server is in no known state");
}

}  // namespace tenon::server
