// Matrix products of the system's BLAS on one thread, for the four contraction types.

#ifndef TENON_BACKENDS_CPU_BLAS_H_
#define TENON_BACKENDS_CPU_BLAS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace tenon::cpu {

// How a matrix lies in memory: rows contiguous (row-major) or columns, and the distance in
// elements between neighbouring ones.
struct MatrixLayout {
  bool is_column_major = false;
  int64_t leading = 1;
};

// The layout of a rows x columns matrix with these strides, if BLAS takes it as it is. A stride
// along an extent of 1 is irrelevant.
std::optional<MatrixLayout> LayoutOf(int64_t rows, int64_t row_stride, int64_t columns,
                                     int64_t column_stride);

// C = A B, or C += A B: C is m x n, A m x k, B k x n; m, n, k at least 1. Which routine runs
// depends on the sizes and layouts alone. T is a type of backends/cpu/scalar.h. Thread-safe after
// InitializeBlas.
template <typename T>
void MatrixProduct(int64_t m, int64_t n, int64_t k, const T* a, MatrixLayout layout_a, const T* b,
                   MatrixLayout layout_b, bool accumulate, T* c, MatrixLayout layout_c);

// Sets BLAS to one thread per call and fixes its kernels by instruction set. Before any other use
// of the library in this process; idempotent.
void InitializeBlas();

// Version and kernel set of the library.
std::string BlasDescription();

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_BLAS_H_
