#include "backends/cpu/blas.h"

#include <cblas.h>
#include <dlfcn.h>

#include <cstdlib>
#include <limits>
#include <mutex>

#include "backends/core/strings.h"
#include "backends/cpu/scalar.h"

namespace tenon::cpu {
namespace {

// The routines of one element type.
template <typename T>
struct Routines;

#define TENON_REAL_ROUTINES(T, prefix)                                                           \
  template <>                                                                                    \
  struct Routines<T> {                                                                           \
    static void Gemm(CBLAS_ORDER order, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, blasint m,       \
                     blasint n, blasint k, const T* a, blasint lda, const T* b, blasint ldb,     \
                     T beta, T* c, blasint ldc) {                                                \
      cblas_##prefix##gemm(order, ta, tb, m, n, k, T{1}, a, lda, b, ldb, beta, c, ldc);          \
    }                                                                                            \
    static void Gemv(CBLAS_ORDER order, CBLAS_TRANSPOSE trans, blasint m, blasint n, const T* a, \
                     blasint lda, const T* x, blasint incx, T* y, blasint incy) {                \
      cblas_##prefix##gemv(order, trans, m, n, T{1}, a, lda, x, incx, T{1}, y, incy);            \
    }                                                                                            \
  }
#define TENON_COMPLEX_ROUTINES(T, prefix)                                                        \
  template <>                                                                                    \
  struct Routines<T> {                                                                           \
    static constexpr T kOne = {1, 0};                                                            \
    static void Gemm(CBLAS_ORDER order, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, blasint m,       \
                     blasint n, blasint k, const T* a, blasint lda, const T* b, blasint ldb,     \
                     T beta, T* c, blasint ldc) {                                                \
      cblas_##prefix##gemm(order, ta, tb, m, n, k, &kOne, a, lda, b, ldb, &beta, c, ldc);        \
    }                                                                                            \
    static void Gemv(CBLAS_ORDER order, CBLAS_TRANSPOSE trans, blasint m, blasint n, const T* a, \
                     blasint lda, const T* x, blasint incx, T* y, blasint incy) {                \
      cblas_##prefix##gemv(order, trans, m, n, &kOne, a, lda, x, incx, &kOne, y, incy);          \
    }                                                                                            \
  }

TENON_REAL_ROUTINES(float, s);
TENON_REAL_ROUTINES(double, d);
TENON_COMPLEX_ROUTINES(Complex<float>, c);
TENON_COMPLEX_ROUTINES(Complex<double>, z);

constexpr blasint Blas(int64_t value) { return static_cast<blasint>(value); }

// Steps between the elements of a matrix that is one row or one column.
int64_t StepAlongRow(MatrixLayout layout) { return layout.is_column_major ? layout.leading : 1; }
int64_t StepAlongColumn(MatrixLayout layout) { return layout.is_column_major ? 1 : layout.leading; }

CBLAS_ORDER OrderOf(MatrixLayout layout) {
  return layout.is_column_major ? CblasColMajor : CblasRowMajor;
}

// Fixes the library's kernel set by instruction set: by itself it looks for known processor models
// and takes its oldest kernels, five times slower, on one that is newer than the library. A
// kernel set named in the environment stays.
void PinKernelSet() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  if (std::getenv(kVariable) != nullptr) return;
  const char* set = nullptr;
  if (__builtin_cpu_supports("x86-64-v4")) {
    set = "SkylakeX";
  } else if (__builtin_cpu_supports("x86-64-v3")) {
    set = "Haswell";
  }
  // The library chose when it was loaded; only builds with several kernel sets can choose again.
  using Function = void (*)();
  const auto forget = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "gotoblas_dynamic_quit"));
  const auto choose = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "gotoblas_dynamic_init"));
  if (set == nullptr || forget == nullptr || choose == nullptr) return;
  setenv(kVariable, set, 1);
  forget();
  choose();
  unsetenv(kVariable);
#endif
}

// BLAS would multiply y by 0, which keeps what is not finite; so y is cleared here.
template <typename T>
void Clear(int64_t count, T* y, int64_t step) {
  for (int64_t i = 0; i < count; ++i) y[i * step] = T{};
}

}  // namespace

std::optional<MatrixLayout> LayoutOf(int64_t rows, int64_t row_stride, int64_t columns,
                                     int64_t column_stride) {
  constexpr int64_t kLargest = std::numeric_limits<blasint>::max();
  if (rows > kLargest || columns > kLargest) return std::nullopt;
  const auto fits = [](int64_t leading) { return leading <= kLargest; };
  if ((columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns)) {
    const int64_t leading = rows == 1 ? columns : row_stride;
    if (fits(leading)) return MatrixLayout{false, leading};
  }
  if ((rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows)) {
    const int64_t leading = columns == 1 ? rows : column_stride;
    if (fits(leading)) return MatrixLayout{true, leading};
  }
  return std::nullopt;
}

template <typename T>
void MatrixProduct(int64_t m, int64_t n, int64_t k, const T* a, MatrixLayout layout_a, const T* b,
                   MatrixLayout layout_b, bool accumulate, T* c, MatrixLayout layout_c) {
  if (n == 1) {
    const int64_t step = StepAlongColumn(layout_c);
    if (!accumulate) Clear(m, c, step);
    Routines<T>::Gemv(OrderOf(layout_a), CblasNoTrans, Blas(m), Blas(k), a, Blas(layout_a.leading),
                      b, Blas(StepAlongColumn(layout_b)), c, Blas(step));
    return;
  }
  if (m == 1) {
    const int64_t step = StepAlongRow(layout_c);
    if (!accumulate) Clear(n, c, step);
    Routines<T>::Gemv(OrderOf(layout_b), CblasTrans, Blas(k), Blas(n), b, Blas(layout_b.leading), a,
                      Blas(StepAlongRow(layout_a)), c, Blas(step));
    return;
  }
  const auto transposed = [&layout_c](MatrixLayout layout) {
    return layout.is_column_major == layout_c.is_column_major ? CblasNoTrans : CblasTrans;
  };
  Routines<T>::Gemm(OrderOf(layout_c), transposed(layout_a), transposed(layout_b), Blas(m), Blas(n),
                    Blas(k), a, Blas(layout_a.leading), b, Blas(layout_b.leading),
                    accumulate ? T{1} : T{0}, c, Blas(layout_c.leading));
}

template void MatrixProduct(int64_t, int64_t, int64_t, const float*, MatrixLayout, const float*,
                            MatrixLayout, bool, float*, MatrixLayout);
template void MatrixProduct(int64_t, int64_t, int64_t, const double*, MatrixLayout, const double*,
                            MatrixLayout, bool, double*, MatrixLayout);
template void MatrixProduct(int64_t, int64_t, int64_t, const Complex<float>*, MatrixLayout,
                            const Complex<float>*, MatrixLayout, bool, Complex<float>*,
                            MatrixLayout);
template void MatrixProduct(int64_t, int64_t, int64_t, const Complex<double>*, MatrixLayout,
                            const Complex<double>*, MatrixLayout, bool, Complex<double>*,
                            MatrixLayout);

void InitializeBlas() {
  static std::once_flag once;
  std::call_once(once, [] {
    PinKernelSet();
    openblas_set_num_threads(1);
  });
}

std::string BlasDescription() {
  return StrCat(openblas_get_config(), " ", openblas_get_corename());
}

}  // namespace tenon::cpu
