#include "backends/measurement/row_metric.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/measurement/pairwise_sum.h"

namespace tenon::measurement {
namespace {

// Two rows.
struct Rows {
  const double* a;
  const double* b;
  int64_t columns;

  template <typename Term>
  double Sum(const Term& term) const {
    return PairwiseSum(0, columns, [&](int64_t c) { return term(a[c], b[c]); });
  }
};

double SumOfSquares(const Rows& rows) {
  return rows.Sum([](double x, double y) { return (x - y) * (x - y); });
}

double Euclidean(const Rows& rows, double) { return std::sqrt(SumOfSquares(rows)); }
double SqEuclidean(const Rows& rows, double) { return SumOfSquares(rows); }

double CityBlock(const Rows& rows, double) {
  return rows.Sum([](double x, double y) { return std::abs(x - y); });
}

double Chebyshev(const Rows& rows, double) {
  double largest = 0;
  for (int64_t c = 0; c < rows.columns; ++c) {
    largest = std::max(largest, std::abs(rows.a[c] - rows.b[c]));
  }
  return largest;
}

double Minkowski(const Rows& rows, double p) {
  if (p == 1) return CityBlock(rows, p);
  if (p == 2) return Euclidean(rows, p);
  const double sum = rows.Sum([p](double x, double y) { return std::pow(std::abs(x - y), p); });
  return std::pow(sum, 1 / p);
}

// One minus the cosine of the angle between the rows less their `centres`.
double AngularDistance(const Rows& rows, double centre_a, double centre_b) {
  const double ab = rows.Sum([=](double x, double y) { return (x - centre_a) * (y - centre_b); });
  const double aa = rows.Sum([=](double x, double) { return (x - centre_a) * (x - centre_a); });
  const double bb = rows.Sum([=](double, double y) { return (y - centre_b) * (y - centre_b); });
  const double distance = 1.0 - ab / std::sqrt(aa * bb);
  return std::isnan(distance) ? distance : std::clamp(distance, 0.0, 2.0);
}

double Cosine(const Rows& rows, double) { return AngularDistance(rows, 0, 0); }

double Correlation(const Rows& rows, double) {
  const double n = static_cast<double>(rows.columns);
  return AngularDistance(rows, rows.Sum([](double x, double) { return x; }) / n,
                         rows.Sum([](double, double y) { return y; }) / n);
}

double Canberra(const Rows& rows, double) {
  return rows.Sum([](double x, double y) {
    const double share = std::abs(x - y) / (std::abs(x) + std::abs(y));
    return std::isnan(share) ? 0.0 : share;
  });
}

double BrayCurtis(const Rows& rows, double) {
  return CityBlock(rows, 1) / rows.Sum([](double x, double y) { return std::abs(x + y); });
}

// x log(x / y), continued to zero.
double RelativeEntropy(double x, double y) {
  if (x > 0 && y > 0) return x * std::log(x / y);
  if (x == 0 && y >= 0) return 0;
  return std::isnan(x) || std::isnan(y) ? std::numeric_limits<double>::quiet_NaN()
                                        : std::numeric_limits<double>::infinity();
}

double JensenShannon(const Rows& rows, double) {
  const double sum_a = rows.Sum([](double x, double) { return x; });
  const double sum_b = rows.Sum([](double, double y) { return y; });
  const double left = rows.Sum([=](double x, double y) {
    return RelativeEntropy(x / sum_a, (x / sum_a + y / sum_b) / 2.0);
  });
  const double right = rows.Sum([=](double x, double y) {
    return RelativeEntropy(y / sum_b, (x / sum_a + y / sum_b) / 2.0);
  });
  // Never negative by definition; rounding can leave less than the last digit below zero.
  const double divergence = left + right;
  return divergence < 0 ? 0.0 : std::sqrt(divergence / 2.0);
}

double Hamming(const Rows& rows, double) {
  int64_t unequal = 0;
  for (int64_t c = 0; c < rows.columns; ++c) unequal += rows.a[c] != rows.b[c];
  return static_cast<double>(unequal) / static_cast<double>(rows.columns);
}

double Jaccard(const Rows& rows, double) {
  int64_t present = 0, in_one = 0;
  for (int64_t c = 0; c < rows.columns; ++c) {
    const bool in_a = rows.a[c] != 0, in_b = rows.b[c] != 0;
    present += in_a || in_b;
    in_one += in_a != in_b;
  }
  return present == 0 ? 0.0 : static_cast<double>(in_one) / static_cast<double>(present);
}

// How many columns are in both sets, in one of them and in none.
double InBoth(const Rows& rows) {
  return rows.Sum([](double x, double y) { return x * y; });
}

double InOne(const Rows& rows) {
  return rows.Sum([](double x, double y) { return x * (1.0 - y); }) +
         rows.Sum([](double x, double y) { return (1.0 - x) * y; });
}

double InNone(const Rows& rows) {
  return rows.Sum([](double x, double y) { return (1.0 - x) * (1.0 - y); });
}

double Dice(const Rows& rows, double) {
  const double in_one = InOne(rows);
  return in_one / (2.0 * InBoth(rows) + in_one);
}

double Kulczynski1(const Rows& rows, double) { return InBoth(rows) / InOne(rows); }

double RogersTanimoto(const Rows& rows, double) {
  const double twice = 2.0 * InOne(rows);
  return twice / (InBoth(rows) + InNone(rows) + twice);
}

double RussellRao(const Rows& rows, double) {
  const double n = static_cast<double>(rows.columns);
  return (n - InBoth(rows)) / n;
}

double SokalSneath(const Rows& rows, double) {
  const double twice = 2.0 * InOne(rows);
  return twice / (InBoth(rows) + twice);
}

double Yule(const Rows& rows, double) {
  const double half = rows.Sum([](double x, double y) { return x * (1.0 - y); }) *
                      rows.Sum([](double x, double y) { return (1.0 - x) * y; });
  return half == 0 ? 0.0 : 2.0 * half / (InBoth(rows) * InNone(rows) + half);
}

struct Definition {
  std::string_view name;
  double (*distance)(const Rows& rows, double minkowski_p);
  bool compares_sets = false;
};

// In the order of the enumeration.
constexpr Definition kDefinitions[] = {
    {"euclidean", Euclidean},
    {"sqeuclidean", SqEuclidean},
    {"cityblock", CityBlock},
    {"chebyshev", Chebyshev},
    {"minkowski", Minkowski},
    {"cosine", Cosine},
    {"correlation", Correlation},
    {"canberra", Canberra},
    {"braycurtis", BrayCurtis},
    {"jensenshannon", JensenShannon},
    {"hamming", Hamming},
    {"jaccard", Jaccard, true},
    {"dice", Dice, true},
    {"kulczynski1", Kulczynski1, true},
    {"rogerstanimoto", RogersTanimoto, true},
    {"russellrao", RussellRao, true},
    {"sokalmichener", RogersTanimoto, true},  // SciPy has the same formula for both
    {"sokalsneath", SokalSneath, true},
    {"yule", Yule, true},
};
static_assert(std::size(kDefinitions) == static_cast<size_t>(RowMetric::kYule) + 1);

}  // namespace

const std::vector<std::string_view>& RowMetricNames() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string_view>;
    for (const Definition& definition : kDefinitions) all->push_back(definition.name);
    return all;
  }();
  return *names;
}

std::optional<RowMetric> ParseRowMetric(std::string_view name) {
  const auto found = std::find_if(std::begin(kDefinitions), std::end(kDefinitions),
                                  [&](const Definition& d) { return d.name == name; });
  if (found == std::end(kDefinitions)) return std::nullopt;
  return static_cast<RowMetric>(found - std::begin(kDefinitions));
}

bool ComparesSets(RowMetric metric) {
  return kDefinitions[static_cast<size_t>(metric)].compares_sets;
}

double RowDistance(RowMetric metric, double minkowski_p, const double* a, const double* b,
                   int64_t columns) {
  return kDefinitions[static_cast<size_t>(metric)].distance({a, b, columns}, minkowski_p);
}

}  // namespace tenon::measurement
