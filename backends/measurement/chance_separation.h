// Separation of pairs of classes, compared with that of shuffled labels.

#ifndef TENON_BACKENDS_MEASUREMENT_CHANCE_SEPARATION_H_
#define TENON_BACKENDS_MEASUREMENT_CHANCE_SEPARATION_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "backends/core/parallel.h"
#include "backends/measurement/class_separation.h"
#include "backends/measurement/classes.h"

namespace tenon::measurement {

struct ShuffleOptions {
  uint64_t seed = 0;
  // Draws as numpy.random.RandomState(seed) does when each pair of classes in turn shuffles its
  // labels 20 times for the original and then 20 times for the embedded space, each time what the
  // last shuffle left. Else every shuffle has a stream of CounterRandom(seed) of its own.
  bool numpy = false;
};

// The between-dataset Calinski-Harabasz index (Jeon et al.: Measuring the validity of clustering
// validation datasets, IEEE TPAMI 2025) of each pair of classes. With N points x_i of both classes,
// m their mean, m_c those of the classes, and s the deviation of |x_i - m|, let
//   raw = (N-2) sum_c n_c exp(|m_c - m| / s) / sum_i exp(|x_i - m_c(i)| / s),
// v = 1 / (1 + 1/raw) and E the same of the mean raw of 20 shuffles of the labels. The separation
// is (v - E) / (1 - E), 0 if E = 1. Single points are computed with as NumPy computes with them.
//
// Calls add(original, embedded) for every pair a < b, in row-major order, from one thread; a
// separation is NaN where raw overflows, is zero (N = 2) or all points are equally far from m.
// Stops with the first error of `add`, or that of `parallel`.
absl::Status ForEachChanceSeparation(
    const ClassPoints& original, const ClassPoints& embedded, const ClassMembers& members,
    const ShuffleOptions& options, const Parallel& parallel,
    const std::function<absl::Status(double original, double embedded)>& add);

// What it takes for n rows; `columns` are those of both spaces together.
int64_t ChanceSeparationBytes(int64_t n, int64_t columns);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_CHANCE_SEPARATION_H_
