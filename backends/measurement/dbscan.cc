#include "backends/measurement/dbscan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backends/core/error.h"
#include "backends/measurement/metric_input.h"

namespace tenon::measurement {
namespace {

constexpr int64_t kBlockRows = 16;

// Decides whether two rows are within the radius.
class Radius {
 public:
  Radius(double eps, RowMetric metric, double minkowski_p, int64_t columns)
      : eps_(eps), metric_(Simplest(metric, minkowski_p)), p_(minkowski_p), columns_(columns) {
    if (metric_ == RowMetric::kEuclidean) limit_ = eps * eps;
    if (metric_ == RowMetric::kSqEuclidean || metric_ == RowMetric::kCityBlock ||
        metric_ == RowMetric::kChebyshev) {
      limit_ = eps;
    }
    if (metric_ == RowMetric::kMinkowski) limit_ = std::pow(eps, p_);
  }

  // Rows within the radius differ by no more in any column; infinite if nothing is known.
  double Reach() const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    // Powers below this lose digits or vanish, and then say less about the difference.
    constexpr double kSmallestPower = 1e-300;
    if (!std::isfinite(limit_)) return kInfinity;  // powers that overflow are within it, too
    switch (metric_) {
      case RowMetric::kEuclidean:
        return std::max(eps_, std::sqrt(kSmallestPower));
      case RowMetric::kSqEuclidean:
        return std::sqrt(std::max(eps_, kSmallestPower));
      case RowMetric::kCityBlock:
      case RowMetric::kChebyshev:
        return eps_;
      case RowMetric::kMinkowski:
        return std::max(eps_, std::pow(kSmallestPower, 1 / p_));
      default:
        return kInfinity;
    }
  }

  bool Within(const double* a, const double* b) const {
    switch (metric_) {
      case RowMetric::kEuclidean:
      case RowMetric::kSqEuclidean:
        return SumWithin(a, b, [](double x) { return x * x; });
      case RowMetric::kCityBlock:
        return SumWithin(a, b, [](double x) { return std::abs(x); });
      case RowMetric::kMinkowski:
        return SumWithin(a, b, [this](double x) { return std::pow(std::abs(x), p_); });
      default:
        break;
    }
    const double distance = RowDistance(metric_, p_, a, b, columns_);
    if (metric_ == RowMetric::kCosine && std::isnan(distance)) return a == b || 1.0 <= eps_;
    return distance <= eps_;
  }

 private:
  static RowMetric Simplest(RowMetric metric, double minkowski_p) {
    if (metric != RowMetric::kMinkowski) return metric;
    if (minkowski_p == 1) return RowMetric::kCityBlock;
    return minkowski_p == 2 ? RowMetric::kEuclidean : metric;
  }

  // Sums of terms that are not negative never shrink, so a sum beyond the limit need not be ended.
  template <typename Term>
  bool SumWithin(const double* a, const double* b, const Term& term) const {
    constexpr int64_t kStride = 8;
    double sum = 0;
    for (int64_t first = 0; first < columns_; first += kStride) {
      const int64_t last = std::min(first + kStride, columns_);
      for (int64_t c = first; c < last; ++c) sum += term(a[c] - b[c]);
      if (!(sum <= limit_)) return false;
    }
    return true;
  }

