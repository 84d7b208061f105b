// What the job store keeps of a running job's sum.

#ifndef TENON_SERVER_JOB_CHECKPOINT_H_
#define TENON_SERVER_JOB_CHECKPOINT_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/schedule/checkpoint.h"
#include "server/job_board.h"

namespace tenon::server {

// Stores the state at most once per interval, and less often where storing is slow; of the nodes of
// the tree only those that are new. When the board is stopped it stores at once and ends the run
// with DRAINING. Used by one thread at a time.
class JobCheckpoint final : public schedule::Checkpoint {
 public:
  struct Groups {
    int64_t first = 0, last = 0;  // of the run
    int64_t per_block = 1;
  };
  // `board` outlives it.
  JobCheckpoint(JobBoard* board, const JobRun& run, const Groups& groups,
                std::chrono::milliseconds interval)
      : board_(*board), run_(run), groups_(groups), interval_(interval) {}

  // Bytes of the stored state; looks up what is stored.
  absl::StatusOr<int64_t> StoredBytes();
  // The stored state, after StoredBytes.
  absl::StatusOr<schedule::ResumePoint> Load();
  // The time of the run counts from now on.
  void BeginRun() { begin_ = last_store_ = Clock::now(); }
  // In all.
  double run_seconds() const;

  absl::Status BlockDone(int64_t block, int64_t exponent, std::span<const std::byte> data) override;
  absl::Status Combined(const schedule::SumState& state) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Block {
    JobPart part;
    std::string bytes;
  };
  struct Level {
    int64_t first = 0;  // group of its node
    int64_t bytes = 0;
  };

  bool IsComplete(int64_t block, int64_t next_group) const;
  int64_t FirstOf(int level, int64_t next_group) const;
  absl::Status Store(const schedule::SumState& state);

  JobBoard& board_;
  const JobRun run_;
  const Groups groups_;
  const std::chrono::milliseconds interval_;
  Clock::time_point begin_ = Clock::now(), last_store_ = begin_;
  Clock::duration last_cost_{0};
  std::vector<Block> blocks_;        // that are not stored yet
  int64_t waiting_bytes_ = 0;        // of them
  int64_t block_bytes_ = 0;          // of those that are stored
  std::map<int64_t, Level> levels_;  // that are stored
};

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_CHECKPOINT_H_
