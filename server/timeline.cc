#include "server/timeline.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace tenon::server {
namespace {

void SortByBegin(std::vector<v1::TimelineEvent>* events) {
  std::stable_sort(events->begin(), events->end(), [](const auto& a, const auto& b) {
    return a.begin_seconds() < b.begin_seconds();
  });
}

}  // namespace

void Timeline::Add(int64_t item, std::string_view provider, int worker, Clock::time_point begin,
                   Clock::time_point end) {
  const auto seconds = [this](Clock::time_point time) {
    return std::chrono::duration<double>(time - start_).count();
  };
  v1::TimelineEvent event;
  event.set_item(item);
  event.set_provider(std::string(provider));
  event.set_worker(worker);
  event.set_begin_seconds(seconds(begin));
  event.set_end_seconds(seconds(end));
  std::lock_guard lock(mutex_);
  if (events_.size() < kMaxEvents) events_.push_back(std::move(event));
}

void Timeline::Write(google::protobuf::RepeatedPtrField<v1::TimelineEvent>* out) const {
  std::vector<v1::TimelineEvent> events;
  {
    std::lock_guard lock(mutex_);
    events = events_;
  }
  SortByBegin(&events);
  out->Assign(events.begin(), events.end());
}

void AssignWorkers(std::vector<v1::TimelineEvent>* events) {
  SortByBegin(events);
  std::map<std::string, std::vector<double>> ends;  // of each worker's last event
  for (v1::TimelineEvent& event : *events) {
    std::vector<double>& workers = ends[event.provider()];
    const auto free = std::find_if(workers.begin(), workers.end(),
                                   [&](double end) { return end <= event.begin_seconds(); });
    event.set_worker(static_cast<int32_t>(free - workers.begin()));
    if (free == workers.end()) {
      workers.push_back(event.end_seconds());
    } else {
      *free = event.end_seconds();
    }
  }
}

}  // namespace tenon::server
