// Arrays whose elements are mantissas: the true value of each is element * 2^exponent, with one
// exponent beside the array, so that values far outside the element type's range are kept.
//
// Scaling by powers of two never changes an element's significant bits unless the result leaves
// the type's normal range. All functions take contraction types (see IsContractionDType), count
// elements, treat the parts of complex numbers apart, and let NaN and infinities through as they
// are. They are thread-safe on different arrays, and give the same for an array as for its pieces.

#ifndef TENON_BACKENDS_CORE_BINARY_SCALE_H_
#define TENON_BACKENDS_CORE_BINARY_SCALE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "backends/core/dtype.h"
#include "backends/plugin/abi.h"

namespace tenon {

// The exponent of an array that has no finite element but zeros: any would do. Less than all
// others, so that the largest exponent of several arrays is their std::max.
inline constexpr int64_t kNoExponent = TENON_NO_EXPONENT;

// Calls `body(begin, end)` for disjoint ranges that cover [0, count), at once or one by one. A loop
// that leaves some out leaves their elements undone.
using RangeBody = absl::FunctionRef<void(int64_t begin, int64_t end)>;
using RangeLoop = absl::FunctionRef<void(int64_t count, RangeBody body)>;
inline void OneRange(int64_t count, RangeBody body) { body(0, count); }

// The e with 2^(e-1) <= m < 2^e, m the largest finite magnitude; or kNoExponent.
int64_t LargestExponent(DType dtype, const void* data, int64_t count, RangeLoop loop = OneRange);

// Whether any element, NaN included, differs from zero.
bool HasNonZero(DType dtype, const void* data, int64_t count);

// target[i] = source[i] * 2^shift; `target` may be `source`. Shifts that take every magnitude up to
// the square root of the largest one to 0 or infinity are cut short.
void ScaleByPowerOfTwo(DType dtype, const void* source, void* target, int64_t count, int64_t shift,
                       RangeLoop loop = OneRange);

// The same in place for elements `stride` elements apart.
void ScaleStrided(DType dtype, void* data, int64_t count, int64_t stride, int64_t shift);

// What to scale an array by whose LargestExponent is `largest`: 0 while it is within a quarter of
// the type's range, so that products of two such arrays, summed over any axis, stay finite and
// normal; else what brings the largest magnitude to [0.5, 1).
int64_t ComfortShift(DType dtype, int64_t largest);

// Scales an array with this exponent by ComfortShift; returns its exponent then, kNoExponent when
// no finite element differs from zero.
int64_t Rescale(DType dtype, void* data, int64_t exponent, int64_t count,
                RangeLoop loop = OneRange);

// Scales an array with this exponent to a largest finite magnitude in [0.5, 1); returns as Rescale.
int64_t ScaleToUnit(DType dtype, void* data, int64_t exponent, int64_t count);

// left += right, arrays with their exponents, then rescaled; returns the exponent of the sum. Both
// are first brought to the larger exponent, so what falls below the type's range is too small to
// count beside it. The order of operands decides the bits no more than it does in a sum.
int64_t AddScaled(DType dtype, void* left, int64_t left_exponent, const void* right,
                  int64_t right_exponent, int64_t count, RangeLoop loop = OneRange);

// a + b, where kNoExponent counts as 0.
int64_t SumOfExponents(int64_t a, int64_t b);

// log10(2^exponent), rounded once; -infinity for kNoExponent.
double Log10OfPowerOfTwo(int64_t exponent);

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_BINARY_SCALE_H_
