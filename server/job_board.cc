#include "server/job_board.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_format.h"
#include "server/logging.h"
#include "server/status.h"

namespace tenon::server {
namespace {

using google::protobuf::util::TimeUtil;

constexpr std::string_view kNamePrefix = "jobs/";

google::protobuf::Timestamp WireTime(JobBoard::TimePoint time) {
  return TimeUtil::MicrosecondsToTimestamp(
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
}

std::string NewId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) id += absl::StrFormat("%08x", random());
  return id;
}

absl::Status NotFound(const std::string& name) {
  return Error(Reason::kNotFound, StrCat("there is no job '", name, "'")).Field("name");
}

absl::Status WrongState(v1::JobState state, std::string_view what) {
  return Error(Reason::kWrongJobState, StrCat("the job is ", JobStateLabel(state), "; ", what))
      .Field("name")
      .Meta("state", JobStateLabel(state));
}

}  // namespace

bool JobBoard::Entry::ExpiredAt(TimePoint now) const {
  if (!job.has_expire_time()) return false;
  const std::chrono::microseconds time(TimeUtil::TimestampToMicroseconds(job.expire_time()));
  return now >= TimePoint(time);
}

void JobBoard::Entry::SetPlan(v1::PlanSummary summary) {
  plan = std::make_shared<v1::PlanSummary>(summary);
  summary.clear_path();
  summary.clear_sliced_indices();
  brief_plan = std::move(summary);
}

absl::Status JobsStopped() {
  return Error(Reason::kDraining, "the server stops; the job goes on when it has started again")
      .Meta("retry_delay_seconds", 1);
}

