// When what was done, for reports with REPORT_DETAIL_TIMELINE.

#ifndef TENON_SERVER_TIMELINE_H_
#define TENON_SERVER_TIMELINE_H_

#include <google/protobuf/repeated_field.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "tenon/v1/report.pb.h"

namespace tenon::server {

// Time spans as they end, the first kMaxEvents of them. Thread-safe.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMaxEvents = 10'000;

  // Execution starts; before the first span.
  void Start(Clock::time_point now) { start_ = now; }
  // `worker` of the provider, from 0.
  void Add(int64_t item, std::string_view provider, int worker, Clock::time_point begin,
           Clock::time_point end);
  // In the order of their beginnings.
  void Write(google::protobuf::RepeatedPtrField<v1::TimelineEvent>* out) const;

 private:
  mutable std::mutex mutex_;
  Clock::time_point start_;
  std::vector<v1::TimelineEvent> events_;
};

// Gives each event the first worker of its provider that is free when it begins, and puts them in
// the order of their beginnings.
void AssignWorkers(std::vector<v1::TimelineEvent>* events);

}  // namespace tenon::server

#endif  // TENON_SERVER_TIMELINE_H_
