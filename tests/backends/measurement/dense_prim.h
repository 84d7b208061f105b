// Prim's algorithm as it stands in textbooks, to compare with.

#ifndef TENON_TESTS_BACKENDS_MEASUREMENT_DENSE_PRIM_H_
#define TENON_TESTS_BACKENDS_MEASUREMENT_DENSE_PRIM_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "backends/measurement/hdbscan.h"

namespace tenon::testing {

using Square = std::vector<std::vector<double>>;

// Textbook Prim over the mutual reachability of a dense matrix of distances.
inline measurement::PrimOrder DensePrim(const Square& distance) {
  const auto n = static_cast<int32_t>(distance.size());
  std::vector<double> core(n);
  for (int32_t i = 0; i < n; ++i) {
    std::vector<double> sorted = distance[i];
    std::sort(sorted.begin(), sorted.end());
    core[i] = sorted[std::min(n - 1, 5)];  // the zero of the point itself comes first
  }
  std::vector<double> best(n, std::numeric_limits<double>::infinity());
  std::vector<int32_t> source(n, -1);
  std::vector<bool> reached(n);
  measurement::PrimOrder prim;
  prim.order = {0};
  reached[0] = true;
  while (static_cast<int32_t>(prim.order.size()) < n) {
    const int32_t last = prim.order.back();
    int32_t next = -1;
    for (int32_t j = 0; j < n; ++j) {
      if (reached[j]) continue;
      const double reachability = std::max({core[last], core[j], distance[last][j]});
      if (reachability < best[j]) {
        best[j] = reachability;
        source[j] = last;
      }
      if (next < 0 || best[j] < best[next]) next = j;
    }
    reached[next] = true;
    prim.order.push_back(next);
    prim.sources.push_back(source[next]);
    prim.weights.push_back(best[next]);
  }
  return prim;
}

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_MEASUREMENT_DENSE_PRIM_H_