  const double eps_;
  const RowMetric metric_;
  const double p_;
  const int64_t columns_;
  // What sums of powers are compared with; infinite for metrics that are not such sums.
  double limit_ = std::numeric_limits<double>::infinity();
};

// Rows as doubles, set members as zero and one for metrics that compare sets.
std::vector<double> PlainRows(const tenon_matrix& points, RowMetric metric) {
  const PointsView view(points);
  std::vector<double> rows(points.rows * points.columns);
  for (int64_t i = 0; i < points.rows; ++i) {
    for (int64_t c = 0; c < points.columns; ++c) {
      const double value = view.At(i, c);
      rows[i * points.columns + c] = ComparesSets(metric) ? (value != 0 ? 1.0 : 0.0) : value;
    }
  }
  return rows;
}

// Interval [begin, end).
struct Span {
  int64_t begin = 0, end = 0;
};

// Rows sorted into the cells of a grid over the two columns of the largest range. What lies within
// the reach of a row is in its own or an adjacent cell, which are three runs of cells in order.
class Grid {
 public:
  Grid(const std::vector<double>& rows, int64_t columns, double reach) {
    const int64_t n = static_cast<int64_t>(rows.size()) / columns;
    std::vector<uint64_t> keys(n, 0);
    for (const Axis& axis : WidestAxes(rows, columns, reach)) {
      for (int64_t i = 0; i < n; ++i) {
        const double cell =
            std::floor((rows[i * columns + axis.column] - axis.origin) / axis.width);
        keys[i] = keys[i] << 32 | static_cast<uint32_t>(cell);
      }
    }
    order_.resize(n);
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(),
              [&](int32_t a, int32_t b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; });
    cell_of_.resize(n);
    for (int64_t position = 0; position < n; ++position) {
      const int32_t row = order_[position];
      if (cell_keys_.empty() || keys[row] != cell_keys_.back()) {
        cell_keys_.push_back(keys[row]);
        cell_begin_.push_back(position);
      }
      cell_of_[row] = static_cast<int32_t>(cell_keys_.size() - 1);
    }
    cell_begin_.push_back(n);
  }

  int64_t cells() const { return static_cast<int64_t>(cell_keys_.size()); }
  int64_t CellOf(int64_t row) const { return cell_of_[row]; }
  // Rows by cell, and where those of a cell stand.
  const std::vector<int32_t>& order() const { return order_; }
  Span Rows(int64_t cell) const { return {cell_begin_[cell], cell_begin_[cell + 1]}; }

  // The three runs of cells that hold everything within reach of `cell`; runs may be empty.
  void AdjacentCells(int64_t cell, Span runs[3]) const {
    const int64_t high = static_cast<int64_t>(cell_keys_[cell] >> 32);
    const int64_t low = static_cast<int64_t>(cell_keys_[cell] & 0xffffffff);
    for (int64_t step = 0; step < 3; ++step) {
      const int64_t line = high + step - 1;
      runs[step] =
          line < 0 ? Span{} : Span{Find(line, std::max<int64_t>(0, low - 1)), Find(line, low + 2)};
    }
  }

 private:
  struct Axis {
    int64_t column;
    double origin, width;
  };

  // Up to two axes along which cells have at least the width of `reach`.
  static std::vector<Axis> WidestAxes(const std::vector<double>& rows, int64_t columns,
                                      double reach) {
    // Few enough cells that rounding of a cell's number stays far below the margin of the width.
    constexpr double kMargin = 1 + 1e-6, kMostCells = 1 << 20;
    std::vector<std::pair<double, Axis>> axes;
    for (int64_t c = 0; c < columns; ++c) {
      double least = rows[c], largest = rows[c];
      for (size_t p = c; p < rows.size(); p += columns) {
        least = std::min(least, rows[p]);
        largest = std::max(largest, rows[p]);
      }
      const double range = largest - least;
      const double width = std::max(reach * kMargin, range / kMostCells);
      if (std::isfinite(range) && std::isfinite(width)) axes.push_back({range, {c, least, width}});
    }
    std::stable_sort(axes.begin(), axes.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<Axis> widest;
    for (size_t a = 0; a < std::min<size_t>(2, axes.size()); ++a) widest.push_back(axes[a].second);
    return widest;
  }

  // The first cell that is not before (line, low).
  int64_t Find(int64_t line, int64_t low) const {
    const uint64_t key = static_cast<uint64_t>(line) << 32 | static_cast<uint64_t>(low);
    return std::lower_bound(cell_keys_.begin(), cell_keys_.end(), key) - cell_keys_.begin();
  }

  std::vector<int32_t> order_, cell_of_;
  std::vector<uint64_t> cell_keys_;
  std::vector<int64_t> cell_begin_;
};

class Clustering {
 public:
  Clustering(const tenon_matrix& points, const Radius& radius, RowMetric metric)
      : columns_(points.columns),
        rows_(PlainRows(points, metric)),
        radius_(radius),
        grid_(rows_, columns_, radius.Reach()),
        core_(points.rows),
        labels_(points.rows, -1) {}

