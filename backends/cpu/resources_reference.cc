// Every resource by its definition: sorts and plain loops, one thread. The oracle for the others.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>
#include <vector>

#include "backends/core/error.h"
#include "backends/core/parallel.h"
#include "backends/cpu/distance.h"
#include "backends/cpu/pair_order.h"
#include "backends/cpu/resource_request.h"
#include "backends/cpu/resources.h"
#include "backends/measurement/summation.h"

namespace tenon::cpu {
namespace {

using measurement::CompensatedSum;
using measurement::OrderedPairStatistics;
using measurement::PairStatistics;

std::vector<double> AllPairs(const tenon_matrix& points) {
  std::vector<double> distances;
  distances.reserve(measurement::PairCount(points.rows));
  for (int64_t i = 0; i < points.rows; ++i) {
    for (int64_t j = i + 1; j < points.rows; ++j) distances.push_back(PairDistance(points, i, j));
  }
  return distances;
}

// The other rows by (distance to i, index).
std::vector<int32_t> SortedNeighbors(const tenon_matrix& points, int64_t i) {
  std::vector<double> row(points.rows);
  for (int64_t j = 0; j < points.rows; ++j) row[j] = PairDistance(points, i, j);
  std::vector<int32_t> order;
  for (int64_t j = 0; j < points.rows; ++j) {
    if (j != i) order.push_back(static_cast<int32_t>(j));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return row[a] < row[b]; });
  return order;
}

void FillNeighbors(const tenon_matrix& points, const tenon_resource& output) {
  int32_t* nearest = static_cast<int32_t*>(output.data);
  for (int64_t i = 0; i < points.rows; ++i) {
    std::copy_n(SortedNeighbors(points, i).begin(), output.key.k, nearest + i * output.key.k);
  }
}

void FillDensity(const tenon_matrix& points, const tenon_resource& output) {
  const int64_t n = points.rows;
  double* density = static_cast<double*>(output.data);
  double maximum = 0;
  for (const double distance : AllPairs(points)) maximum = std::max(maximum, distance);
  std::fill_n(density, n, 0.0);
  density[n] = maximum;
  if (!(maximum > 0)) return;
  CompensatedSum total;
  for (int64_t i = 0; i < n; ++i) {
    CompensatedSum sum;
    for (int64_t j = 0; j < n; ++j) {
      const double scaled = PairDistance(points, i, j) / maximum;
      sum.Add(std::exp(-(scaled * scaled) / output.key.parameter));
    }
    density[i] = sum.Value();
    total.Add(density[i]);
  }
  for (int64_t i = 0; i < n; ++i) density[i] /= total.Value();
}

// ranks[j] = rank of j among the others of i.
std::vector<int32_t> RankTable(const std::vector<int32_t>& order) {
  std::vector<int32_t> ranks(order.size() + 1);
  for (size_t r = 0; r < order.size(); ++r) ranks[order[r]] = static_cast<int32_t>(r + 1);
  return ranks;
}

// As SortedNeighbors, from the points or from the ranks of an earlier request.
std::vector<int32_t> OriginalNeighbors(const ResourceWork& work, int64_t i) {
  if (work.available_table == nullptr) return SortedNeighbors(work.original.points, i);
  const auto* ranks = static_cast<const uint16_t*>(work.available_table->data) + i * work.rows;
  std::vector<int32_t> order(work.rows - 1);
  for (int64_t j = 0; j < work.rows; ++j) {
    if (j != i) order[ranks[j] - 1] = static_cast<int32_t>(j);
  }
  return order;
}

void FillSelectedRanks(const ResourceWork& work, const tenon_resource& output) {
  const int64_t k = output.key.k;
  int32_t* original_ranks = static_cast<int32_t*>(output.data);
  int32_t* embedded_ranks = original_ranks + work.rows * k;
  for (int64_t i = 0; i < work.rows; ++i) {
    const auto original = OriginalNeighbors(work, i);
    const auto embedded = SortedNeighbors(work.embedded.points, i);
    const auto original_table = RankTable(original), embedded_table = RankTable(embedded);
    for (int64_t r = 0; r < k; ++r) {
      original_ranks[i * k + r] = original_table[embedded[r]];
      embedded_ranks[i * k + r] = embedded_table[original[r]];
    }
  }
}

void FillRankTable(const ResourceWork& work, const tenon_resource& output) {
  auto* table = static_cast<uint16_t*>(output.data);
  for (int64_t i = 0; i < work.rows; ++i) {
    const auto ranks = RankTable(SortedNeighbors(work.original.points, i));
    for (int64_t j = 0; j < work.rows; ++j) {
      table[i * work.rows + j] = static_cast<uint16_t>(j == i ? 0 : ranks[j]);
    }
  }
}

double Mean(const std::vector<double>& values) {
  CompensatedSum sum;
  for (const double x : values) sum.Add(x);
  return sum.Value() / static_cast<double>(values.size());
}

// The compensated sum of term(o, e) over all pairs.
template <typename Term>
double SumOver(const std::vector<double>& o, const std::vector<double>& e, const Term& term) {
  CompensatedSum sum;
  for (size_t p = 0; p < o.size(); ++p) sum.Add(term(o[p], e[p]));
  return sum.Value();
}

std::vector<double> OriginalPairs(const ResourceWork& work) {
  if (work.available_condensed == nullptr) return AllPairs(work.original.points);
  const auto* distances = static_cast<const double*>(work.available_condensed->data);
  return std::vector<double>(distances, distances + work.pairs());
}

void FillPairStatistics(const ResourceWork& work, const tenon_resource& output) {
  const std::vector<double> o = OriginalPairs(work), e = AllPairs(work.embedded.points);
  PairStatistics s;
  s.count = static_cast<double>(o.size());
  s.sum_original_squared = SumOver(o, e, [](double a, double) { return a * a; });
  s.sum_embedded_squared = SumOver(o, e, [](double, double b) { return b * b; });
  s.sum_product = SumOver(o, e, [](double a, double b) { return a * b; });
  s.sum_difference_squared = SumOver(o, e, [](double a, double b) { return (a - b) * (a - b); });
  if (s.sum_embedded_squared > 0) {
    const double scale = s.sum_product / s.sum_embedded_squared;
    s.scaled_residual =
        SumOver(o, e, [scale](double a, double b) { return (a - scale * b) * (a - scale * b); });
  }
  s.mean_original = Mean(o);
  s.mean_embedded = Mean(e);
  s.moment_original = SumOver(
      o, e, [&](double a, double) { return (a - s.mean_original) * (a - s.mean_original); });
  s.moment_embedded = SumOver(
      o, e, [&](double, double b) { return (b - s.mean_embedded) * (b - s.mean_embedded); });
  s.comoment = SumOver(
      o, e, [&](double a, double b) { return (a - s.mean_original) * (b - s.mean_embedded); });
  s.min_original = *std::min_element(o.begin(), o.end());
  s.max_original = *std::max_element(o.begin(), o.end());
  s.min_embedded = *std::min_element(e.begin(), e.end());
  s.max_embedded = *std::max_element(e.begin(), e.end());
  *static_cast<PairStatistics*>(output.data) = s;
}

// Pair numbers by (distance, number).
std::vector<uint32_t> SortedPairs(const std::vector<double>& distances) {
  std::vector<uint32_t> order(distances.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return distances[a] < distances[b]; });
  return order;
}

