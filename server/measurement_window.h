// The projections of a stream that are in flight, in order of arrival.

#ifndef TENON_SERVER_MEASUREMENT_WINDOW_H_
#define TENON_SERVER_MEASUREMENT_WINDOW_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "backends/core/tensor.h"
#include "backends/measurement/session.h"
#include "server/admission.h"
#include "server/tensor_receiver.h"

namespace tenon::server {

// One projection from its first frame to its answer. Used by one thread at a time: the reader, then
// a worker, then whoever delivers.
struct ProjectionItem {
  using TimePoint = std::chrono::steady_clock::time_point;

  int64_t index = 0;
  std::string name;
  TensorReceiver data;
  int64_t columns = 0;
  int64_t bytes = 0;  // of its values on the wire
  Reservation extra;  // bytes beyond those that the plan assumed
  absl::StatusOr<measurement::ProjectionScores> result = absl::UnknownError("not scored yet");
  TimePoint complete, begun, ended;  // last byte, begin and end of scoring
  int in_flight = 0;                 // projections held when this one came, itself included
  bool consumed = false;             // all of its bytes came
};

// Thread-safe. A projection is *held* from its arrival until its answer has been written.
class ProjectionWindow {
 public:
  using ItemPointer = std::shared_ptr<ProjectionItem>;

  // Before the first Add; at most `width` are held then.
  void SetWidth(int width);

  // True when one more may be held. Else false, and the next Release that makes room returns true.
  bool AskRoom();
  // The projection that comes next. Its answer's turn is after those of all added before.
  void Add(const ItemPointer& item);
  // The item's result stands. Hands every item whose turn has come to `deliver`, in order and one
  // at a time: the calling thread does so unless another one is at it and will see this item too.
  void Complete(const ItemPointer& item, const std::function<void(const ItemPointer&)>& deliver);
  // Takes back an item that is not complete.
  void Withdraw(const ItemPointer& item);
  // An answer has been written. True when AskRoom was told false before: go on reading.
  bool Release();
  // Forgets everything; what is added or completed from now on is dropped.
  void Abandon();

  // Nothing waits for its answer and nothing is being delivered.
  bool drained() const;
  int max_held() const;

 private:
  struct Slot {
    ItemPointer item;
    bool complete = false;
  };

  mutable std::mutex mutex_;
  std::deque<Slot> slots_;
  int width_ = 1, held_ = 0, max_held_ = 0;
  bool room_wanted_ = false, delivering_ = false, abandoned_ = false;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_MEASUREMENT_WINDOW_H_
