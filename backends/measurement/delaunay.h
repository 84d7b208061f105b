// Delaunay triangulation of points in the plane, by Qhull.
//
// Barber, Dobkin and Huhdanpaa: The Quickhull algorithm for convex hulls, ACM TOMS 22, 1996.

#ifndef TENON_BACKENDS_MEASUREMENT_DELAUNAY_H_
#define TENON_BACKENDS_MEASUREMENT_DELAUNAY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace tenon::measurement {

// The triangles of `rows` points (x, y), three row numbers each in counter-clockwise order. Points
// that coincide with another one up to rounding belong to no triangle; the split of four or more
// points on an empty circle is Qhull's. With the options that SciPy's Delaunay uses, so triangles
// and their order of corners are the same as there.
//
// Errors: UNDEFINED_SCORE without a field when there is no triangle (fewer than three points that
// are not collinear up to rounding) and when Qhull gives up; EXCEEDS_MEMORY_BUDGET when the system
// refuses memory. Writes nothing to the process' streams. Thread-safe; takes DelaunayBytes. A call
// cannot be cancelled; it takes about half a second for 100 000 points.
absl::StatusOr<std::vector<int32_t>> DelaunayTriangles(const double* points, int64_t rows);

// Bytes that DelaunayTriangles takes, its result included.
int64_t DelaunayBytes(int64_t rows);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_DELAUNAY_H_
