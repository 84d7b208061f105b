// Delaunay triangulation of points in general position, by divide and conquer.
//
// Guibas and Stolfi: Primitives for the manipulation of general subdivisions and the computation of
// Voronoi diagrams, ACM TOG 4, 1985.

#ifndef TENON_BACKENDS_MEASUREMENT_PLANE_TRIANGULATION_H_
#define TENON_BACKENDS_MEASUREMENT_PLANE_TRIANGULATION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"

namespace tenon::measurement {

// The triangles of `rows` points (x, y), three row numbers each in counter-clockwise order, if they
// are beyond doubt: every decision is certain despite rounding, and still is for a program that
// lifts the points to a paraboloid and works with tolerances, as Qhull does. None otherwise: with
// less than three points, some that coincide, three nearly on a line, four nearly on an empty
// circle.
//
// Coordinates and their squares must be in range. Takes O(n log n) time and
// PlaneTriangulationBytes; the result does not depend on the number of threads. Errors:
// CLIENT_CANCELLED.
absl::StatusOr<std::vector<int32_t>> TriangulatePlane(const double* points, int64_t rows,
                                                      const Parallel& parallel);

// Bytes that TriangulatePlane takes, its result included.
int64_t PlaneTriangulationBytes(int64_t rows);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_PLANE_TRIANGULATION_H_
