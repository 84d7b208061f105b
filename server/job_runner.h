// Runs jobs, beside the requests of clients.

#ifndef TENON_SERVER_JOB_RUNNER_H_
#define TENON_SERVER_JOB_RUNNER_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/contraction_work.h"
#include "server/job_board.h"
#include "server/job_checkpoint.h"
#include "server/state.h"
#include "server/work_watch.h"

namespace tenon::server {

// A thread for each job that runs, none of which is one of the executor's, so that jobs keep no
// request waiting; and one that tidies the board. A job reserves its planned peak when it runs, in
// the line of all that wait for memory, as bulk work unless its submission says otherwise. While it
// waits there, other owners' jobs run in its place; once it has its memory, it runs at once beside
// them. The watch of work sees it plan and compute. Made once the providers are warm; goes before
// the state.
class JobRunner {
 public:
  struct Options {
    int threads = 1;  // jobs that run at the same time
    // Finished groups are stored this often at most.
    std::chrono::milliseconds store_interval{1000};  // 0: after every group, whatever it costs
    // After Stop a job may go on for this long until a group is finished and stored; what is not
    // stored then is computed again by the next process.
    std::chrono::milliseconds stop_limit{1000};
    // When a device has run out of memory a job waits this long, twice as long each further time;
    // it fails after so many without a finished group in between.
    std::chrono::milliseconds retry_delay{1000};
    int max_shortages = 5;
    // While there is no device that works, it looks again after this long, however often.
    std::chrono::milliseconds absence_delay{30'000};
  };

  // state->jobs is not null.
  JobRunner(ServerState* state, const Options& options);
  // Stops and waits.
  ~JobRunner();
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;

  // Begins no further job, suspends those that run, and returns at once.
  void Stop();
  bool idle() const { return board_.running() == 0; }

 private:
  using Clock = std::chrono::steady_clock;

  // A place among those that run. False after Stop.
  bool TakePlace();
  void GivePlace();
  void Work();
  void Supervise();
  void Run(const JobRun& run);
  absl::Status Execute(const JobRun& run, double* run_seconds);
  WorkWatch::Entry Watch(const JobRun& run, std::string_view phase);
  absl::Status Plan(ContractWork* work, const JobRun& run);
  absl::StatusOr<Reservation> Admit(ContractWork* work, int64_t stored_bytes, Priority priority,
                                    const JobRun& run);
  // Waits until the bytes are free, the job is cancelled, or the runner stops.
  absl::StatusOr<Reservation> ReserveInTurn(int64_t bytes, Priority priority, const JobRun& run);
  absl::StatusOr<std::vector<Tensor>> LoadOperands(const ContractWork& work, const JobRun& run);
  absl::Status Resume(ContractWork* work, JobCheckpoint* checkpoint, bool from_stored);
  absl::Status Finish(const JobRun& run, ContractWork* work, ContractWork::Result result,
                      double seconds);
  void SetProgress(const JobRun& run, const ContractWork& work, double before_seconds,
                   const schedule::ContractionJob::Progress& progress);
  void Settle(const JobRun& run, const absl::Status& status, double run_seconds);
  // The delay before the next try; nullopt: it has had enough of them.
  std::optional<std::chrono::milliseconds> NextTry(const JobRun& run);

  ServerState* const state_;
  JobBoard& board_;
  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  struct Shortages {
    int64_t next_group = 0;
    int count = 0;
  };
  std::map<int64_t, Shortages> shortages_;  // by job
  std::optional<Clock::time_point> stop_time_;
  int free_places_;  // below 0 while jobs that have waited run beside those that took their places
  bool done_ = false;
  std::vector<std::thread> threads_;
  std::thread supervisor_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_RUNNER_H_