// Twice the average rank of each pair.
std::vector<uint32_t> TwiceRanks(const std::vector<double>& distances,
                                 const std::vector<uint32_t>& order) {
  std::vector<uint32_t> ranks(order.size());
  for (size_t first = 0, last; first < order.size(); first = last) {
    for (last = first; last < order.size() && distances[order[last]] == distances[order[first]];) {
      ++last;
    }
    for (size_t p = first; p < last; ++p) ranks[order[p]] = static_cast<uint32_t>(first + 1 + last);
  }
  return ranks;
}

__int128 RankComoment(const uint32_t* a, const uint32_t* b, int64_t count) {
  __int128 sum = 0;
  for (int64_t p = 0; p < count; ++p) {
    sum += static_cast<__int128>(a[p] - (count + 1)) * (b[p] - (count + 1));
  }
  return sum;
}

void FillPairOrder(const ResourceWork& work, const tenon_resource& output) {
  const std::vector<double> distances = AllPairs(work.original.points);
  const std::vector<uint32_t> order = SortedPairs(distances), ranks = TwiceRanks(distances, order);
  const PairOrderView view = PairOrderView::Of(output, work.pairs());
  *view.header = {distances[order.front()], distances[order.back()],
                  measurement::ToWide(RankComoment(ranks.data(), ranks.data(), work.pairs()))};
  if (view.twice_ranks != nullptr) std::copy(ranks.begin(), ranks.end(), view.twice_ranks);
  if (view.positions == nullptr) return;
  std::fill_n(view.group_starts, (work.pairs() + 63) / 64, 0);
  for (size_t p = 0; p < order.size(); ++p) {
    view.positions[order[p]] = static_cast<uint32_t>(p);
    const bool starts = p == 0 || distances[order[p]] != distances[order[p - 1]];
    view.group_starts[p / 64] |= uint64_t{starts} << (p % 64);
  }
}

