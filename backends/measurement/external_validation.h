// Agreement of two partitions of the same rows, by the definitions of scikit-learn. Logarithms are
// natural. Equal partitions, up to the numbers of their parts, have the index 1.

#ifndef TENON_BACKENDS_MEASUREMENT_EXTERNAL_VALIDATION_H_
#define TENON_BACKENDS_MEASUREMENT_EXTERNAL_VALIDATION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"

namespace tenon::measurement {

// How many rows each pair of parts has in common.
class Contingency {
 public:
  struct Cell {
    int32_t row, column;  // numbers of the parts, [0, ...), empty ones left out
    int64_t count;        // > 0
  };

  // Parts are numbered from 0; both have n >= 1 entries.
  Contingency(std::span<const int32_t> first, std::span<const int32_t> second);

  int64_t n() const { return n_; }
  const std::vector<Cell>& cells() const { return cells_; }
  const std::vector<int64_t>& row_sizes() const { return row_sizes_; }
  const std::vector<int64_t>& column_sizes() const { return column_sizes_; }
  bool SamePartition() const;

  static int64_t Bytes(int64_t n);

 private:
  int64_t n_;
  std::vector<Cell> cells_;
  std::vector<int64_t> row_sizes_, column_sizes_;
};

// Rand index over pairs of rows, adjusted for chance (Hubert and Arabie: Comparing partitions,
// Journal of Classification 2, 1985); [-0.5, 1].
double AdjustedRand(const Contingency& table);

// Mutual information over the mean of both entropies; 0 if it is 0.
double NormalizedMutualInformation(const Contingency& table);

// Harmonic mean of homogeneity I/H(first) and completeness I/H(second), each 1 if its entropy is 0
// (Rosenberg and Hirschberg, EMNLP-CoNLL 2007).
double VMeasure(const Contingency& table);

// (I - E) / ((H + H')/2 - E), E being the mean mutual information of partitions with the same sizes
// of parts (Vinh, Epps and Bailey, JMLR 11, 2010); 0 if one of them has one part only. Errors of
// `parallel`.
absl::StatusOr<double> AdjustedMutualInformation(const Contingency& table,
                                                 const Parallel& parallel);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_EXTERNAL_VALIDATION_H_
