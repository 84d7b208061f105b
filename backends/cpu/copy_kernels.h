// The inner loops of StridedCopy, one version for each instruction set.

#ifndef TENON_BACKENDS_CPU_COPY_KERNELS_H_
#define TENON_BACKENDS_CPU_COPY_KERNELS_H_

#include <cstdint>
#include <vector>

namespace tenon::cpu {

// One loop of a copy; strides in elements for callers of StridedCopy, in bytes within it.
struct CopyLoop {
  int64_t extent;
  int64_t source;
  int64_t target;
};

// What is done with what was read.
enum class CopyMode {
  kNear,       // store it: the data is in the caches
  kFar,        // store it; asks for the source ahead of time
  kStream,     // the same, past the caches
  kAddFloat,   // add it to what is there, as float32 numbers
  kAddDouble,  // the same, float64
};

inline constexpr int kLargestStages = 4;  // 16 vectors are transposed at once
inline constexpr int kLargestLanes = 16;  // 4-byte lanes of the longest vector
inline constexpr int64_t kStreamAlignment = 64;
inline constexpr int64_t kStageBytes = int64_t{96} << 10;  // the buffer of staged parts
inline constexpr int kLargestLoops = 64;  // extents of 2 or more and distinct 64-bit addresses

// A vector of 4-byte lanes from two: lane i is lane `lanes[i]` of the first, from the vector's
// length on of the second.
struct LaneChoice {
  uint8_t lanes[kLargestLanes];
};

// Loops over equal blocks of data, in bytes. Every block does the same `steps`.
struct CopyPart {
  enum class Form : uint8_t {
    // A step moves `unit` contiguous bytes.
    kRuns,
    // A step loads up to 2^stages vectors, mixes their lanes and stores up to as many.
    kTiles,
    // A step moves one unit for each entry of `sources` and `targets`.
    kUnits,
    // `inner` fills runs of `unit` contiguous bytes in a buffer, one each `pitch` bytes; then they
    // go to `targets`.
    kStaged,
  };
  struct Step {
    int64_t source, target;
    // kTiles: the first of its `sources` and `targets`, the vectors it loads and the units that are
    // used of each, which is what it stores of them.
    int32_t row, column;
    int32_t n_rows, n_columns;
  };

  Form form = Form::kUnits;
  int stages = 0;
  bool may_stream = false;  // the target is written in full lines, if its beginning is aligned
  int64_t unit = 0;
  int64_t source = 0, target = 0;  // where the part begins
  int64_t outer_count = 1;
  int64_t block_bytes = 0;
  std::vector<CopyLoop> outer;  // blocks, outermost first; at most kLargestLoops
  std::vector<Step> steps;
  std::vector<int64_t> sources, targets;
  std::vector<CopyPart> inner;
  int64_t pitch = 0;
  // kTiles: stage i mixes vectors that differ in bit i of their number; first for the one without
  // the bit, then for the one with it.
  LaneChoice choices[kLargestStages][2];
};

struct CopyKernels {
  int64_t vector_bytes;
  // Moves blocks [begin, end) of a part. `source` and `target` are the tensors' beginnings.
  // Streaming needs a part that may stream, and but for staged ones a target aligned to
  // kStreamAlignment. Staged parts are never run near. Stops between blocks once `cancel` (may be
  // null) is non-zero.
  void (*run)(const CopyPart& part, int64_t begin, int64_t end, const char* source, char* target,
              CopyMode mode, const int32_t* cancel);
};

// Of the best instruction set of this machine.
const CopyKernels& BestCopyKernels();

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_COPY_KERNELS_H_
