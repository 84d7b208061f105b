// The part of JobBoard that runners use.

#include <algorithm>

#include "backends/core/error.h"
#include "server/job_board.h"
#include "server/logging.h"
#include "server/status.h"

namespace tenon::server {

using Clock = std::chrono::steady_clock;

// Owners take turns in the order of their names: the next one after the last whose turn it was.
// end() where no job may run now; `soonest`: when the next one may that only waits for a time.
JobBoard::Entries::iterator JobBoard::NextToRun(std::optional<Clock::time_point>* soonest) {
  const Clock::time_point now = Clock::now();
  std::map<std::string_view, Entries::iterator> first;  // of each owner; end(): it has no turn
  for (auto next = entries_.begin(); next != entries_.end(); ++next) {
    const Entry& entry = next->second;
    const std::string_view owner = entry.row.owner;
    if (entry.cancel != nullptr) {
      if (entry.waits_for_memory) first[owner] = entries_.end();
    } else if (MayMove(entry.job.state(), v1::JOB_STATE_RUNNING) && !first.contains(owner)) {
      if (!entry.not_before.has_value() || *entry.not_before <= now) {
        first.emplace(owner, next);
      } else {
        *soonest = std::min(soonest->value_or(*entry.not_before), *entry.not_before);
      }
    }
  }
  std::erase_if(first, [&](const auto& one) { return one.second == entries_.end(); });
  if (first.empty()) return entries_.end();
  const auto after = first.upper_bound(last_owner_);
  return after == first.end() ? first.begin()->second : after->second;
}

std::optional<JobRun> JobBoard::Claim() {
  JobRun run;
  Woken woken;
  {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (stopped_) return std::nullopt;
      std::optional<Clock::time_point> soonest;
      const auto next = NextToRun(&soonest);
      if (next != entries_.end()) {
        run.number = next->first;
        break;
      }
      if (soonest.has_value()) {
        work_.wait_until(lock, *soonest);
      } else {
        work_.wait(lock);
      }
    }
    Entry& entry = *FindNumber(run.number);
    if (entry.job.state() == v1::JOB_STATE_SUSPENDED) {
      entry.job.set_resume_count(entry.job.resume_count() + 1);
      ++resumed_;
    }
    entry.cancel = std::make_shared<CancelToken>();
    entry.not_before.reset();
    entry.waits_for_memory = false;
    last_owner_ = entry.row.owner;
    ++running_;
    run.id = entry.row.id;
    run.owner = entry.job.owner();
    run.request_id = entry.row.request_id;
    run.cancel = entry.cancel;
    run.next_group = entry.row.next_group;
    run.run_seconds = entry.row.run_seconds;
    Move(entry, v1::JOB_STATE_RUNNING, &woken);
  }
  WakeAll(woken);
  // That it runs is known after a restart even if this fails: it is QUEUED or SUSPENDED then.
  Persist(run.number).IgnoreError();
  return run;
}

void JobBoard::SetWaiting(int64_t number, bool waits) {
  {
    std::lock_guard lock(mutex_);
    if (Entry* const entry = FindNumber(number)) entry->waits_for_memory = waits;
  }
  if (!waits) work_.notify_all();
}

void JobBoard::Stop() {
  Woken told;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    for (auto& [number, entry] : entries_) {
      for (const auto& weak : entry.listeners) {
        if (auto listener = weak.lock()) told.push_back(std::move(listener));
      }
      entry.listeners.clear();
    }
  }
  work_.notify_all();
  for (const auto& listener : told) listener->Stopped();
}

bool JobBoard::stopped() const {
  std::lock_guard lock(mutex_);
  return stopped_;
}

void JobBoard::CancelRunning(Reason reason) {
  std::lock_guard lock(mutex_);
  for (auto& [number, entry] : entries_) {
    if (entry.cancel != nullptr) entry.cancel->Cancel(reason);
  }
}

void JobBoard::SetRunDeadline(int64_t number, Clock::time_point deadline) {
  std::lock_guard lock(mutex_);
  if (Entry* const entry = FindNumber(number)) entry->run_deadline = deadline;
}

void JobBoard::SetProgress(int64_t number, const v1::ContractProgress& progress) {
  std::lock_guard lock(mutex_);
  if (Entry* const entry = FindNumber(number)) *entry->job.mutable_progress() = progress;
}

absl::Status JobBoard::StoreCheckpoint(int64_t number, const Progress& progress,
                                       const std::vector<JobStore::NewPart>& parts,
                                       const std::vector<int64_t>& dropped_levels) {
  std::lock_guard persist(persist_mutex_);
  JobRow row;
  {
    std::lock_guard lock(mutex_);
    Entry* const entry = FindNumber(number);
    if (entry == nullptr) return Error(Reason::kInternal, "the job is gone");
    v1::Job job = entry->job;
    job.set_groups_done(progress.groups_done);
    job.set_stored_bytes(entry->base_bytes + progress.sum_bytes);
    row = RowOf(*entry, job);
    row.next_group = progress.next_group;
    row.run_seconds = progress.run_seconds;
  }
  TENON_RETURN_IF_ERROR(store_->Checkpoint(row, parts, dropped_levels));
  std::lock_guard lock(mutex_);
  if (Entry* const entry = FindNumber(number)) {
    entry->row.next_group = progress.next_group;
    entry->row.run_seconds = progress.run_seconds;
    entry->job.set_groups_done(progress.groups_done);
    entry->job.set_stored_bytes(entry->base_bytes + progress.sum_bytes);
  }
  return absl::OkStatus();
}

