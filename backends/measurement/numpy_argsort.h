// The order of sorted numbers with NumPy's order of equal ones.

#ifndef TENON_BACKENDS_MEASUREMENT_NUMPY_ARGSORT_H_
#define TENON_BACKENDS_MEASUREMENT_NUMPY_ARGSORT_H_

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::measurement {

// numpy.argsort(values) by its quicksort for processors without vector sorting: introsort (Musser:
// Introspective sorting and selection algorithms, Software: Practice and Experience 27, 1997) with
// the median of three as pivot and insertion sort up to 16 values. It is not stable, so results
// that depend on the order of equal values need these very steps. `values` has no NaN and fewer
// than 2^31 entries.
std::vector<int32_t> NumpyArgsort(std::span<const double> values);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_NUMPY_ARGSORT_H_
