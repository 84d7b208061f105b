// The jobs that a server has: who owns them, where they stand, and what may be done with them.

#ifndef TENON_SERVER_JOB_BOARD_H_
#define TENON_SERVER_JOB_BOARD_H_

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "backends/core/error.h"
#include "server/job_state.h"
#include "server/job_store.h"
#include "server/quota.h"
#include "tenon/v1/job.pb.h"

namespace tenon::server {

class JobBoard;

// DRAINING: a job waits for the next process.
absl::Status JobsStopped();

// Who follows a job.
class JobListener {
 public:
  virtual ~JobListener() = default;
  // The job has another state. In the order of the changes; must not call the board.
  virtual void Note(const v1::Job& job) = 0;
  // After one or more Notes, without a lock of the board.
  virtual void Wake() = 0;
  // The board is stopped; nothing follows. Without a lock of the board.
  virtual void Stopped() = 0;
};

// Room for a job that is being uploaded; given back when destroyed. Movable.
class JobPlace {
 public:
  JobPlace() = default;
  ~JobPlace() { Release(); }
  JobPlace(JobPlace&& other) noexcept { *this = std::move(other); }
  JobPlace& operator=(JobPlace&& other) noexcept;

 private:
  friend class JobBoard;
  JobPlace(JobBoard* board, std::string owner, int64_t bytes)
      : board_(board), owner_(std::move(owner)), bytes_(bytes) {}
  void Release();

  JobBoard* board_ = nullptr;
  std::string owner_;
  int64_t bytes_ = 0;
};

// A job as its submission describes it.
struct NewJob {
  std::string owner, request_id;
  std::string header_sha256;           // of the header as it came
  std::string header;                  // what is to be run: bytes of a SubmitContractionHeader
  std::optional<double> ttl_seconds;   // absent: the board's default
  v1::Job job;                         // display_name, plan, result_*, groups_total
  v1::SubmitContractionResponse plan;  // the answer without the job
  std::vector<std::string_view> operands;
};

// A job that a runner has to run.
struct JobRun {
  int64_t number = 0;
  std::string id;
  std::string owner;
  std::string request_id;  // of the submission
  std::shared_ptr<CancelToken> cancel;
  int64_t next_group = 0;
  double run_seconds = 0;  // that it has run already
};

// Descriptions are in memory, so that who asks for them waits for no disk; everything that changes
// is stored too. Thread-safe. Names are "jobs/{id}"; a job of another owner is NOT_FOUND with field
// "name", as one that has expired; no owner stands for any. Errors of the store are those of
// JobStore.
class JobBoard {
 public:
  using TimePoint = std::chrono::system_clock::time_point;

  struct Settings {
    std::chrono::duration<double> default_ttl{86400}, max_ttl{7 * 86400};
    int64_t max_jobs_per_owner = 1000;
    int64_t budget_bytes = 0;  // of all jobs
  };

  // Takes over the jobs of the store: those that ran are suspended, those that were to be cancelled
  // are.
  static absl::StatusOr<std::shared_ptr<JobBoard>> Open(
      std::unique_ptr<JobStore> store, const Settings& settings,
      std::function<TimePoint()> now = std::chrono::system_clock::now);

  ~JobBoard();
  JobBoard(const JobBoard&) = delete;
  JobBoard& operator=(const JobBoard&) = delete;

  const Settings& settings() const { return settings_; }
  JobStore& store() { return *store_; }

  // Submission. The answer of the job that has this request id; ALREADY_EXISTS with field
  // "header.contraction.request_id" when another header made it.
  absl::StatusOr<std::optional<v1::SubmitContractionResponse>> FindSubmitted(
      const std::string& owner, const std::string& request_id, const std::string& header_sha256);
  // EXCEEDS_SERVER_LIMIT or STORAGE_FULL when the job will not fit, QUOTA when the owner has as
  // many as he may. The place goes before the board.
  absl::StatusOr<JobPlace> Reserve(const std::string& owner, int64_t bytes);
  // Of jobs that are kept, and of places.
  Quota QuotaOf(const std::string& owner) const;
  // Stores the job. Waits for the disk. Errors also as FindSubmitted.
  absl::StatusOr<v1::SubmitContractionResponse> Add(const NewJob& job, JobPlace place);

  // Calls of clients.
  absl::StatusOr<v1::Job> Get(const std::optional<std::string>& owner, const std::string& name);
  // Without what lists leave out: the newest first, those with a number below `before` (0: all),
  // while `take` returns true. nullopt: of all owners.
  void List(const std::optional<std::string>& owner, int64_t before,
            const std::function<bool(int64_t number, v1::Job job)>& take);
  // The next two wait for the disk. WRONG_JOB_STATE with field "name" where the table says so.
  absl::StatusOr<v1::Job> Cancel(const std::optional<std::string>& owner, const std::string& name);
  absl::StatusOr<int64_t> Delete(const std::optional<std::string>& owner, const std::string& name);
  // Number and size of a result that may be read.
  absl::StatusOr<std::pair<int64_t, int64_t>> FindResult(const std::string& owner,
                                                         const std::string& name);
  // nullopt before it runs.
  std::optional<v1::ContractProgress> ProgressOf(const std::string& owner, const std::string& name);
  // Notes the job as it is now, then every change. DRAINING once the board is stopped, unless the
  // job has ended.
  absl::Status Watch(const std::string& owner, const std::string& name,
                     std::weak_ptr<JobListener> listener);