JobPlace& JobPlace::operator=(JobPlace&& other) noexcept {
  if (this != &other) {
    Release();
    board_ = std::exchange(other.board_, nullptr);
    owner_ = std::exchange(other.owner_, {});
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void JobPlace::Release() {
  if (board_ == nullptr) return;
  std::lock_guard lock(board_->mutex_);
  board_->reserved_bytes_ -= bytes_;
  if (--board_->places_[owner_] == 0) board_->places_.erase(owner_);
  board_ = nullptr;
}

absl::StatusOr<std::shared_ptr<JobBoard>> JobBoard::Open(std::unique_ptr<JobStore> store,
                                                         const Settings& settings,
                                                         std::function<TimePoint()> now) {
  std::shared_ptr<JobBoard> board(new JobBoard(std::move(store), settings, std::move(now)));
  TENON_RETURN_IF_ERROR(board->Load());
  return board;
}

JobBoard::~JobBoard() = default;

absl::Status JobBoard::Load() {
  TENON_ASSIGN_OR_RETURN(std::vector<JobRow> rows, store_->Load());
  for (JobRow& row : rows) TakeOver(std::move(row));
  Tidy();
  return absl::OkStatus();
}

// A job as the process before left it.
void JobBoard::TakeOver(JobRow row) {
  Entry entry;
  v1::PlanSummary plan;
  auto answer = std::make_shared<v1::SubmitContractionResponse>();
  const bool readable = plan.ParseFromString(row.plan) && answer->ParseFromString(row.submission) &&
                        entry.job.ParseFromString(row.description) && row.intact;
  row.plan.clear();
  row.submission.clear();
  row.description.clear();
  entry.SetPlan(std::move(plan));
  entry.answer = std::move(answer);
  entry.row = std::move(row);
  entry.job.set_name(StrCat(kNamePrefix, entry.row.id));
  v1::JobState state = entry.job.state();
  if (!readable) {
    state = v1::JOB_STATE_FAILED;
    *entry.job.mutable_error() = ToErrorDetail(
        Error(Reason::kChecksumMismatch, "the job's description in the store is damaged"));
  } else if (state == v1::JOB_STATE_RUNNING) {
    state = v1::JOB_STATE_SUSPENDED;
  } else if (state == v1::JOB_STATE_CANCELLING) {
    state = v1::JOB_STATE_CANCELLED;
  }
  entry.dirty = state != entry.job.state() || !readable;
  if (entry.dirty && HasEnded(state)) {
    FillEnd(entry, state, &entry.job);
    entry.row.stored_bytes = 0;  // once that is stored
  }
  entry.base_bytes = entry.row.stored_bytes;
  entry.job.set_state(state);
  entry.job.set_stored_bytes(entry.row.stored_bytes);
  entry.job.set_request_id(entry.row.request_id);
  entry.job.set_owner(entry.row.owner);
  if (HasEnded(state)) {
    entry.row.reserved_bytes = entry.row.stored_bytes + JobStore::kRowBytes;
  } else {
    for (const JobData data : {JobData::kBlock, JobData::kLevel}) {
      const auto parts = store_->Parts(entry.row.number, data);
      if (!parts.ok()) continue;
      for (const auto& [part, bytes] : *parts) entry.base_bytes -= bytes;
    }
  }
  const int64_t number = entry.row.number;
  reserved_bytes_ += entry.row.reserved_bytes;
  next_number_ = std::max(next_number_, number + 1);
  by_id_[entry.row.id] = number;
  by_request_[{entry.row.owner, entry.row.request_id}] = number;
  entries_.emplace(number, std::move(entry));
}

v1::Job JobBoard::FullJob(const Entry& entry) {
  v1::Job job = entry.job;
  *job.mutable_plan() = *entry.plan;
  if (job.has_report()) *job.mutable_report()->mutable_plan() = *entry.plan;  // it is stored once
  return job;
}

JobRow JobBoard::RowOf(const Entry& entry, const v1::Job& job) {
  JobRow row = entry.row;
  row.description = job.SerializeAsString();
  return row;
}

absl::StatusOr<JobBoard::Entries::iterator> JobBoard::Find(const std::optional<std::string>& owner,
                                                           const std::string& name) {
  if (name.empty()) return Error(Reason::kMissingField, "the name is required").Field("name");
  if (!name.starts_with(kNamePrefix)) return NotFound(name);
  const auto id = by_id_.find(name.substr(kNamePrefix.size()));
  if (id == by_id_.end()) return NotFound(name);
  const auto found = entries_.find(id->second);
  if (owner.has_value() && found->second.row.owner != *owner) return NotFound(name);
  if (found->second.ExpiredAt(now_())) return NotFound(name);
  return found;
}

JobBoard::Entry* JobBoard::FindNumber(int64_t number) {
  const auto found = entries_.find(number);
  return found == entries_.end() ? nullptr : &found->second;
}

absl::StatusOr<const JobBoard::Entry*> JobBoard::FindRequest(
    const std::string& owner, const std::string& request_id,
    const std::string& header_sha256) const {
  const auto found = by_request_.find({owner, request_id});
  if (found == by_request_.end()) return nullptr;
  const Entry& entry = entries_.at(found->second);
  if (entry.ExpiredAt(now_())) return nullptr;
  if (entry.row.header_sha256 == header_sha256) return &entry;
  return Error(Reason::kAlreadyExists,
               StrCat("the request id '", request_id, "' has made another job"))
      .Field("header.contraction.request_id");
}

absl::StatusOr<std::optional<v1::SubmitContractionResponse>> JobBoard::FindSubmitted(
    const std::string& owner, const std::string& request_id, const std::string& header_sha256) {
  std::lock_guard lock(mutex_);
  TENON_ASSIGN_OR_RETURN(const Entry* const entry, FindRequest(owner, request_id, header_sha256));
  if (entry == nullptr) return std::nullopt;
  v1::SubmitContractionResponse answer = *entry->answer;
  *answer.mutable_job() = FullJob(*entry);
  answer.set_existed(true);
  return answer;
}

int64_t JobBoard::OwnedBy(const std::string& owner) const {
  const auto places = places_.find(owner);
  const int64_t uploads = places == places_.end() ? 0 : places->second;
  return uploads + std::count_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
           return entry.second.row.owner == owner;
         });
}

Quota JobBoard::QuotaOf(const std::string& owner) const {
  std::lock_guard lock(mutex_);
  return {settings_.max_jobs_per_owner, OwnedBy(owner)};
}

