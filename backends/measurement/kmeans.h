// k-means clustering of points.

#ifndef TENON_BACKENDS_MEASUREMENT_KMEANS_H_
#define TENON_BACKENDS_MEASUREMENT_KMEANS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"

namespace tenon::measurement {

struct KMeansOptions {
  int64_t clusters = 0;   // 1 <= clusters <= n
  int64_t n_init = 1;     // runs, >= 1; the one with the least inertia is kept, the first of equals
  bool plus_plus = true;  // first centres by greedy k-means++; else rows drawn at random
  int64_t max_iterations = 300;  // of a run, >= 1
  // A run ends when the squared shift of all centres in one iteration is at most this many times
  // the mean variance of the columns.
  double tolerance = 1e-4;
  uint64_t seed = 0;
};

struct KMeansResult {
  std::vector<int32_t> labels;  // cluster of each point, [0, clusters)
  double inertia = 0;           // sum of squared distances to the own centre; inf on overflow
  int64_t iterations = 0;       // of the run that was kept
};

// Clusters the n rows of `points`, finite, n x columns, row-major. Lloyd's iteration (Least squares
// quantization in PCM, IEEE TIT 28, 1982) from centres of k-means++ (Arthur and Vassilvitskii,
// SODA 2007), greedy: each centre is the best of 2 + floor(log(clusters)) candidates, which is how
// scikit-learn's KMeans starts. Ties go to the centre of the lower number. A cluster that loses its
// points moves to the point farthest from its own centre.
//
// Run r draws from stream r of CounterRandom(seed). Sums are formed over blocks that depend on the
// sizes alone, so the result has the same bits for any number of threads. It follows the same
// definition as scikit-learn's KMeans but draws other numbers: both agree where the best clustering
// is clear. Where squares overflow the result is some clustering with an infinite inertia.
//
// Errors: BAD_PARAMETER without a field (options out of range), those of `parallel`.
absl::StatusOr<KMeansResult> KMeans(const double* points, int64_t n, int64_t columns,
                                    const KMeansOptions& options, const Parallel& parallel);

// What KMeans takes besides its result.
int64_t KMeansWorkingBytes(int64_t n, int64_t columns, int64_t clusters);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_KMEANS_H_
