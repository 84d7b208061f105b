// How well classes are separated in one space.

#ifndef TENON_BACKENDS_MEASUREMENT_CLASS_SEPARATION_H_
#define TENON_BACKENDS_MEASUREMENT_CLASS_SEPARATION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/measurement/classes.h"
#include "backends/plugin/abi.h"

namespace tenon::measurement {

// Points of one space. `single`: they came as float32 and are computed with as NumPy would.
struct ClassPoints {
  tenon_matrix points;
  bool single = false;
};

// How many points are nearest to the mean of their own class, the first of equally near ones
// counting (Sips et al., CGF 28, 2009); -1 where means or distances overflow. Means and distances
// are in single precision for single points. Errors of `parallel`.
absl::StatusOr<int64_t> CountConsistent(const ClassPoints& points, const ClassMembers& members,
                                        const Parallel& parallel);

// Classes [first, end).
struct ClassRange {
  int64_t first = 0, end = 0;
  int64_t size() const { return end - first; }
};

// shares[a - as.first][b - bs.first], meaningful where a < b: the share of the points of classes a
// and b that are nearest to the mean of their own class, of these two; the same distance counts for
// a. -1 where means or distances overflow. The ranges are the same or `as` is before `bs`. Means
// are in single precision for single points, distances never. Errors of `parallel`.
absl::StatusOr<std::vector<double>> PairConsistency(const ClassPoints& points,
                                                    const ClassMembers& members, ClassRange as,
                                                    ClassRange bs, const Parallel& parallel);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_CLASS_SEPARATION_H_
