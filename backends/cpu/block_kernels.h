// Innermost loops over one block, compiled for several instruction sets.
//
// Each is defined for T = Acc of the four contraction types, and for single precision T with the
// double form of it as Acc. No function allocates; all are thread-safe on different outputs.

#ifndef TENON_BACKENDS_CPU_BLOCK_KERNELS_H_
#define TENON_BACKENDS_CPU_BLOCK_KERNELS_H_

#include <cstdint>

#include "backends/cpu/scalar.h"

namespace tenon::cpu {

// Iterations of the longest block; a block's sums stand on the stack.
inline constexpr int64_t kLargestBlock = 1024;

// How iteration j finds its element: at offsets[j], or at j * stride where there is no table.
struct BlockAccess {
  const int64_t* offsets = nullptr;
  int64_t stride = 0;
};

#define TENON_DECLARE_BLOCK_KERNELS(T, Acc)                                                    \
  /* sums[j] += a[j] * b[j]; tables for both tensors or for neither. */                        \
  void MultiplyAccumulate(int64_t count, const T* a, BlockAccess access_a, const T* b,         \
                          BlockAccess access_b, Acc* sums);                                    \
  /* sums[j] += a[j]. */                                                                       \
  void Accumulate(int64_t count, const T* a, BlockAccess access_a, Acc* sums);                 \
  /* c[j] = sums[j], or c[j] += sums[j]. */                                                    \
  void StoreSums(int64_t count, const Acc* sums, T* c, BlockAccess access_c, bool accumulate); \
  /* sum += a[0] + a[1] + ..., formed in a fixed number of interleaved partial sums. */        \
  void SumBlock(int64_t count, const T* a, BlockAccess access_a, Acc& sum);

TENON_DECLARE_BLOCK_KERNELS(float, float)
TENON_DECLARE_BLOCK_KERNELS(double, double)
TENON_DECLARE_BLOCK_KERNELS(Complex<float>, Complex<float>)
TENON_DECLARE_BLOCK_KERNELS(Complex<double>, Complex<double>)
TENON_DECLARE_BLOCK_KERNELS(float, double)
TENON_DECLARE_BLOCK_KERNELS(Complex<float>, Complex<double>)
#undef TENON_DECLARE_BLOCK_KERNELS

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_BLOCK_KERNELS_H_
