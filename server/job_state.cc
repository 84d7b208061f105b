#include "server/job_state.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace tenon::server {

bool HasEnded(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

bool MayMove(v1::JobState from, v1::JobState to) {
  static constexpr struct {
    v1::JobState from, to;
  } kLegal[] = {
      {v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING},
      {v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED},
      {v1::JOB_STATE_QUEUED, v1::JOB_STATE_FAILED},
      {v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED},
      {v1::JOB_STATE_RUNNING, v1::JOB_STATE_FAILED},
      {v1::JOB_STATE_RUNNING, v1::JOB_STATE_CANCELLING},
      {v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUSPENDED},
      {v1::JOB_STATE_SUSPENDED, v1::JOB_STATE_RUNNING},
      {v1::JOB_STATE_SUSPENDED, v1::JOB_STATE_CANCELLED},
      {v1::JOB_STATE_SUSPENDED, v1::JOB_STATE_FAILED},
      {v1::JOB_STATE_CANCELLING, v1::JOB_STATE_CANCELLED},
      {v1::JOB_STATE_CANCELLING, v1::JOB_STATE_SUCCEEDED},
      {v1::JOB_STATE_CANCELLING, v1::JOB_STATE_FAILED},
  };
  return std::any_of(std::begin(kLegal), std::end(kLegal),
                     [&](const auto& move) { return move.from == from && move.to == to; });
}

std::optional<v1::JobState> AfterCancel(v1::JobState state) {
  if (MayMove(state, v1::JOB_STATE_CANCELLING)) return v1::JOB_STATE_CANCELLING;
  const bool waits = state == v1::JOB_STATE_QUEUED || state == v1::JOB_STATE_SUSPENDED;
  return waits ? std::optional(v1::JOB_STATE_CANCELLED) : std::nullopt;
}

std::string JobStateLabel(v1::JobState state) {
  const std::string& name = v1::JobState_Name(state);
  absl::string_view label(name);
  absl::ConsumePrefix(&label, "JOB_STATE_");
  return absl::AsciiStrToLower(label);
}

}  // namespace tenon::server
