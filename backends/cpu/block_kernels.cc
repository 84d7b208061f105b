#include "backends/cpu/block_kernels.h"

#include "backends/core/clones.h"

namespace tenon::cpu {
namespace {

// These are inlined into each clone, and so compiled for its instruction set.
#define TENON_INLINE inline __attribute__((always_inline))

struct Unit {
  int64_t operator()(int64_t j) const { return j; }
};
struct Fixed {
  int64_t operator()(int64_t) const { return 0; }
};
struct Strided {
  int64_t stride;
  int64_t operator()(int64_t j) const { return j * stride; }
};
struct Tabulated {
  const int64_t* offsets;
  int64_t operator()(int64_t j) const { return offsets[j]; }
};

template <typename T, typename Acc, typename IndexA, typename IndexB>
TENON_INLINE void MultiplyLoop(int64_t count, const T* __restrict a, IndexA index_a,
                               const T* __restrict b, IndexB index_b, Acc* __restrict sums) {
  for (int64_t j = 0; j < count; ++j) {
    sums[j] = sums[j] + ScalarCast<Acc>(a[index_a(j)]) * ScalarCast<Acc>(b[index_b(j)]);
  }
}

template <typename T, typename Acc>
TENON_INLINE void MultiplyAccumulateBlock(int64_t count, const T* a, BlockAccess access_a,
                                          const T* b, BlockAccess access_b, Acc* sums) {
  if (access_a.offsets != nullptr) {
    MultiplyLoop(count, a, Tabulated{access_a.offsets}, b, Tabulated{access_b.offsets}, sums);
  } else if (access_a.stride == 1 && access_b.stride == 0) {
    MultiplyLoop(count, a, Unit(), b, Fixed(), sums);
  } else if (access_a.stride == 0 && access_b.stride == 1) {
    MultiplyLoop(count, a, Fixed(), b, Unit(), sums);
  } else if (access_a.stride == 1 && access_b.stride == 1) {
    MultiplyLoop(count, a, Unit(), b, Unit(), sums);
  } else {
    MultiplyLoop(count, a, Strided{access_a.stride}, b, Strided{access_b.stride}, sums);
  }
}

template <typename T, typename Acc, typename Index>
TENON_INLINE void AccumulateLoop(int64_t count, const T* __restrict a, Index index,
                                 Acc* __restrict sums) {
  for (int64_t j = 0; j < count; ++j) sums[j] = sums[j] + ScalarCast<Acc>(a[index(j)]);
}

template <typename T, typename Acc>
TENON_INLINE void AccumulateBlock(int64_t count, const T* a, BlockAccess access, Acc* sums) {
  if (access.offsets != nullptr) {
    AccumulateLoop(count, a, Tabulated{access.offsets}, sums);
  } else if (access.stride == 1) {
    AccumulateLoop(count, a, Unit(), sums);
  } else {
    AccumulateLoop(count, a, Strided{access.stride}, sums);
  }
}

template <typename T, typename Acc, typename Index>
TENON_INLINE void StoreLoop(int64_t count, const Acc* __restrict sums, T* __restrict c, Index index,
                            bool accumulate) {
  if (accumulate) {
    for (int64_t j = 0; j < count; ++j) c[index(j)] = c[index(j)] + ScalarCast<T>(sums[j]);
  } else {
    for (int64_t j = 0; j < count; ++j) c[index(j)] = ScalarCast<T>(sums[j]);
  }
}

template <typename T, typename Acc>
TENON_INLINE void StoreBlock(int64_t count, const Acc* sums, T* c, BlockAccess access,
                             bool accumulate) {
  if (access.offsets != nullptr) {
    StoreLoop(count, sums, c, Tabulated{access.offsets}, accumulate);
  } else if (access.stride == 1) {
    StoreLoop(count, sums, c, Unit(), accumulate);
  } else {
    StoreLoop(count, sums, c, Strided{access.stride}, accumulate);
  }
}

// Partial sums whose number doesn't depend on the width of a vector, so that every clone adds in
// the same order.
constexpr int kPartialSums = 16;

template <typename T, typename Acc, typename Index>
TENON_INLINE void SumLoop(int64_t count, const T* a, Index index, Acc& sum) {
  Acc partial[kPartialSums] = {};
  int64_t j = 0;
  for (; j + kPartialSums <= count; j += kPartialSums) {
    for (int p = 0; p < kPartialSums; ++p) {
      partial[p] = partial[p] + ScalarCast<Acc>(a[index(j + p)]);
    }
  }
  for (int p = 0; j < count; ++j, ++p) partial[p] = partial[p] + ScalarCast<Acc>(a[index(j)]);
  for (int width = kPartialSums / 2; width > 0; width /= 2) {
    for (int p = 0; p < width; ++p) partial[p] = partial[p] + partial[p + width];
  }
  sum = sum + partial[0];
}

template <typename T, typename Acc>
TENON_INLINE void SumOfBlock(int64_t count, const T* a, BlockAccess access, Acc& sum) {
  if (access.offsets != nullptr) {
    SumLoop(count, a, Tabulated{access.offsets}, sum);
  } else if (access.stride == 1) {
    SumLoop(count, a, Unit(), sum);
  } else {
    SumLoop(count, a, Strided{access.stride}, sum);
  }
}

}  // namespace

#define TENON_DEFINE_BLOCK_KERNELS(T, Acc)                                                   \
  TENON_CLONES void MultiplyAccumulate(int64_t count, const T* a, BlockAccess access_a,      \
                                       const T* b, BlockAccess access_b, Acc* sums) {        \
    MultiplyAccumulateBlock(count, a, access_a, b, access_b, sums);                          \
  }                                                                                          \
  TENON_CLONES void Accumulate(int64_t count, const T* a, BlockAccess access_a, Acc* sums) { \
    AccumulateBlock(count, a, access_a, sums);                                               \
  }                                                                                          \
  TENON_CLONES void StoreSums(int64_t count, const Acc* sums, T* c, BlockAccess access_c,    \
                              bool accumulate) {                                             \
    StoreBlock(count, sums, c, access_c, accumulate);                                        \
  }                                                                                          \
  TENON_CLONES void SumBlock(int64_t count, const T* a, BlockAccess access_a, Acc& sum) {    \
    SumOfBlock(count, a, access_a, sum);                                                     \
  }

TENON_DEFINE_BLOCK_KERNELS(float, float)
TENON_DEFINE_BLOCK_KERNELS(double, double)
TENON_DEFINE_BLOCK_KERNELS(Complex<float>, Complex<float>)
TENON_DEFINE_BLOCK_KERNELS(Complex<double>, Complex<double>)
TENON_DEFINE_BLOCK_KERNELS(float, double)
TENON_DEFINE_BLOCK_KERNELS(Complex<float>, Complex<double>)

}  // namespace tenon::cpu
