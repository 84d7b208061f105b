// Test methods on BidiStream, the base that the server's streams share.

#ifndef TENON_TESTS_INTEGRATION_STREAM_SERVICE_H_
#define TENON_TESTS_INTEGRATION_STREAM_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/bidi_stream.h"
#include "server/state.h"

namespace tenon::testing {

// Methods, by path:
//   /test/echo    answers every message with itself
//   /test/flood   answers the first message with 1 MiB messages without end
//   /test/wait    answers the first message with one, then waits until cancelled
//   /test/stuck   as wait, and holds on to its call until Release, cancelled or not
//   /test/chunk   answers every chunk in field 2 with its data, any other message with "parsed"
//   /test/fail    fails with BAD_PATH on the first message, after a flood has been queued
class StreamService : public grpc::CallbackGenericService {
 public:
  // Set before the first call.
  void set_state(server::ServerState* state) { state_ = state; }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  // Waits until `count` calls have ended; why each one's token was cancelled, in order of the end.
  std::vector<std::string> WaitForEnds(size_t count);
  void Release();
  void WaitUntilReleased();
  void Ended(const absl::Status& why);

  // Messages of /test/fail: produced so far, and when Fail had returned.
  void CountProduced() { ++produced_; }
  void KeepProducedAtFailure() { produced_at_failure_ = produced_.load(); }
  int produced_at_failure() const { return produced_at_failure_; }

 private:
  server::ServerState* state_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> ends_;
  bool released_ = false;
  std::atomic<int> produced_{0}, produced_at_failure_{0};
};

}  // namespace tenon::testing

#endif  // TENON_TESTS_INTEGRATION_STREAM_SERVICE_H_