// The original side of ordered statistics, and the embedded distances.
struct BothSides {
  std::vector<double> embedded;
  std::vector<uint32_t> twice_ranks;  // of the original distances
  OrderedPairStatistics statistics;

  explicit BothSides(const ResourceWork& work) : embedded(AllPairs(work.embedded.points)) {
    statistics.min_embedded = *std::min_element(embedded.begin(), embedded.end());
    statistics.max_embedded = *std::max_element(embedded.begin(), embedded.end());
    if (work.is_external) {
      const std::vector<double> original = AllPairs(work.original.points);
      twice_ranks = TwiceRanks(original, SortedPairs(original));
      statistics.min_original = *std::min_element(original.begin(), original.end());
      statistics.max_original = *std::max_element(original.begin(), original.end());
      statistics.original_rank_moment =
          measurement::ToWide(RankComoment(twice_ranks.data(), twice_ranks.data(), work.pairs()));
      return;
    }
    const bool ranked = work.available_ranks != nullptr;
    const PairOrderView view =
        PairOrderView::Of(ranked ? *work.available_ranks : *work.available_positions, work.pairs());
    statistics.min_original = view.header->min_distance;
    statistics.max_original = view.header->max_distance;
    statistics.original_rank_moment = view.header->rank_moment;
    twice_ranks = ranked ? std::vector<uint32_t>(view.twice_ranks, view.twice_ranks + view.pairs)
                         : RanksOfPositions(view);
  }

  static std::vector<uint32_t> RanksOfPositions(const PairOrderView& view) {
    const auto starts = [&](int64_t q) { return view.group_starts[q / 64] >> (q % 64) & 1; };
    std::vector<uint32_t> by_position(view.pairs), ranks(view.pairs);
    for (int64_t first = 0, last; first < view.pairs; first = last) {
      for (last = first + 1; last < view.pairs && !starts(last);) ++last;
      for (int64_t q = first; q < last; ++q) {
        by_position[q] = static_cast<uint32_t>(first + 1 + last);
      }
    }
    for (int64_t p = 0; p < view.pairs; ++p) ranks[p] = by_position[view.positions[p]];
    return ranks;
  }
};

void FillRankCorrelation(const ResourceWork& work, const tenon_resource& output) {
  BothSides both(work);
  const auto e = TwiceRanks(both.embedded, SortedPairs(both.embedded));
  OrderedPairStatistics& s = both.statistics;
  s.rank_moment = measurement::ToWide(RankComoment(e.data(), e.data(), work.pairs()));
  s.rank_comoment =
      measurement::ToWide(RankComoment(e.data(), both.twice_ranks.data(), work.pairs()));
  *static_cast<OrderedPairStatistics*>(output.data) = s;
}

