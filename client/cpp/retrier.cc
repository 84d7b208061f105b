#include "client/cpp/retrier.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>

#include "absl/time/clock.h"

namespace tenon::client {
namespace {

constexpr absl::Duration kMostPause = absl::Seconds(5);

std::mt19937_64& Random() {
  thread_local std::mt19937_64 generator([] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }());
  return generator;
}

}  // namespace

RetryPolicy RetryOfCalls() {
  RetryPolicy policy;
  policy.patience = absl::Seconds(10);
  policy.pause = absl::Milliseconds(100);
  return policy;
}

bool MayRepeat(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kUnavailable) return true;
  const std::optional<ServerError> error = ServerErrorOf(status);
  return error.has_value() && error->retry_delay_seconds.has_value();
}

std::string NewRequestId() {
  std::array<uint64_t, 2> bits = {Random()(), Random()()};
  bits[0] = (bits[0] & ~uint64_t{0xf000}) | 0x4000;                  // version
  bits[1] = (bits[1] & ~(uint64_t{3} << 62)) | (uint64_t{2} << 62);  // variant
  std::string text;
  text.reserve(36);
  for (int digit = 0; digit < 32; ++digit) {
    if (digit == 8 || digit == 12 || digit == 16 || digit == 20) text += '-';
    text += "0123456789abcdef"[(bits[digit / 16] >> (60 - 4 * (digit % 16))) & 15];
  }
  return text;
}

Retrier::Retrier(const CallOptions& options, absl::Duration default_timeout,
                 const RetryPolicy& policy, Judge judge, bool spread)
    : options_(options),
      policy_(policy),
      judge_(judge),
      spread_(spread),
      deadline_(absl::Now() + options.timeout.value_or(default_timeout)),
      pause_(policy.pause) {}

CallOptions Retrier::options() const {
  CallOptions options = options_;
  options.timeout = deadline_ - absl::Now();
  return options;
}

absl::Duration Retrier::NextPause(const absl::Status& ended) {
  absl::Duration pause = pause_;
  pause_ = std::min(2 * pause_, kMostPause);
  const std::optional<ServerError> error = ServerErrorOf(ended);
  if (error.has_value() && error->retry_delay_seconds.has_value()) {
    pause = std::max(pause, absl::Seconds(*error->retry_delay_seconds));
  }
  return spread_ ? pause * std::uniform_real_distribution<double>(1, 1.25)(Random()) : pause;
}

bool Retrier::Again(const absl::Status& ended, bool progress) {
  if (progress) {
    broken_.reset();
    pause_ = policy_.pause;
  }
  if (!judge_(ended) || (!heard_ && IsUnreachable(ended))) return false;
  const absl::Time now = absl::Now();
  if (!broken_.has_value()) broken_ = now;
  if (now - *broken_ >= policy_.patience) return false;
  const absl::Duration pause = NextPause(ended);
  if (now + pause >= deadline_) return false;
  if (policy_.on_break) policy_.on_break(ended, pause);
  const Canceller never;
  const Canceller* canceller = options_.canceller != nullptr ? options_.canceller : &never;
  return !canceller->WaitFor(pause);
}

}  // namespace tenon::client