absl::StatusOr<JobPlace> JobBoard::Reserve(const std::string& owner, int64_t bytes) {
  std::lock_guard lock(mutex_);
  const int64_t free = settings_.budget_bytes - reserved_bytes_;
  if (bytes > free) {
    const bool never = bytes > settings_.budget_bytes;
    return Error(never ? Reason::kExceedsServerLimit : Reason::kStorageFull,
                 StrCat("the job may need ", bytes, " bytes of the job store; ",
                        never ? "all that it has is " : "what is free is ",
                        never ? settings_.budget_bytes : free))
        .Field("header")
        .Meta("planned_bytes", bytes)
        .Meta("free_bytes", free)
        .Meta("limit_bytes", settings_.budget_bytes);
  }
  const int64_t owned = OwnedBy(owner);
  if (owned >= settings_.max_jobs_per_owner) {
    return QuotaError(owner, "jobs", settings_.max_jobs_per_owner,
                      StrCat("the caller has ", owned, " jobs already; at most ",
                             settings_.max_jobs_per_owner, " are kept"))
        .Meta("limit", settings_.max_jobs_per_owner)
        .Meta("actual", owned);
  }
  reserved_bytes_ += bytes;
  ++places_[owner];
  return JobPlace(this, owner, bytes);
}

absl::StatusOr<v1::SubmitContractionResponse> JobBoard::Add(const NewJob& job, JobPlace place) {
  Entry entry;
  entry.row.id = NewId();
  entry.row.owner = job.owner;
  entry.row.request_id = job.request_id;
  entry.row.header_sha256 = job.header_sha256;
  entry.row.reserved_bytes = place.bytes_;
  entry.row.ttl_seconds =
      std::min(job.ttl_seconds.value_or(settings_.default_ttl.count()), settings_.max_ttl.count());
  entry.row.plan = job.job.plan().SerializeAsString();
  entry.row.submission = job.plan.SerializeAsString();
  {
    std::lock_guard lock(mutex_);
    entry.row.number = next_number_++;
  }
  const int64_t number = entry.row.number;
  TENON_RETURN_IF_ERROR(store_->Put(number, {JobData::kHeader}, job.header));
  entry.base_bytes = static_cast<int64_t>(job.header.size());
  for (size_t k = 0; k < job.operands.size(); ++k) {
    TENON_RETURN_IF_ERROR(
        store_->Put(number, {JobData::kOperand, static_cast<int64_t>(k)}, job.operands[k]));
    entry.base_bytes += static_cast<int64_t>(job.operands[k].size());
  }
  entry.job = job.job;
  entry.job.clear_plan();
  entry.job.set_name(StrCat(kNamePrefix, entry.row.id));
  entry.job.set_request_id(job.request_id);
  entry.job.set_owner(job.owner);
  entry.job.set_state(v1::JOB_STATE_QUEUED);
  entry.job.set_stored_bytes(entry.base_bytes);
  entry.SetPlan(job.job.plan());
  entry.answer = std::make_shared<v1::SubmitContractionResponse>(job.plan);
  v1::SubmitContractionResponse answer = job.plan;
  std::lock_guard persist(persist_mutex_);
  {
    // The same request may have been uploaded twice at the same time.
    std::lock_guard lock(mutex_);
    TENON_ASSIGN_OR_RETURN(const Entry* const other,
                           FindRequest(job.owner, job.request_id, job.header_sha256));
    if (other != nullptr) {
      *answer.mutable_job() = FullJob(*other);
      answer.set_existed(true);
    }
    *entry.job.mutable_create_time() = WireTime(now_());
  }
  if (answer.existed()) {
    store_->Remove(number).IgnoreError();  // else the next start does
    return answer;
  }
  TENON_RETURN_IF_ERROR(store_->Add(RowOf(entry, entry.job)));
  entry.row.plan.clear();
  entry.row.submission.clear();
  *answer.mutable_job() = FullJob(entry);
  {
    std::lock_guard lock(mutex_);
    reserved_bytes_ += place.bytes_;  // which the place gives back
    by_id_[entry.row.id] = number;
    by_request_[{job.owner, job.request_id}] = number;
    entries_.emplace(number, std::move(entry));
  }
  work_.notify_one();
  return answer;
}

