// When a call that broke is tried again.

#ifndef TENON_CLIENT_CPP_RETRIER_H_
#define TENON_CLIENT_CPP_RETRIER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tenon/call.h"

namespace tenon::client {

// Whether a call that ended so, and of which nothing was done or handed out, may do better: no
// server could be reached, or it said that it can't now or when it can.
bool MayRepeat(const absl::Status& status);

// A random name for a request: a UUID of version 4.
std::string NewRequestId();

// The tries of one call, one after the other. Not thread-safe.
class Retrier {
 public:
  // Whether a call that ended with this error may be tried again at all.
  using Judge = bool (*)(const absl::Status&);

  // With `spread` pauses are up to a quarter longer, at random, so that clients which one server
  // has left do not come back all at once.
  Retrier(const CallOptions& options, absl::Duration default_timeout, const RetryPolicy& policy,
          Judge judge, bool spread);

  // What ends pauses and tries, instead of the options' canceller; not owned.
  void SetCanceller(Canceller* canceller) { options_.canceller = canceller; }

  // Of the next try, which has the time that is left.
  CallOptions options() const;

  // A server has answered: what comes after is no wrong address.
  void Heard() { heard_ = true; }

  // Waits and returns true when a try that ended so is to be followed by another one. `progress`:
  // the try has brought the call further.
  bool Again(const absl::Status& ended, bool progress);

 private:
  absl::Duration NextPause(const absl::Status& ended);

  CallOptions options_;
  const RetryPolicy policy_;
  const Judge judge_;
  const bool spread_;
  const absl::Time deadline_;
  absl::Duration pause_;              // before the next try, unless the server asks for more
  std::optional<absl::Time> broken_;  // since when there was no progress
  bool heard_ = false;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_RETRIER_H_
