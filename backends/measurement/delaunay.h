// Delaunay triangulation of points in the plane, by Qhull.
//
// Barber, Dobkin and Huhdanpaa: The Quickhull algorithm for convex hulls, ACM TOMS 22, 1996.

#ifndef TENON_BACKENDS_MEASUREMENT_DELAUNAY_H_
#define TENON_BACKENDS_MEASUREMENT_DELAUNAY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"

namespace tenon::measurement {

// The triangles of `rows` points (x, y), three row numbers each in counter-clockwise order. Points
// that coincide with another one up to rounding belong to no triangle; the split of four or more
// points on an empty circle is Qhull's, run with the options of SciPy's Delaunay. Where the
// triangulation does not depend on rounding, it is found without Qhull.
//
// Errors: UNDEFINED_SCORE without a field when there is no triangle (fewer than three points that
// are not collinear up to rounding) and when Qhull gives up; EXCEEDS_MEMORY_BUDGET when the system
// refuses memory; CLIENT_CANCELLED. Writes nothing to the process' streams. Takes DelaunayBytes;
// the result does not depend on the number of threads.
absl::StatusOr<std::vector<int32_t>> DelaunayTriangles(const double* points, int64_t rows,
                                                       const Parallel& parallel);

// What Qhull finds, always: for points of any kind, in the order of SciPy's Delaunay.
absl::StatusOr<std::vector<int32_t>> QhullTriangles(const double* points, int64_t rows,
                                                    const Parallel& parallel);

// Bytes that DelaunayTriangles takes, its result included.
int64_t DelaunayBytes(int64_t rows);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_DELAUNAY_H_
