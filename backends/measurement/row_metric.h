// Distances of two rows by the names and definitions of scipy.spatial.distance.
//
// Definitions are those of SciPy 1.17, unweighted, of rows of float64 (kulczynski1 and
// sokalmichener, which it no longer has, those of 1.10). Measures of sets (dice, kulczynski1,
// rogerstanimoto, russellrao, sokalmichener, sokalsneath, yule) count with products of the values
// and of one minus the values, so they are defined for any reals and become the usual counts for
// rows of zeros and ones. jaccard alone asks only what is zero: of the columns that are not zero in
// both rows it takes the share that are zero in one (before 1.15 SciPy took that of unequal
// values).

#ifndef TENON_BACKENDS_MEASUREMENT_ROW_METRIC_H_
#define TENON_BACKENDS_MEASUREMENT_ROW_METRIC_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tenon::measurement {

enum class RowMetric {
  kEuclidean,
  kSqEuclidean,
  kCityBlock,
  kChebyshev,
  kMinkowski,
  kCosine,
  kCorrelation,
  kCanberra,
  kBrayCurtis,
  kJensenShannon,
  kHamming,
  kJaccard,
  kDice,
  kKulczynski1,
  kRogersTanimoto,
  kRussellRao,
  kSokalMichener,
  kSokalSneath,
  kYule,
};

// All names, in the order of the enumeration.
const std::vector<std::string_view>& RowMetricNames();

// Case-sensitive; empty when there is no such metric.
std::optional<RowMetric> ParseRowMetric(std::string_view name);

// Whether the metric compares sets of columns, so that its values are meant to be zero or one.
bool ComparesSets(RowMetric metric);

// The distance of rows `a` and `b` of `columns` >= 1 values. `minkowski_p` >= 1 is the order of
// kMinkowski and ignored by others. Symmetric bit for bit. May be infinite (overflow; kulczynski1
// of equal sets; jensenshannon of a negative value) and NaN where the definition divides zero by
// zero: cosine and correlation of a constant row, braycurtis, dice and sokalsneath of zero rows,
// kulczynski1 of empty sets, jensenshannon of a row whose sum is zero. Sums are formed pairwise in
// eight lanes, as NumPy does. Thread-safe.
double RowDistance(RowMetric metric, double minkowski_p, const double* a, const double* b,
                   int64_t columns);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_ROW_METRIC_H_