absl::StatusOr<v1::Job> JobBoard::Get(const std::optional<std::string>& owner,
                                      const std::string& name) {
  std::lock_guard lock(mutex_);
  TENON_ASSIGN_OR_RETURN(const auto found, Find(owner, name));
  return FullJob(found->second);
}

void JobBoard::List(const std::optional<std::string>& owner, int64_t before,
                    const std::function<bool(int64_t number, v1::Job job)>& take) {
  std::lock_guard lock(mutex_);
  const TimePoint now = now_();
  auto entry = before > 0 ? entries_.lower_bound(before) : entries_.end();
  while (entry != entries_.begin()) {
    --entry;
    const Entry& found = entry->second;
    if ((owner.has_value() && found.row.owner != *owner) || found.ExpiredAt(now)) continue;
    v1::Job job = found.job;
    job.clear_report();
    *job.mutable_plan() = found.brief_plan;
    if (!take(entry->first, std::move(job))) return;
  }
}

absl::StatusOr<v1::Job> JobBoard::Cancel(const std::optional<std::string>& owner,
                                         const std::string& name) {
  Woken woken;
  v1::Job job;
  int64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    TENON_ASSIGN_OR_RETURN(const auto found, Find(owner, name));
    Entry& entry = found->second;
    number = found->first;
    const std::optional<v1::JobState> to = AfterCancel(entry.job.state());
    if (to == v1::JOB_STATE_CANCELLING) {
      Move(entry, *to, &woken);
      if (entry.cancel != nullptr) entry.cancel->Cancel(Reason::kClientCancelled);
    } else if (to.has_value()) {
      v1::Job ended = entry.job;
      FillEnd(entry, *to, &ended);
      EndEntry(entry, ended, 0, &woken);
    }
    job = FullJob(entry);
    entry.dirty = entry.dirty || to.has_value();
    if (!entry.dirty) return job;
  }
  WakeAll(woken);
  TENON_RETURN_IF_ERROR(Persist(number));
  return job;
}

absl::StatusOr<int64_t> JobBoard::Delete(const std::optional<std::string>& owner,
                                         const std::string& name) {
  std::lock_guard persist(persist_mutex_);
  int64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    TENON_ASSIGN_OR_RETURN(const auto found, Find(owner, name));
    const v1::JobState state = found->second.job.state();
    if (!HasEnded(state)) {
      return WrongState(state, "it can be deleted once it has ended: cancel it first");
    }
    number = found->first;
  }
  TENON_RETURN_IF_ERROR(store_->Remove(number));
  return Forget(number);
}

// With persist_mutex_ held, so that nobody stores the job again; the bytes that it had.
int64_t JobBoard::Forget(int64_t number) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(number);
  if (found == entries_.end()) return 0;
  const Entry& entry = found->second;
  const int64_t bytes = entry.job.stored_bytes();
  reserved_bytes_ -= entry.row.reserved_bytes;
  by_id_.erase(entry.row.id);
  const auto request = by_request_.find({entry.row.owner, entry.row.request_id});
  if (request != by_request_.end() && request->second == number) by_request_.erase(request);
  entries_.erase(found);
  shrink_ = true;
  return bytes;
}

absl::StatusOr<std::pair<int64_t, int64_t>> JobBoard::FindResult(const std::string& owner,
                                                                 const std::string& name) {
  std::lock_guard lock(mutex_);
  TENON_ASSIGN_OR_RETURN(const auto found, Find(owner, name));
  const v1::Job& job = found->second.job;
  if (job.state() != v1::JOB_STATE_SUCCEEDED) return WrongState(job.state(), "it has no result");
  return std::make_pair(found->first, job.result_bytes());
}

std::optional<v1::ContractProgress> JobBoard::ProgressOf(const std::string& owner,
                                                         const std::string& name) {
  std::lock_guard lock(mutex_);
  const auto found = Find(owner, name);
  if (!found.ok() || !(*found)->second.job.has_progress()) return std::nullopt;
  return (*found)->second.job.progress();
}