// The fitted values of groups with these sums and sizes: means of pooled neighbours.
std::vector<double> PooledMeans(std::vector<double> sums, std::vector<double> sizes) {
  std::vector<size_t> pooled(sums.size(), 1);
  size_t blocks = 0;
  for (size_t g = 0; g < sums.size(); ++g, ++blocks) {
    double sum = sums[g], size = sizes[g];
    size_t groups = 1;
    for (; blocks > 0 && sums[blocks - 1] / sizes[blocks - 1] > sum / size; --blocks) {
      sum += sums[blocks - 1];
      size += sizes[blocks - 1];
      groups += pooled[blocks - 1];
    }
    sums[blocks] = sum;
    sizes[blocks] = size;
    pooled[blocks] = groups;
  }
  std::vector<double> means;
  for (size_t b = 0; b < blocks; ++b) means.insert(means.end(), pooled[b], sums[b] / sizes[b]);
  return means;
}

void FillIsotonicFit(const ResourceWork& work, const tenon_resource& output) {
  BothSides both(work);
  const std::vector<double> ranks(both.twice_ranks.begin(), both.twice_ranks.end());
  const auto order = SortedPairs(ranks);
  std::vector<double> sums, sizes;
  std::vector<size_t> group_of(order.size());
  for (size_t p = 0; p < order.size(); ++p) {
    if (p == 0 || ranks[order[p]] != ranks[order[p - 1]]) {
      sums.push_back(0);
      sizes.push_back(0);
    }
    group_of[p] = sums.size() - 1;
    sums.back() += both.embedded[order[p]];
    sizes.back() += 1;
  }
  const std::vector<double> fit = PooledMeans(sums, sizes);
  CompensatedSum squares, residual;
  for (size_t p = 0; p < order.size(); ++p) {
    const double e = both.embedded[order[p]], error = e - fit[group_of[p]];
    squares.Add(e * e);
    residual.Add(error * error);
  }
  OrderedPairStatistics& s = both.statistics;
  s.sum_embedded_squared = squares.Value();
  s.isotonic_residual = residual.Value();
  s.isotonic_blocks = 1;
  for (size_t g = 1; g < fit.size(); ++g) s.isotonic_blocks += fit[g] != fit[g - 1];
  *static_cast<OrderedPairStatistics*>(output.data) = s;
}

void FillSpace(const SpaceOutputs& space) {
  for (const tenon_resource& output : space.neighbors) FillNeighbors(space.points, output);
  for (const tenon_resource& output : space.densities) FillDensity(space.points, output);
  for (const tenon_resource& output : space.condensed) {
    const std::vector<double> distances = AllPairs(space.points);
    std::copy(distances.begin(), distances.end(), static_cast<double*>(output.data));
  }
}

absl::Status FillAll(const ResourceWork& work, const Parallel& cancel) {
  FillSpace(work.original);
  FillSpace(work.embedded);
  TENON_RETURN_IF_ERROR(cancel.CheckCancelled());
  for (const auto& output : work.rank_tables) FillRankTable(work, output);
  for (const auto& output : work.selected_ranks) FillSelectedRanks(work, output);
  for (const auto& output : work.pair_statistics) FillPairStatistics(work, output);
  TENON_RETURN_IF_ERROR(cancel.CheckCancelled());
  for (const auto& output : work.pair_orders) FillPairOrder(work, output);
  for (const auto& output : work.rank_correlations) FillRankCorrelation(work, output);
  for (const auto& output : work.isotonic_fits) FillIsotonicFit(work, output);
  return cancel.CheckCancelled();
}

}  // namespace

absl::Status BuildResourcesReference(const tenon_resource_request& request,
                                     tenon_resource_statistics* statistics) {
  const auto start = std::chrono::steady_clock::now();
  try {
    TENON_ASSIGN_OR_RETURN(const ResourceWork work, CheckRequest(request, true));
    const Parallel cancel(1, request.cancel);
    TENON_RETURN_IF_ERROR(cancel.CheckCancelled());
    TENON_RETURN_IF_ERROR(FillAll(work, cancel));
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, "the system refused memory for a resource");
  }
  *statistics = {};
  statistics->struct_size = sizeof(*statistics);
  statistics->timing_scope = 1;
  statistics->execution_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return absl::OkStatus();
}

}  // namespace tenon::cpu
