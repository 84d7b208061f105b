#include "server/work_watch.h"

#include <algorithm>
#include <utility>

namespace tenon::server {

void LogTask(LogLevel level, std::string_view event, const WorkWatch::Task& task) {
  Log(level, event,
      {{"method", task.method},
       {"request_id", task.request_id},
       {"phase", task.phase},
       {"running_seconds", task.running_seconds}});
}

WorkWatch::Entry::Entry(WorkWatch* watch, const CancelToken* cancel, std::string_view method,
                        std::string_view phase, std::string request_id)
    : watch_(watch),
      cancel_(cancel),
      method_(method),
      phase_(phase),
      request_id_(std::move(request_id)),
      begun_(watch->now_()) {
  std::lock_guard lock(watch_->mutex_);
  place_ = watch_->entries_.size();
  watch_->entries_.push_back(this);
}

WorkWatch::Entry::~Entry() {
  std::lock_guard lock(watch_->mutex_);
  watch_->entries_.back()->place_ = place_;
  std::swap(watch_->entries_[place_], watch_->entries_.back());
  watch_->entries_.pop_back();
}

void WorkWatch::Configure(const Limits& limits, std::function<void()> changed) {
  limits_ = limits;
  changed_ = std::move(changed);
}

void WorkWatch::Start() {
  if (limits_.stuck.count() > 0 || limits_.slow.count() > 0) {
    thread_ = std::thread([this] { Run(); });
  }
}

void WorkWatch::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WorkWatch::Run() {
  auto interval = std::chrono::milliseconds(1000);
  for (const auto limit : {limits_.stuck, limits_.slow}) {
    if (limit.count() > 0) interval = std::min(interval, limit / 4);
  }
  interval = std::max(interval, std::chrono::milliseconds(10));
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, interval, [this] { return stopped_; })) {
    lock.unlock();
    Look();
    lock.lock();
  }
}

bool WorkWatch::IsStuck(Entry* entry, Clock::time_point now) const {
  if (limits_.stuck.count() == 0 || !entry->cancel_->cancelled()) return false;
  if (!entry->told_to_stop_.has_value()) entry->told_to_stop_ = now;
  return now - *entry->told_to_stop_ >= limits_.stuck;
}

void WorkWatch::Look() {
  const Clock::time_point now = now_();
  std::vector<Task> stuck, slow;
  bool any = false, changed = false;
  {
    std::lock_guard lock(mutex_);
    for (Entry* entry : entries_) {
      if (IsStuck(entry, now)) {
        any = true;
        if (!std::exchange(entry->stuck_, true)) stuck.push_back(Describe(*entry, now));
      } else if (limits_.slow.count() > 0 && now - entry->begun_ >= limits_.slow) {
        if (!std::exchange(entry->slow_, true)) slow.push_back(Describe(*entry, now));
      }
    }
    if (any) last_stuck_ = now;
    const bool is_stuck = any || (is_stuck_ && now - last_stuck_ < limits_.stuck);
    changed = std::exchange(is_stuck_, is_stuck) != is_stuck;
  }
  for (const Task& task : stuck) LogTask(LogLevel::kError, "stuck work", task);
  for (const Task& task : slow) LogTask(LogLevel::kWarning, "slow work", task);
  if (changed && changed_) changed_();
}

bool WorkWatch::stuck() const {
  std::lock_guard lock(mutex_);
  return is_stuck_;
}

std::vector<WorkWatch::Task> WorkWatch::Running() const {
  const Clock::time_point now = now_();
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    for (const Entry* entry : entries_) tasks.push_back(Describe(*entry, now));
  }
  std::sort(tasks.begin(), tasks.end(),
            [](const Task& a, const Task& b) { return a.running_seconds > b.running_seconds; });
  return tasks;
}

WorkWatch::Task WorkWatch::Describe(const Entry& entry, Clock::time_point now) const {
  return {std::string(entry.method_), entry.request_id_, std::string(entry.phase_),
          std::chrono::duration<double>(now - entry.begun_).count(), entry.stuck_};
}

}  // namespace tenon::server
