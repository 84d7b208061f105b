// What a long run keeps of its finished slice groups, so that a later one goes on from there and
// gives the same bits.
//
// Groups are combined in order, in a fixed tree (ordered_sum.h). Between two groups the state of a
// run is: the blocks of the result that are complete, and the occupied nodes of the tree over the
// block in work. A group that is finished but not combined is not in it and is run again.
//
// Data are elements of the job's dtype in memory order: block_elements of program().descriptor(),
// C order over program().block_shape(). Where the job normalises, the value is data * 2^exponent,
// and kNoExponent (backends/core/binary_scale.h) goes with zeros; elsewhere exponents are 0.

#ifndef TENON_BACKENDS_SCHEDULE_CHECKPOINT_H_
#define TENON_BACKENDS_SCHEDULE_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace tenon::schedule {

// A view of the tree; valid during the call that hands it out.
struct SumState {
  struct Level {
    int level = 0;         // the node is the sum of 2^level groups
    int64_t exponent = 0;  // see above
    std::span<const std::byte> data;
  };
  // Groups of the run below this one are combined; it is the first that a resumed run computes.
  int64_t next_group = 0;
  // The occupied nodes over the groups of next_group's block, by rising level; none when
  // next_group is the first of its block or of the run, or when the run is complete.
  std::vector<Level> levels;
};

// Where a run tells its state. Called by the thread that combines, one call at a time, in order and
// without a lock of the run: a slow call delays the combining, and in the end the workers that wait
// for buffers. Data are valid during the call. An error ends the run with that error, and nothing
// is told any more. Never called for what a resume point already held.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  // Block `block` of the result is complete. The next call is Combined() with the group after it.
  virtual absl::Status BlockDone(int64_t block, int64_t exponent,
                                 std::span<const std::byte> data) = 0;
  // After each combined group. Whether anything is stored is the implementation's choice: it must
  // be cheap when it stores nothing. After the last group nothing is left in `state.levels`.
  virtual absl::Status Combined(const SumState& state) = 0;
};

// A SumState and all blocks below it, with bytes of their own: where a run goes on. The default is
// the beginning.
struct ResumePoint {
  struct Level {
    int level = 0;
    int64_t exponent = 0;
    std::vector<std::byte> data;
  };
  struct Block {
    int64_t block = 0;
    int64_t exponent = 0;
    std::vector<std::byte> data;
  };
  int64_t next_group = 0;
  std::vector<Level> levels;  // as in SumState
  std::vector<Block> blocks;  // every complete block of the run, in any order
};

}  // namespace tenon::schedule

#endif  // TENON_BACKENDS_SCHEDULE_CHECKPOINT_H_
