// What all services of one server share.

#ifndef TENON_SERVER_STATE_H_
#define TENON_SERVER_STATE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/planner/plan_cache.h"
#include "backends/plugin/provider.h"
#include "backends/schedule/program_cache.h"
#include "server/admission.h"
#include "server/authenticator.h"
#include "server/executor.h"
#include "server/lifecycle.h"
#include "server/measurement_seconds.h"
#include "server/metrics.h"
#include "server/plan_store.h"
#include "server/work_watch.h"
#include "server/write_watchdog.h"

namespace tenon::server {

class ContentStore;  // server/content_store.h
class JobBoard;      // server/job_board.h
class ScratchSpace;  // server/scratch_space.h
class SharedMemory;  // server/shared_memory.h

// Limits on what a message or a request may hold; told by GetServerInfo.
struct Limits {
  int64_t max_message_bytes = (int64_t{4} << 20) + (int64_t{64} << 10);  // either direction
  int64_t max_chunk_bytes = (int64_t{4} << 20) - (int64_t{1} << 10);     // payload of one chunk
  int64_t default_chunk_bytes = int64_t{1} << 20;
  int64_t max_inline_bytes = int64_t{64} << 10;  // of one tensor, exclusive
  int64_t max_operands = 100'000;
  int64_t max_rank = 1024;
  int64_t max_name_bytes = 1024;  // an index, request or projection name
  int64_t max_specs = 1000;       // measures of one request
  int64_t max_in_flight = 64;     // projections
  int64_t max_threads = 0;        // per request; set at start
  double max_plan_seconds = 600;  // of a search
  double default_plan_seconds = 2;

  // Of an answer: what a client takes that was not told otherwise, less the frame around it.
  int64_t answer_bytes() const {
    return std::min(max_message_bytes, (int64_t{4} << 20) - (int64_t{1} << 10));
  }
};

// The providers of a server: each one warm, or with the reason why not. Follows the providers'
// health: what has failed since it was entered is told as such. Thread-safe.
class ProviderRegistry {
 public:
  struct Entry {
    std::string name;                            // "cpu", "reference", "cuda:0"
    std::shared_ptr<plugin::Provider> provider;  // null when it did not start (yet)
    // Why it can't be used: STARTING while it warms up; its fault once it has failed. Else OK.
    absl::Status absence;

    bool usable() const { return provider != nullptr && absence.ok(); }
  };

  // Adds an entry, or replaces the one of the same name.
  void Set(Entry entry);
  // A copy, in the order in which the names were added.
  std::vector<Entry> entries() const;

  // One provider. "auto" and "" mean "cpu". UNKNOWN_PROVIDER lists the known names; an absent one
  // is refused with its reason.
  absl::StatusOr<std::shared_ptr<plugin::Provider>> Find(const std::string& name) const;
  // A request's list, in order; empty means "cpu". Also refuses repetition. Fields "providers[i]".
  absl::StatusOr<std::vector<std::shared_ptr<plugin::Provider>>> Resolve(
      const std::vector<std::string>& names) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

// What of the configuration the services read.
struct ServiceSettings {
  // That work waits for memory at most; then it is OVERLOADED.
  std::atomic<std::chrono::milliseconds> max_queue_wait{std::chrono::milliseconds(30'000)};
  std::string data_root;  // canonical path of server-side files; empty: none may be read
  std::atomic<std::chrono::seconds> dataset_ttl{std::chrono::seconds(3600)};
  bool tls = false;  // TCP is encrypted
};

// Owned by the server, outlives all streams.
struct ServerState {
  ServerState(int64_t memory_budget_bytes, int concurrent_requests, int64_t max_queued_requests,
              std::chrono::milliseconds write_stall_limit)
      : max_queued_requests(max_queued_requests),
        budget(memory_budget_bytes, static_cast<size_t>(max_queued_requests)),
        watchdog(write_stall_limit),
        executor(concurrent_requests, static_cast<size_t>(max_queued_requests)),
        searches(std::max(1, concurrent_requests - 1), static_cast<size_t>(max_queued_requests)),
        brief_searches(1, static_cast<size_t>(max_queued_requests)),
        listing(1, static_cast<size_t>(max_queued_requests)),
        storing(2, static_cast<size_t>(max_queued_requests)) {
    budget.SetRetryDelay([this] { return executor.RetryDelaySeconds(); });
  }

  Limits limits;
  ServiceSettings settings;
  // The atomic ones may change while the server runs.
  std::atomic<int64_t> max_queued_requests = 0;  // of each class
  int max_concurrent_streams = 0;                // per connection
  std::chrono::system_clock::time_point start_time = std::chrono::system_clock::now();
  ProviderRegistry providers;
  Lifecycle lifecycle;
  Metrics metrics;
  Authenticator callers;
  // Begins to shut the server down, unless that has begun; seconds that are absent are the
  // configured ones. Null where a test has the services alone.
  std::function<void(std::optional<double> delay_seconds, std::optional<double> grace_seconds)>
      drain;
  MemoryBudget budget;
  schedule::ProgramCache programs{1024, int64_t{64} << 20};
  planner::PlanCache plan_cache{int64_t{64} << 20};
  PlanStore plans{int64_t{64} << 20};
  MeasurementSeconds measurement_seconds;
  WriteWatchdog watchdog;
  WorkWatch work_watch;
  std::shared_ptr<ContentStore> store;          // data sets and tensors by content
  std::shared_ptr<ScratchSpace> scratch;        // null: no temporary files
  std::shared_ptr<JobBoard> jobs;               // null: jobs are not offered
  std::shared_ptr<SharedMemory> shared_memory;  // null: none is shared
  // Last: their tasks use all of the above. Searches for plans, which can take minutes, have
  // threads of their own, so that work which has its plan never waits for them; and brief ones, as
  // those that a contraction without a plan makes by itself, one that no long one ever holds. What
  // looks through folders and reads results of jobs has one, since it waits for disks. The tasks of
  // all go on in the executor.
  Executor executor;
  Executor searches;
  Executor brief_searches;
  Executor listing;
  // What writes into the job store, which takes continuations alone. New jobs, which may be large,
  // are bulk work there, so that they leave a thread to what is brief, and reading waits for none.
  Executor storing;

  // Those that have a queue of requests: one waits in one of them at a time.
  std::array<Executor*, 4> executors() { return {&executor, &searches, &brief_searches, &listing}; }
  std::array<const Executor*, 4> executors() const {
    return {&executor, &searches, &brief_searches, &listing};
  }
  // Requests that compute or search for a plan.
  int running() const { return executor.running() + searches.running() + brief_searches.running(); }
};

}  // namespace tenon::server

#endif  // TENON_SERVER_STATE_H_
