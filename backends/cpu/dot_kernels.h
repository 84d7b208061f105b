// Sums of products along contiguous terms, compiled per instruction set.

#ifndef TENON_BACKENDS_CPU_DOT_KERNELS_H_
#define TENON_BACKENDS_CPU_DOT_KERNELS_H_

#include <cstdint>

#include "backends/cpu/scalar.h"

namespace tenon::cpu {

// Rows that share one pass over y.
inline constexpr int kDotRows = 4;

// sums[r] += sum over i < count of x[r * x_row + i] * y[i] for r < rows <= kDotRows, with fused
// multiply-adds in a number of interleaved partial sums that follows from `rows`: the bits depend
// on nothing but the values, `rows`, `count` and the instruction set. Thread-safe on different
// sums; for the four contraction types.
template <typename T>
void AddDots(int rows, int64_t count, const T* x, int64_t x_row, const T* y, T* sums);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_DOT_KERNELS_H_
