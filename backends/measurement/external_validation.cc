#include "backends/measurement/external_validation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "backends/core/error.h"
#include "backends/measurement/summation.h"

namespace tenon::measurement {
namespace {

using Wide = __int128;

// Compacts the sizes of parts and gives their new numbers.
std::vector<int32_t> NumberParts(std::span<const int32_t> parts, std::vector<int64_t>& sizes) {
  std::vector<int64_t> all(1 + *std::max_element(parts.begin(), parts.end()));
  for (const int32_t part : parts) ++all[part];
  std::vector<int32_t> numbers(all.size());
  for (size_t p = 0; p < all.size(); ++p) {
    numbers[p] = static_cast<int32_t>(sizes.size());
    if (all[p] > 0) sizes.push_back(all[p]);
  }
  return numbers;
}

double Entropy(const std::vector<int64_t>& sizes, int64_t n) {
  if (sizes.size() == 1) return 0;
  CompensatedSum sum;
  for (const int64_t size : sizes) {
    const double share = static_cast<double>(size) / static_cast<double>(n);
    sum.Add(-share * std::log(share));
  }
  return sum.Value();
}

double MutualInformation(const Contingency& table) {
  const auto n = static_cast<double>(table.n());
  CompensatedSum sum;
  for (const Contingency::Cell& cell : table.cells()) {
    const auto count = static_cast<double>(cell.count);
    const double expected = static_cast<double>(table.row_sizes()[cell.row]) *
                            static_cast<double>(table.column_sizes()[cell.column]);
    sum.Add(count / n * std::log(n * count / expected));
  }
  // Never negative by definition, and rounding alone is no information.
  const double information = sum.Value();
  return information > std::numeric_limits<double>::epsilon() ? information : 0.0;
}

// How often each size occurs.
std::vector<std::pair<int64_t, int64_t>> Multiplicities(const std::vector<int64_t>& sizes) {
  std::map<int64_t, int64_t> counts;
  for (const int64_t size : sizes) ++counts[size];
  return {counts.begin(), counts.end()};
}

// The mean of k/n log(n k / (a b)) when k rows are common to parts of a and b rows drawn at random:
// k is hypergeometric. Probabilities are followed from the most likely k to both sides by their
// ratios and divided by their sum, so no factorial loses digits.
double ExpectedInformation(int64_t a, int64_t b, int64_t n) {
  constexpr double kNegligible = 1e-25;
  const int64_t least = std::max<int64_t>(0, a + b - n), most = std::min(a, b);
  const auto mode = static_cast<int64_t>(Wide{a + 1} * (b + 1) / (n + 2));
  const int64_t start = std::clamp(mode, least, most);
  CompensatedSum weights, information;
  const auto add = [&](int64_t k, double weight) {
    weights.Add(weight);
    if (k == 0) return;
    const auto common = static_cast<double>(k), all = static_cast<double>(n);
    const double expected = static_cast<double>(a) * static_cast<double>(b);
    information.Add(weight * (common / all) * std::log(all * common / expected));
  };
  // weight(k + 1) / weight(k)
  const auto ratio = [&](int64_t k) {
    return static_cast<double>(a - k) * static_cast<double>(b - k) /
           (static_cast<double>(k + 1) * static_cast<double>(n - a - b + k + 1));
  };
  add(start, 1.0);
  double weight = 1;
  for (int64_t k = start; k < most && weight > kNegligible; ++k) add(k + 1, weight *= ratio(k));
  weight = 1;
  for (int64_t k = start; k > least && weight > kNegligible; --k)
    add(k - 1, weight /= ratio(k - 1));
  return information.Value() / weights.Value();
}

absl::StatusOr<double> ExpectedMutualInformation(const Contingency& table,
                                                 const Parallel& parallel) {
  const auto rows = Multiplicities(table.row_sizes());
  const auto columns = Multiplicities(table.column_sizes());
  std::vector<double> sums(rows.size());
  TENON_RETURN_IF_ERROR(parallel.ForEach(static_cast<int64_t>(rows.size()), [&](int64_t r, int) {
    CompensatedSum sum;
    for (const auto& [size, times] : columns) {
      sum.Add(static_cast<double>(times) * ExpectedInformation(rows[r].first, size, table.n()));
    }
    sums[r] = static_cast<double>(rows[r].second) * sum.Value();
  }));
  CompensatedSum total;
  for (const double sum : sums) total.Add(sum);
  return total.Value();
}

}  // namespace

Contingency::Contingency(std::span<const int32_t> first, std::span<const int32_t> second)
    : n_(static_cast<int64_t>(first.size())) {
  const std::vector<int32_t> rows = NumberParts(first, row_sizes_);
  const std::vector<int32_t> columns = NumberParts(second, column_sizes_);
  std::vector<uint64_t> keys(first.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] =
        static_cast<uint64_t>(rows[first[i]]) << 32 | static_cast<uint32_t>(columns[second[i]]);
  }
  std::sort(keys.begin(), keys.end());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i > 0 && keys[i] == keys[i - 1]) {
      ++cells_.back().count;
    } else {
      cells_.push_back({static_cast<int32_t>(keys[i] >> 32), static_cast<int32_t>(keys[i]), 1});
    }
  }
}

