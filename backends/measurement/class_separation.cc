#include "backends/measurement/class_separation.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "backends/core/error.h"
#include "backends/measurement/numpy_arithmetic.h"

namespace tenon::measurement {
namespace {

constexpr int64_t kBlockRows = 16;

// Whether a row of class `own` is nearest to its own mean; -1 if a distance is not finite.
template <typename T>
int Consistent(const T* row, int64_t own, const std::vector<T>& means, int64_t columns) {
  const auto classes = static_cast<int64_t>(means.size()) / columns;
  T least = 0;
  int64_t nearest = 0;
  for (int64_t c = 0; c < classes; ++c) {
    const T distance = NormOfDifference(row, means.data() + c * columns, columns);
    if (!std::isfinite(distance)) return -1;
    if (c > 0 && !(distance < least)) continue;
    least = distance;
    nearest = c;
  }
  return nearest == own ? 1 : 0;
}

// body(c, rows) for all rows of classes [first, end), those of one class in some pieces.
template <typename Body>
absl::Status ForEachRun(const ClassMembers& members, int64_t first, int64_t end,
                        const Parallel& parallel, const Body& body) {
  const int64_t begin = members.First(first), size = members.First(end) - begin;
  return parallel.ForEach((size + kBlockRows - 1) / kBlockRows, [&](int64_t block, int) {
    int64_t position = begin + block * kBlockRows, c = members.ClassAt(position);
    const int64_t last = std::min(begin + size, position + kBlockRows);
    for (; position < last; ++c) {
      const int64_t stop = std::min(last, members.First(c + 1));
      body(c, members.Rows().subspan(position, stop - position));
      position = stop;
    }
  });
}

template <typename T>
absl::StatusOr<int64_t> CountConsistentAs(const tenon_matrix& matrix, const ClassMembers& members,
                                          const Parallel& parallel) {
  const PointRows<T> points(matrix);
  TENON_ASSIGN_OR_RETURN(const std::vector<T> means,
                         ClassMeans(points, members, 0, members.classes(), parallel));
  std::atomic<int64_t> total = 0;
  std::atomic<bool> finite = AllFinite(means);
  TENON_RETURN_IF_ERROR(ForEachRun(
      members, 0, members.classes(), parallel, [&](int64_t own, std::span<const int32_t> rows) {
        std::vector<T> buffer(points.columns());
        int64_t count = 0;
        for (const int32_t i : rows) {
          const int consistent =
              Consistent(points.Read(i, buffer.data()), own, means, points.columns());
          if (consistent < 0) finite = false;
          count += consistent;
        }
        total += count;
      }));
  return finite ? total.load() : -1;
}

template <typename T>
absl::StatusOr<std::vector<double>> MeansAs(const tenon_matrix& points, const ClassMembers& members,
                                            ClassRange range, const Parallel& parallel) {
  TENON_ASSIGN_OR_RETURN(const std::vector<T> means, ClassMeans(PointRows<T>(points), members,
                                                                range.first, range.end, parallel));
  return std::vector<double>(means.begin(), means.end());
}

// The classes of a range and their means.
struct Centers {
  ClassRange range;
  std::vector<double> means;
};

absl::StatusOr<Centers> CentersOf(const ClassPoints& points, const ClassMembers& members,
                                  ClassRange range, const Parallel& parallel) {
  auto means = points.single ? MeansAs<float>(points.points, members, range, parallel)
                             : MeansAs<double>(points.points, members, range, parallel);
  if (!means.ok()) return means.status();
  return Centers{range, *std::move(means)};
}

// counts[x - xs.first][y - ys.first] += points of class x that are nearer to its mean than to that
// of class y; the same distance counts if x < y.
absl::Status CountNearer(const tenon_matrix& matrix, const ClassMembers& members, const Centers& xs,
                         const Centers& ys, const Parallel& parallel, std::vector<int64_t>& counts,
                         bool& overflow) {
  const PointRows<double> points(matrix);
  const int64_t columns = points.columns(), width = ys.range.size();
  std::atomic<bool> finite = true;
  TENON_RETURN_IF_ERROR(ForEachRun(
      members, xs.range.first, xs.range.end, parallel,
      [&](int64_t x, std::span<const int32_t> rows) {
        const double* own_mean = xs.means.data() + (x - xs.range.first) * columns;
        std::vector<double> buffer(columns);
        std::vector<int64_t> nearer(width);
        for (const int32_t r : rows) {
          const double* row = points.Read(r, buffer.data());
          const double own = NormOfDifference(row, own_mean, columns);
          bool all_finite = std::isfinite(own);
          for (int64_t y = 0; y < width; ++y) {
            const double other = NormOfDifference(row, ys.means.data() + y * columns, columns);
            all_finite &= std::isfinite(other);
            nearer[y] += own < other || (x < ys.range.first + y && own == other);
          }
          if (!all_finite) finite = false;
        }
        int64_t* const total = counts.data() + (x - xs.range.first) * width;
        for (int64_t y = 0; y < width; ++y) std::atomic_ref(total[y]).fetch_add(nearer[y]);
      }));
  overflow |= !finite;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> CountConsistent(const ClassPoints& points, const ClassMembers& members,
                                        const Parallel& parallel) {
  return points.single ? CountConsistentAs<float>(points.points, members, parallel)
                       : CountConsistentAs<double>(points.points, members, parallel);
}

absl::StatusOr<std::vector<double>> PairConsistency(const ClassPoints& points,
                                                    const ClassMembers& members, ClassRange as,
                                                    ClassRange bs, const Parallel& parallel) {
  const bool same = as.first == bs.first;
  TENON_ASSIGN_OR_RETURN(const Centers a_centers, CentersOf(points, members, as, parallel));
  TENON_ASSIGN_OR_RETURN(const Centers b_centers, CentersOf(points, members, bs, parallel));
  std::vector<int64_t> of_a(as.size() * bs.size()), of_b(same ? 0 : of_a.size());
  bool overflow = false;
  TENON_RETURN_IF_ERROR(
      CountNearer(points.points, members, a_centers, b_centers, parallel, of_a, overflow));
  if (!same) {
    TENON_RETURN_IF_ERROR(
        CountNearer(points.points, members, b_centers, a_centers, parallel, of_b, overflow));
  }
  std::vector<double> shares(of_a.size());
  for (int64_t a = 0; a < as.size(); ++a) {
    for (int64_t b = 0; b < bs.size(); ++b) {
      const int64_t count = of_a[a * bs.size() + b] + (same ? of_a : of_b)[b * as.size() + a];
      const int64_t size = members.Size(as.first + a) + members.Size(bs.first + b);
      shares[a * bs.size() + b] =
          overflow ? -1.0 : static_cast<double>(count) / static_cast<double>(size);
    }
  }
  return shares;
}

}  // namespace tenon::measurement