  absl::Status FindCores(int64_t min_samples, const Parallel& parallel) {
    const int64_t n = static_cast<int64_t>(core_.size());
    return parallel.ForEach((n + kBlockRows - 1) / kBlockRows, [&](int64_t block, int) {
      // Neighbouring rows in the grid's order share their candidates.
      for (int64_t s = block * kBlockRows; s < std::min(n, (block + 1) * kBlockRows); ++s) {
        const int64_t row = grid_.order()[s];
        core_[row] = HasNeighbors(row, min_samples);
      }
    });
  }

  // Floods one cluster after the other. Rows that have a label leave the lists of candidates, so
  // that every one is taken up once, however many neighbours it has.
  absl::Status Flood(const Parallel& parallel) {
    open_ = grid_.order();
    open_count_.resize(grid_.cells());
    for (int64_t cell = 0; cell < grid_.cells(); ++cell) {
      open_count_[cell] = static_cast<int32_t>(grid_.Rows(cell).end - grid_.Rows(cell).begin);
    }
    int32_t cluster = 0;
    std::vector<int32_t> frontier;
    for (size_t row = 0; row < labels_.size(); ++row) {
      if (labels_[row] >= 0 || !core_[row]) continue;
      labels_[row] = cluster;
      frontier.push_back(static_cast<int32_t>(row));
      while (!frontier.empty()) {
        TENON_RETURN_IF_ERROR(parallel.CheckCancelled());
        const int64_t from = frontier.back();
        frontier.pop_back();
        TakeNeighbors(from, cluster, frontier);
      }
      ++cluster;
    }
    return absl::OkStatus();
  }

  std::vector<int32_t> TakeLabels() { return std::move(labels_); }

 private:
  bool Within(int64_t a, int64_t b) const {
    return radius_.Within(&rows_[a * columns_], &rows_[b * columns_]);
  }

  bool HasNeighbors(int64_t row, int64_t wanted) const {
    Span runs[3];
    grid_.AdjacentCells(grid_.CellOf(row), runs);
    int64_t count = 0;
    for (const Span& run : runs) {
      if (run.begin >= run.end) continue;
      const int64_t end = grid_.Rows(run.end - 1).end;
      for (int64_t s = grid_.Rows(run.begin).begin; s < end; ++s) {
        count += Within(row, grid_.order()[s]);
        if (count >= wanted) return true;
      }
    }
    return false;
  }

  // Labels what has no label yet within the radius of a core row; its core rows go to `frontier`.
  void TakeNeighbors(int64_t from, int32_t cluster, std::vector<int32_t>& frontier) {
    Span runs[3];
    grid_.AdjacentCells(grid_.CellOf(from), runs);
    for (const Span& run : runs) {
      for (int64_t cell = run.begin; cell < run.end; ++cell) {
        int32_t* open = &open_[grid_.Rows(cell).begin];
        int32_t& count = open_count_[cell];
        for (int32_t p = 0; p < count;) {
          const int32_t row = open[p];
          const bool labelled = labels_[row] >= 0;
          if (!labelled && !Within(from, row)) {
            ++p;
            continue;
          }
          if (!labelled && core_[row]) frontier.push_back(row);
          if (!labelled) labels_[row] = cluster;
          open[p] = open[--count];
        }
      }
    }
  }

  const int64_t columns_;
  const std::vector<double> rows_;
  const Radius& radius_;
  const Grid grid_;
  std::vector<uint8_t> core_;
  std::vector<int32_t> labels_;
  std::vector<int32_t> open_, open_count_;  // rows without a label, by cell
};

}  // namespace

absl::StatusOr<std::vector<int32_t>> Dbscan(const tenon_matrix& points, double eps,
                                            int64_t min_samples, RowMetric metric,
                                            double minkowski_p, const Parallel& parallel) {
  const Radius radius(eps, metric, minkowski_p, points.columns);
  Clustering clustering(points, radius, metric);
  TENON_RETURN_IF_ERROR(clustering.FindCores(min_samples, parallel));
  TENON_RETURN_IF_ERROR(clustering.Flood(parallel));
  return clustering.TakeLabels();
}

int64_t DbscanBytes(int64_t rows, int64_t columns) {
  // The rows; keys, order, cells, their numbers, open rows and counts, frontier, labels, flags.
  return rows * (columns * 8 + 8 + 4 + 4 + (8 + 8) + 4 + 4 + 8 + 4 + 1);
}

}  // namespace tenon::measurement