absl::Status JobBoard::Watch(const std::string& owner, const std::string& name,
                             std::weak_ptr<JobListener> listener) {
  const auto target = listener.lock();
  {
    std::lock_guard lock(mutex_);
    TENON_ASSIGN_OR_RETURN(const auto found, Find(owner, name));
    Entry& entry = found->second;
    const bool ended = HasEnded(entry.job.state());
    if (stopped_ && !ended) return JobsStopped();
    target->Note(FullJob(entry));
    std::erase_if(entry.listeners, [](const auto& other) { return other.expired(); });
    if (!ended) entry.listeners.push_back(std::move(listener));
  }
  target->Wake();
  return absl::OkStatus();
}

void JobBoard::FillEnd(const Entry& entry, v1::JobState state, v1::Job* job) const {
  const TimePoint now = now_();
  job->set_state(state);
  *job->mutable_end_time() = WireTime(now);
  constexpr double kLongest = 1e9;
  const std::chrono::duration<double> ttl(std::clamp(entry.row.ttl_seconds, 0.0, kLongest));
  *job->mutable_expire_time() =
      WireTime(now + std::chrono::duration_cast<TimePoint::duration>(ttl));
}

void JobBoard::Move(Entry& entry, v1::JobState state, Woken* woken) {
  entry.job.set_state(state);
  if (state == v1::JOB_STATE_RUNNING && !entry.job.has_start_time()) {
    *entry.job.mutable_start_time() = WireTime(now_());
  }
  Tell(entry, woken);
}

void JobBoard::Tell(Entry& entry, Woken* woken) {
  for (const std::weak_ptr<JobListener>& weak : entry.listeners) {
    const std::shared_ptr<JobListener> listener = weak.lock();
    if (listener == nullptr) continue;
    listener->Note(FullJob(entry));
    woken->push_back(listener);
  }
  if (HasEnded(entry.job.state())) entry.listeners.clear();
}

// The job is `job` from now on, and has so many bytes of data.
void JobBoard::EndEntry(Entry& entry, const v1::Job& job, int64_t kept_bytes, Woken* woken) {
  if (entry.cancel != nullptr) --running_;
  entry.cancel.reset();
  entry.run_deadline.reset();
  entry.job = job;
  entry.job.set_stored_bytes(kept_bytes);
  const int64_t reserved = kept_bytes + JobStore::kRowBytes;
  reserved_bytes_ += reserved - entry.row.reserved_bytes;
  entry.row.reserved_bytes = reserved;
  shrink_ = true;
  Tell(entry, woken);
}

void JobBoard::WakeAll(const Woken& woken) {
  for (const auto& listener : woken) listener->Wake();
}

absl::Status JobBoard::Persist(int64_t number) {
  std::lock_guard persist(persist_mutex_);
  JobRow row;
  v1::JobState state;
  {
    std::lock_guard lock(mutex_);
    Entry* const entry = FindNumber(number);
    if (entry == nullptr) return absl::OkStatus();
    row = RowOf(*entry, entry->job);
    state = entry->job.state();
    entry->dirty = false;
  }
  const absl::Status status =
      HasEnded(state) ? store_->Finish(row, state == v1::JOB_STATE_SUCCEEDED) : store_->Update(row);
  if (status.ok()) return status;
  std::lock_guard lock(mutex_);
  if (Entry* const entry = FindNumber(number)) entry->dirty = true;
  return status;
}

JobBoard::Counts JobBoard::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts;
  counts.resumed = resumed_;
  for (const auto& [number, entry] : entries_) {
    const auto* const state =
        std::find(std::begin(kJobStates), std::end(kJobStates), entry.job.state());
    if (state != std::end(kJobStates)) ++counts.by_state[state - std::begin(kJobStates)];
    counts.store_bytes += entry.job.stored_bytes();
  }
  return counts;
}

int JobBoard::running() const {
  std::lock_guard lock(mutex_);
  return running_;
}

}  // namespace tenon::server