// Stored first: who sees the end of a job may rely on it.
absl::Status JobBoard::End(int64_t number, v1::JobState state, int64_t kept_bytes,
                           const std::function<void(v1::Job*)>& fill) {
  Woken woken;
  {
    std::lock_guard persist(persist_mutex_);
    v1::Job job;
    JobRow row;
    {
      std::lock_guard lock(mutex_);
      Entry* const entry = FindNumber(number);
      if (entry == nullptr) return absl::OkStatus();
      job = entry->job;
      FillEnd(*entry, state, &job);
      fill(&job);
      job.set_stored_bytes(kept_bytes);
      row = RowOf(*entry, job);
    }
    const bool succeeded = state == v1::JOB_STATE_SUCCEEDED;
    const absl::Status stored = store_->Finish(row, succeeded);
    if (!stored.ok() && succeeded) return stored;
    std::lock_guard lock(mutex_);
    Entry* const entry = FindNumber(number);
    if (entry == nullptr) return absl::OkStatus();
    entry->dirty = !stored.ok();
    EndEntry(*entry, job, kept_bytes, &woken);
  }
  WakeAll(woken);
  return absl::OkStatus();
}

absl::Status JobBoard::Succeed(int64_t number, const v1::ContractResult& head,
                               std::string_view bytes, const v1::ContractionReport& report) {
  const std::string description = head.SerializeAsString();
  TENON_RETURN_IF_ERROR(store_->Put(number, {JobData::kResultHead}, description));
  TENON_RETURN_IF_ERROR(store_->Put(number, {JobData::kResult}, bytes));
  return End(number, v1::JOB_STATE_SUCCEEDED,
             static_cast<int64_t>(description.size() + bytes.size()), [&](v1::Job* job) {
               job->set_groups_done(job->groups_total());
               *job->mutable_report() = report;
             });
}

void JobBoard::Fail(int64_t number, const absl::Status& why) {
  End(number, v1::JOB_STATE_FAILED, 0, [&](v1::Job* job) {
    *job->mutable_error() = ToErrorDetail(why);
  }).IgnoreError();
}

void JobBoard::EndCancelled(int64_t number) {
  End(number, v1::JOB_STATE_CANCELLED, 0, [](v1::Job*) {}).IgnoreError();
}

void JobBoard::Suspend(int64_t number, double run_seconds, std::chrono::milliseconds delay) {
  Woken woken;
  {
    std::lock_guard lock(mutex_);
    Entry* const entry = FindNumber(number);
    if (entry == nullptr) return;
    if (entry->job.state() == v1::JOB_STATE_RUNNING) {
      if (entry->cancel != nullptr) --running_;
      entry->cancel.reset();
      entry->run_deadline.reset();
      entry->row.run_seconds = run_seconds;
      entry->not_before = Clock::now() + delay;
      Move(*entry, v1::JOB_STATE_SUSPENDED, &woken);
      number = entry->row.number;
    } else {
      number = -number;  // cancelled meanwhile
    }
  }
  if (number < 0) return EndCancelled(-number);
  WakeAll(woken);
  Persist(number).IgnoreError();  // RUNNING leads to the same after a restart
  work_.notify_one();
}

void JobBoard::DropExpired() {
  std::vector<int64_t> expired;
  {
    std::lock_guard lock(mutex_);
    const TimePoint now = now_();
    for (const auto& [number, entry] : entries_) {
      if (entry.ExpiredAt(now)) expired.push_back(number);
    }
  }
  for (const int64_t number : expired) {
    std::lock_guard persist(persist_mutex_);
    if (store_->Remove(number).ok()) Forget(number);
  }
}

void JobBoard::Tidy() {
  DropExpired();
  std::vector<int64_t> dirty;
  bool shrink = false;
  {
    std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    for (auto& [number, entry] : entries_) {
      if (entry.dirty) dirty.push_back(number);
      if (entry.cancel != nullptr && entry.run_deadline.has_value() && *entry.run_deadline <= now) {
        entry.cancel->Cancel(Reason::kDeadline);
      }
    }
    shrink = std::exchange(shrink_, false);
  }
  for (const int64_t number : dirty) {
    const absl::Status status = Persist(number);
    if (!status.ok()) {
      Log(LogLevel::kError, "a job's state can't be stored",
          {{"reason", std::string(status.message())}});
    }
  }
  if (!shrink || !store_->Shrink().value_or(true)) return;
  std::lock_guard lock(mutex_);
  shrink_ = true;
}

}  // namespace tenon::server
