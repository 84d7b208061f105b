// One step of a program, looked at by kernels: its groups of loops, their sizes, its work.

#ifndef TENON_BACKENDS_CPU_STEP_VIEW_H_
#define TENON_BACKENDS_CPU_STEP_VIEW_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backends/plugin/abi.h"

namespace tenon::cpu {

using Modes = std::span<const tenon_mode>;

// Iterations of nested loops; 1 for none. Saturates at INT64_MAX / 2.
int64_t LoopCount(Modes modes);

// Walks nested loops, the last one fastest, with the element offsets in A, B and C.
class Odometer {
 public:
  // Starts at iteration `start` of `loops`, which must outlive this.
  explicit Odometer(Modes loops, int64_t start = 0);

  int64_t a() const { return a_; }
  int64_t b() const { return b_; }
  int64_t c() const { return c_; }

  void Next() {
    for (size_t i = loops_.size(); i-- > 0;) {
      const tenon_mode& loop = loops_[i];
      a_ += loop.stride_a;
      b_ += loop.stride_b;
      c_ += loop.stride_c;
      if (++index_[i] < loop.extent) return;
      index_[i] = 0;
      a_ -= loop.extent * loop.stride_a;
      b_ -= loop.extent * loop.stride_b;
      c_ -= loop.extent * loop.stride_c;
    }
  }

 private:
  Modes loops_;
  int64_t a_ = 0, b_ = 0, c_ = 0;
  std::vector<int64_t> index_;
};

// The order in which loops are nested: largest stride in this tensor outermost.
enum class NestBy { kA, kB, kC };

// Drops loops of extent 1, nests the others by the stride in one tensor (ties: by the others) and
// merges neighbours that are one loop in all three tensors.
std::vector<tenon_mode> NestedLoops(std::vector<tenon_mode> modes, NestBy by);

// A view of a step; the program's arrays must outlive it.
struct StepView {
  const tenon_step* step = nullptr;
  int32_t dtype = 0;
  bool accumulate_double = false;  // only where it changes anything: single precision
  bool may_accumulate = false;     // C is the result and a group may have several slices
  Modes batch, m, n, k;
  int64_t batch_size = 1, m_size = 1, n_size = 1, k_size = 1;

  bool is_contract() const { return step->kind == TENON_STEP_CONTRACT; }
  bool is_complex() const {
    return dtype == TENON_DTYPE_COMPLEX64 || dtype == TENON_DTYPE_COMPLEX128;
  }
  int64_t element_bytes() const;
  // Innermost iterations.
  double work() const {
    return static_cast<double>(batch_size) * static_cast<double>(m_size) *
           static_cast<double>(n_size) * static_cast<double>(k_size);
  }
  // Real operations: 2 (complex: 8) per iteration of a contraction; of a unary step 1 (complex: 2)
  // per element that is summed, none when it only copies.
  double flops() const;
  // Bytes that A, B and C hold, each read or written once.
  double traffic_bytes() const;
};

StepView ViewStep(const tenon_program& program, const tenon_step& step);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_STEP_VIEW_H_