bool Contingency::SamePartition() const {
  return cells_.size() == row_sizes_.size() && cells_.size() == column_sizes_.size();
}

int64_t Contingency::Bytes(int64_t n) {
  // Keys; cells, which grow; sizes, which grow, twice before they are compacted; numbers.
  return n *
         int64_t{sizeof(uint64_t) + 3 * sizeof(Cell) + 8 * sizeof(int64_t) + 2 * sizeof(int32_t)};
}

double AdjustedRand(const Contingency& table) {
  // Ordered pairs of different rows that are together in both, in the first, in the second.
  Wide both = 0, in_first = 0, in_second = 0;
  const auto pairs = [](int64_t size) { return Wide{size} * (size - 1); };
  for (const Contingency::Cell& cell : table.cells()) both += pairs(cell.count);
  for (const int64_t size : table.row_sizes()) in_first += pairs(size);
  for (const int64_t size : table.column_sizes()) in_second += pairs(size);
  const Wide only_first = in_first - both, only_second = in_second - both;
  const Wide neither = pairs(table.n()) - both - only_first - only_second;
  if (only_first == 0 && only_second == 0) return 1.0;
  const Wide numerator = 2 * (both * neither - only_first * only_second);
  const Wide denominator =
      (both + only_first) * (only_first + neither) + (both + only_second) * (only_second + neither);
  return static_cast<double>(numerator) / static_cast<double>(denominator);
}

double NormalizedMutualInformation(const Contingency& table) {
  if (table.SamePartition()) return 1.0;
  const double information = MutualInformation(table);
  if (information == 0) return 0.0;
  const double entropies =
      Entropy(table.row_sizes(), table.n()) + Entropy(table.column_sizes(), table.n());
  return std::min(1.0, information / (entropies / 2));
}

double VMeasure(const Contingency& table) {
  if (table.SamePartition()) return 1.0;
  const double information = MutualInformation(table);
  const double first = Entropy(table.row_sizes(), table.n());
  const double second = Entropy(table.column_sizes(), table.n());
  const double homogeneity = first > 0 ? information / first : 1.0;
  const double completeness = second > 0 ? information / second : 1.0;
  if (homogeneity + completeness == 0) return 0.0;
  return std::min(1.0, 2 * homogeneity * completeness / (homogeneity + completeness));
}

absl::StatusOr<double> AdjustedMutualInformation(const Contingency& table,
                                                 const Parallel& parallel) {
  if (table.SamePartition()) return 1.0;
  if (table.row_sizes().size() == 1 || table.column_sizes().size() == 1) return 0.0;
  TENON_ASSIGN_OR_RETURN(const double expected, ExpectedMutualInformation(table, parallel));
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
  // Near zero only the sign is known.
  const auto away_from_zero = [&](double x) {
    return x < 0 ? std::min(x, -kEpsilon) : std::max(x, kEpsilon);
  };
  const double mean =
      (Entropy(table.row_sizes(), table.n()) + Entropy(table.column_sizes(), table.n())) / 2;
  return away_from_zero(MutualInformation(table) - expected) / away_from_zero(mean - expected);
}

}  // namespace tenon::measurement
