// Adds the partial sums of slice groups in a fixed tree, whatever order they finish in.

#ifndef TENON_BACKENDS_SCHEDULE_ORDERED_SUM_H_
#define TENON_BACKENDS_SCHEDULE_ORDERED_SUM_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/contraction/program.h"
#include "backends/core/dtype.h"
#include "backends/schedule/checkpoint.h"

namespace tenon::schedule {

// result[offset + sum_a i_a * strides[a]] = block[i], block in C order over `shape`.
void PlaceBlock(DType dtype, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                int64_t offset, const void* block, void* result);

// Multiplies the elements of `result` that PlaceBlock would write by 2^shift.
void ScalePlacedBlock(DType dtype, const std::vector<int64_t>& shape,
                      const std::vector<int64_t>& strides, int64_t offset, int64_t shift,
                      void* result);

// The exponent to report of a complete result: `exponent`, or 0 when that is kNoExponent but the
// result holds NaN or infinities, which no power of two changes.
int64_t ResultExponent(DType dtype, const void* result, int64_t count, int64_t exponent);

// A window of buffers for partial sums. Groups are claimed in order, each gets a buffer, and
// finished ones are combined in group order: the sum of the groups [a, b) of a block is the sum of
// [a, m) and [m, b) with m - a the largest power of two below b - a. So the bits do not depend on
// who finishes when, and ranges that are nodes of this tree can be summed elsewhere. At most
// `window` groups lie between the oldest unfinished one and the newest claimed one. Thread-safe;
// nothing here waits.
//
// Where the program normalises, every sum has its exponent (see backends/core/binary_scale.h), and
// the same tree is formed of pairs.
class OrderedSum {
 public:
  // Buffers of one block each that a sum over [first, last) with this window needs.
  static int64_t BuffersNeeded(const contraction::Program& program, int64_t first, int64_t last,
                               int window);
  // Bytes of all memory that a sum needs: the buffers, and for programs that normalise the
  // exponents of the blocks. At most `limit`.
  static int64_t BytesNeeded(const contraction::Program& program, int64_t first, int64_t last,
                             int window, int64_t limit);

  // Whether the sum over [first, last) is a node of the tree over `groups` groups: a power of two
  // of groups at a multiple of it, or the rest on the right of one.
  static bool IsNode(int64_t first, int64_t last, int64_t groups);

  // Groups [first, last) of `program`; `memory` holds BytesNeeded() and is aligned to 8; `result`
  // is the full output, of which every block in the range is written completely. `checkpoint`
  // (null: nobody) is told what is combined.
  OrderedSum(const contraction::Program& program, int64_t first, int64_t last, int window,
             void* memory, void* result, Checkpoint* checkpoint = nullptr);

  // Whether a run over [first, last) of `program` can have had this state; BAD_PARAMETER, field
  // "resume", if not.
  static absl::Status CheckResumePoint(const contraction::Program& program, int64_t first,
                                       int64_t last, const ResumePoint& point);
  // Goes on from `point`, which has been checked; before anything else.
  void Resume(const ResumePoint& point);

  struct Claim {
    int64_t group = 0;
    void* partial_sum = nullptr;
    int64_t exponent = 0;  // of the partial sum: to be set where the program normalises
  };
  // The next group that nobody has claimed; false when there is none, or no buffer for it.
  bool TryNext(Claim* claim);
  bool HasNext() const;  // whether that would give one
  bool AllClaimed() const;
  // The group's partial sum is complete. Who calls this calls CombineNext until it says false.
  void Finish(const Claim& claim);
  // Combines the next group in order, which may free a buffer; false when it is not finished, or
  // another thread combines. An error is the checkpoint's: nothing is combined after it.
  absl::StatusOr<bool> CombineNext();
  // Once all groups are finished: brings the blocks in the range to one exponent and returns it;
  // the largest finite magnitude of the result (of complex numbers: of their parts) is in [0.5, 1)
  // then. Only where the program normalises; the result outside the range must be zero.
  int64_t FinishResult();

 private:
  struct Sum {
    std::byte* data = nullptr;
    int64_t exponent = 0;
  };

  // With mutex_ held.
  bool NextFits() const { return claimed_ < last_ && claimed_ < combined_ + window_; }
  bool normalizes() const { return program_.descriptor().normalize != 0; }
  int64_t block_bytes() const { return program_.descriptor().block_elements * DTypeSize(dtype_); }
  Sum& SlotOf(int64_t group) { return slots_[(group - first_) % window_]; }
  absl::Status Combine(int64_t group);
  void Add(Sum& left, const Sum& right) const;  // left += right
  absl::Status Place(int64_t block, Sum sum);
  void PutBlock(int64_t block, const void* data, int64_t exponent);
  absl::Status TellCombined(int64_t next_group);

  const contraction::Program& program_;
  const DType dtype_;
  const int64_t first_, last_;
  const int window_;
  void* const result_;
  Checkpoint* const checkpoint_;
  mutable std::mutex mutex_;
  int64_t claimed_, combined_;  // next group to claim; groups below it are in the tree
  bool combining_ = false;
  std::vector<bool> finished_;          // per window slot
  std::vector<Sum> slots_;              // per window slot, its buffer
  std::vector<Sum> levels_;             // per tree level, a buffer: sums of 2^level groups
  std::vector<bool> occupied_;          // per tree level; only the combining thread touches it
  SumState state_;                      // for the checkpoint; the same thread's
  int64_t* block_exponents_ = nullptr;  // per block in the range, where the program normalises
};

}  // namespace tenon::schedule

#endif  // TENON_BACKENDS_SCHEDULE_ORDERED_SUM_H_
