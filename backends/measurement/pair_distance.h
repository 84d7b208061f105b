// The distance of two rows, pair by pair: the definition that every faster path reproduces.

#ifndef TENON_BACKENDS_MEASUREMENT_PAIR_DISTANCE_H_
#define TENON_BACKENDS_MEASUREMENT_PAIR_DISTANCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backends/plugin/abi.h"

namespace tenon::measurement {

// On the unit sphere, from sines and cosines of the latitudes; angles in radians.
inline double GreatCircle(double sin1, double cos1, double sin2, double cos2,
                          double longitude_distance) {
  const double cosine = sin1 * sin2 + cos1 * cos2 * std::cos(std::abs(longitude_distance));
  return std::acos(std::clamp(cosine, -1.0, 1.0));
}

// One pair: the square root of the sum, over the columns from left to right, of the squared
// difference, every operation rounded on its own in the matrix' element type; great-circle distance
// of the first two columns if `points.geodesic`. Thread-safe.
double PairDistance(const tenon_matrix& points, int64_t i, int64_t j);

// The same for `count` pairs (i, others[p]), a few at a time.
void PairDistances(const tenon_matrix& points, int64_t i, const int32_t* others, int64_t count,
                   double* distances);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_PAIR_DISTANCE_H_
