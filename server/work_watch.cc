#include "server/work_watch.h"

#include <algorithm>
#include <utility>

#include "server/logging.h"

namespace tenon::server {

WorkWatch::Entry::Entry(WorkWatch* watch, const CancelToken* cancel, std::string_view method,
                        std::string request_id)
    : watch_(watch),
      cancel_(cancel),
      method_(method),
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

void WorkWatch::Configure(std::chrono::milliseconds limit, std::function<void()> changed) {
  limit_ = limit;
  changed_ = std::move(changed);
}

void WorkWatch::Start() {
  if (limit_.count() > 0) thread_ = std::thread([this] { Run(); });
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
  const auto interval =
      std::clamp(limit_ / 4, std::chrono::milliseconds(10), std::chrono::milliseconds(1000));
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, interval, [this] { return stopped_; })) {
    lock.unlock();
    Look();
    lock.lock();
  }
}

void WorkWatch::Look() {
  if (limit_.count() == 0) return;
  const Clock::time_point now = now_();
  std::vector<Task> found;
  bool any = false, changed = false;
  {
    std::lock_guard lock(mutex_);
    for (Entry* entry : entries_) {
      if (!entry->cancel_->cancelled()) continue;
      if (!entry->told_to_stop_.has_value()) entry->told_to_stop_ = now;
      if (now - *entry->told_to_stop_ < limit_) continue;
      any = true;
      if (!std::exchange(entry->stuck_, true)) found.push_back(Describe(*entry, now));
    }
    if (any) last_stuck_ = now;
    const bool stuck = any || (is_stuck_ && now - last_stuck_ < limit_);
    changed = std::exchange(is_stuck_, stuck) != stuck;
  }
  for (const Task& task : found) {
    Log(LogLevel::kError, "stuck work",
        {{"method", task.method},
         {"request_id", task.request_id},
         {"running_seconds", task.running_seconds}});
  }
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
  return {std::string(entry.method_), entry.request_id_,
          std::chrono::duration<double>(now - entry.begun_).count(), entry.stuck_};
}

}  // namespace tenon::server
