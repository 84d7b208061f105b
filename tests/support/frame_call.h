// One streaming call, given its frames as bytes: writes and reads at once, as a client must when
// the server holds it back until answers are read.

#ifndef TENON_TESTS_SUPPORT_FRAME_CALL_H_
#define TENON_TESTS_SUPPORT_FRAME_CALL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tenon::testing {

struct FrameScript {
  std::string method;  // "/tenon.v1.MeasurementService/Measure"
  std::vector<std::string> frames;
  // What follows the last frame. kSilence: nothing, until the deadline.
  enum class End { kHalfClose, kCancel, kDisconnect, kSilence } end = End::kHalfClose;
  bool reads = true;  // false: no answer is read before everything is sent
  std::chrono::milliseconds timeout{20'000};
  std::function<void()> disconnect;  // breaks the connection; for kDisconnect
};

struct FrameAnswer {
  grpc::Status status;
  std::vector<std::string> frames;
};

// Runs the call to its status.
FrameAnswer RunFrames(const std::shared_ptr<grpc::Channel>& channel, const FrameScript& script);

}  // namespace tenon::testing

#endif  // TENON_TESTS_SUPPORT_FRAME_CALL_H_
