#include "backends/measurement/pair_distance.h"

namespace tenon::measurement {
namespace {

template <typename T>
double Geodesic(const T* a, const T* b) {
  return GreatCircle(std::sin(double{a[1]}), std::cos(double{a[1]}), std::sin(double{b[1]}),
                     std::cos(double{b[1]}), double{b[0]} - double{a[0]});
}

// Distances of row `a` to kPairs rows. The sums of the pairs do not wait for each other.
template <int kPairs, typename T>
void Euclidean(const T* a, const T* const* others, int64_t columns, double* distances) {
  T sums[kPairs] = {};
  for (int64_t c = 0; c < columns; ++c) {
    for (int p = 0; p < kPairs; ++p) {
      const T difference = a[c] - others[p][c];
      sums[p] += difference * difference;
    }
  }
  for (int p = 0; p < kPairs; ++p) distances[p] = std::sqrt(sums[p]);
}

template <typename T>
void Distances(const tenon_matrix& points, int64_t i, const int32_t* others, int64_t count,
               double* distances) {
  constexpr int kPairs = 4;
  const T* data = static_cast<const T*>(points.data);
  const T* a = data + i * points.columns;
  int64_t p = 0;
  for (; points.geodesic == 0 && p + kPairs <= count; p += kPairs) {
    const T* rows[kPairs];
    for (int q = 0; q < kPairs; ++q) rows[q] = data + others[p + q] * points.columns;
    Euclidean<kPairs>(a, rows, points.columns, distances + p);
  }
  for (; p < count; ++p) {
    const T* row = data + others[p] * points.columns;
    if (points.geodesic != 0) {
      distances[p] = Geodesic(a, row);
    } else {
      Euclidean<1>(a, &row, points.columns, distances + p);
    }
  }
}

}  // namespace

double PairDistance(const tenon_matrix& points, int64_t i, int64_t j) {
  const int32_t other = static_cast<int32_t>(j);
  double distance = 0;
  PairDistances(points, i, &other, 1, &distance);
  return distance;
}

void PairDistances(const tenon_matrix& points, int64_t i, const int32_t* others, int64_t count,
                   double* distances) {
  if (points.dtype == TENON_DTYPE_FLOAT32) {
    Distances<float>(points, i, others, count, distances);
  } else {
    Distances<double>(points, i, others, count, distances);
  }
}

}  // namespace tenon::measurement