  // Runners. The next job, from now on RUNNING; waits for one. nullopt after Stop. Owners take
  // turns, and each one's jobs come in the order of their submission.
  std::optional<JobRun> Claim();
  // Whether a job that was claimed waits for memory: its owner has no turn until it does not.
  void SetWaiting(int64_t number, bool waits);
  // Claim returns nothing any more, and who watches is told; what runs goes on.
  void Stop();
  bool stopped() const;
  void CancelRunning(Reason reason);
  void SetRunDeadline(int64_t number, std::chrono::steady_clock::time_point deadline);
  void SetProgress(int64_t number, const v1::ContractProgress& progress);
  struct Progress {
    int64_t next_group = 0;
    int64_t groups_done = 0;
    double run_seconds = 0;
    int64_t sum_bytes = 0;  // stored of blocks and levels
  };
  absl::Status StoreCheckpoint(int64_t number, const Progress& progress,
                               const std::vector<JobStore::NewPart>& parts,
                               const std::vector<int64_t>& dropped_levels);
  // Its result is there. When it can't be stored the job must be failed.
  absl::Status Succeed(int64_t number, const v1::ContractResult& head, std::string_view bytes,
                       const v1::ContractionReport& report);
  void Fail(int64_t number, const absl::Status& why);
  // It ends as its owner wished.
  void EndCancelled(int64_t number);
  // It goes on later, not before `delay`.
  void Suspend(int64_t number, double run_seconds, std::chrono::milliseconds delay);

  // What is due: forgets expired jobs, cancels those that have run too long, stores what could not
  // be stored. Waits for the disk.
  void Tidy();

  struct Counts {
    std::array<int64_t, std::size(kJobStates)> by_state{};
    int64_t resumed = 0;  // since the start
    int64_t store_bytes = 0;
  };
  Counts counts() const;
  // Jobs that a runner holds.
  int running() const;

 private:
  struct Entry {
    JobRow row;                  // without the messages, which are below
    v1::Job job;                 // without the plan, which does not change
    v1::PlanSummary brief_plan;  // without the path
    std::shared_ptr<const v1::PlanSummary> plan;
    std::shared_ptr<const v1::SubmitContractionResponse> answer;
    int64_t base_bytes = 0;               // of its data, less blocks and levels
    std::shared_ptr<CancelToken> cancel;  // while a runner has it
    std::optional<std::chrono::steady_clock::time_point> run_deadline, not_before;
    bool waits_for_memory = false;  // of a job that a runner has
    bool dirty = false;             // what is stored is older
    std::vector<std::weak_ptr<JobListener>> listeners;

    bool ExpiredAt(TimePoint now) const;
    void SetPlan(v1::PlanSummary summary);
  };
  using Entries = std::map<int64_t, Entry>;  // by number
  using Woken = std::vector<std::shared_ptr<JobListener>>;
  friend class JobPlace;

  JobBoard(std::unique_ptr<JobStore> store, const Settings& settings,
           std::function<TimePoint()> now)
      : settings_(settings), now_(std::move(now)), store_(std::move(store)) {}
  absl::Status Load();
  void TakeOver(JobRow row);
  static v1::Job FullJob(const Entry& entry);
  static JobRow RowOf(const Entry& entry, const v1::Job& job);
  // With mutex_ held.
  absl::StatusOr<Entries::iterator> Find(const std::optional<std::string>& owner,
                                         const std::string& name);
  Entry* FindNumber(int64_t number);
  Entries::iterator NextToRun(std::optional<std::chrono::steady_clock::time_point>* soonest);
  absl::StatusOr<const Entry*> FindRequest(const std::string& owner, const std::string& request_id,
                                           const std::string& header_sha256) const;
  void Move(Entry& entry, v1::JobState state, Woken* woken);
  void FillEnd(const Entry& entry, v1::JobState state, v1::Job* job) const;
  void EndEntry(Entry& entry, const v1::Job& job, int64_t kept_bytes, Woken* woken);
  void Tell(Entry& entry, Woken* woken);
  int64_t OwnedBy(const std::string& owner) const;

  // Without it; takes persist_mutex_ and then mutex_.
  absl::Status Persist(int64_t number);
  int64_t Forget(int64_t number);
  absl::Status End(int64_t number, v1::JobState state, int64_t kept_bytes,
                   const std::function<void(v1::Job*)>& fill);
  void DropExpired();
  static void WakeAll(const Woken& woken);

  const Settings settings_;
  const std::function<TimePoint()> now_;
  const std::unique_ptr<JobStore> store_;
  // Orders what is stored of jobs: who holds it reads the newest description. Taken before mutex_.
  std::mutex persist_mutex_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  Entries entries_;
  std::map<std::string, int64_t> by_id_;
  std::map<std::pair<std::string, std::string>, int64_t> by_request_;  // owner, request id
  std::string last_owner_;                                             // whose turn it was
  std::map<std::string, int64_t> places_;                              // being uploaded, by owner
  int64_t reserved_bytes_ = 0, next_number_ = 1, resumed_ = 0;
  int running_ = 0;
  bool stopped_ = false, shrink_ = false;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_BOARD_H_
