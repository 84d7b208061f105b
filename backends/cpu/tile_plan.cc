#include "backends/cpu/tile_plan.h"

#include <algorithm>
#include <limits>

#include "backends/core/strings.h"

namespace tenon::cpu {
namespace {

struct Targets {
  int64_t m, n, k;
};

// The pair of groups that makes a tensor a matrix.
using Stride = int64_t tenon_mode::*;

// Lengths of tiles: they keep packed operands in the second cache, give narrow products long
// tiles, and cut large work into enough tiles for many threads.
Targets TargetsOf(const StepView& step, bool is_packed) {
  const int64_t element = step.element_bytes();
  const int64_t side = element > 8 ? 256 : 512, depth = element > 4 ? 256 : 512;
  constexpr int64_t kLongest = 16384, kShortest = 128, kPanelBytes = 512 * 1024;
  constexpr double kEnoughTiles = 64, kTileWork = 16e6;
  Targets targets = {std::min(step.m_size, side), std::min(step.n_size, side),
                     is_packed ? std::min(step.k_size, depth) : step.k_size};
  const int64_t panel = kPanelBytes / element;
  const bool is_short_m = step.m_size < side, is_short_n = step.n_size < side,
             is_short_k = step.k_size < depth;
  if (is_short_n && is_short_k) {
    targets.m = std::clamp(panel / (step.k_size + step.n_size), targets.m, kLongest);
  } else if (is_short_m && is_short_k) {
    targets.n = std::clamp(panel / (step.k_size + step.m_size), targets.n, kLongest);
  } else if (is_short_m && is_short_n && is_packed) {
    targets.k = std::clamp(panel / (step.m_size + step.n_size), targets.k, kLongest);
  }
  const auto count = [](int64_t size, int64_t target) {
    return static_cast<double>((size + target - 1) / target);
  };
  for (int64_t* longer = &targets.m;; *longer /= 2) {
    longer = targets.m >= targets.n ? &targets.m : &targets.n;
    const double tiles = static_cast<double>(step.batch_size) * count(step.m_size, targets.m) *
                         count(step.n_size, targets.n);
    const double work = static_cast<double>(targets.m) * static_cast<double>(targets.n) *
                        static_cast<double>(step.k_size);
    if (tiles >= kEnoughTiles || work <= kTileWork || *longer < 2 * kShortest) break;
  }
  // One call to the library does not look at the cancel flag, so it stays short.
  constexpr int64_t kCallWork = 200'000'000;
  targets.k = std::min(targets.k, std::max(depth, kCallWork / (targets.m * targets.n)));
  return targets;
}

// All ways worth trying to cut one group.
std::vector<TileAxis> Candidates(Modes group, NestBy first, NestBy second, int64_t target) {
  constexpr int kAll = std::numeric_limits<int>::max();
  constexpr int64_t kWorthAlone = 48;
  std::vector<TileAxis> axes = {CutAxis(group, {first, second, false, kAll}, target)};
  if (group.size() <= 1) return axes;
  axes.push_back(CutAxis(group, {second, first, false, kAll}, target));
  for (const auto& [order, other] : {std::pair(first, second), std::pair(second, first)}) {
    const TileAxis alone = CutAxis(group, {order, other, false, 1}, target);
    if (alone.full >= kWorthAlone) axes.push_back(alone);
  }
  axes.push_back(CutAxis(group, {first, second, true, kAll}, target));
  axes.push_back(CutAxis(group, {second, first, true, kAll}, target));
  return axes;
}

// The layout of a tensor's tiles, if they are matrices in place.
std::optional<MatrixLayout> LayoutInPlace(const TileAxis& rows, const TileAxis& columns,
                                          Stride stride) {
  const std::optional<int64_t> row_stride = TileStride(rows, stride);
  const std::optional<int64_t> column_stride = TileStride(columns, stride);
  if (!row_stride.has_value() || !column_stride.has_value()) return std::nullopt;
  return LayoutOf(rows.full, *row_stride, columns.full, *column_stride);
}

// Elements of a tile that lie side by side in the tensor.
int64_t ContiguousRun(const TileAxis& rows, const TileAxis& columns, Stride stride) {
  int64_t run = 1;
  for (bool found = true; found;) {
    found = false;
    for (const TileAxis* axis : {&rows, &columns}) {
      for (const tenon_mode& mode : axis->inner) {
        if (mode.*stride != run || mode.extent == 1) continue;
        run *= mode.extent;
        found = true;
      }
    }
  }
  return run;
}

// Bytes that packing moves, in units that weigh how they lie: less than a cache line at a time
// still moves the whole line.
double PackingCost(const TileAxis& rows, const TileAxis& columns, Stride stride, double elements,
                   int64_t element_bytes) {
  if (LayoutInPlace(rows, columns, stride).has_value()) return 0;
  constexpr double kLineBytes = 64;
  const auto run = static_cast<double>(ContiguousRun(rows, columns, stride) * element_bytes);
  return elements * static_cast<double>(element_bytes) * std::max(1.0, kLineBytes / run);
}

double PlanCost(const StepView& step, const TileAxis& m, const TileAxis& n, const TileAxis& k) {
  const auto rows = static_cast<double>(step.m_size), columns = static_cast<double>(step.n_size),
             depth = static_cast<double>(step.k_size);
  const int64_t bytes = step.element_bytes();
  // A tile of A is packed once for all tiles beside it if all its terms fit; one of B for all
  // tiles below it if the result is one tile wide.
  const double repeats_a = k.tiles > 1 ? static_cast<double>(n.tiles) : 1;
  const double repeats_b = k.tiles > 1 || n.tiles > 1 ? static_cast<double>(m.tiles) : 1;
  return PackingCost(m, k, &tenon_mode::stride_a, rows * depth * repeats_a, bytes) +
         PackingCost(k, n, &tenon_mode::stride_b, depth * columns * repeats_b, bytes) +
         PackingCost(m, n, &tenon_mode::stride_c, rows * columns * (step.may_accumulate ? 2 : 1),
                     bytes);
}

int64_t SmallestStride(const TileAxis& axis, Stride stride) {
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (const tenon_mode& mode : axis.inner) smallest = std::min(smallest, mode.*stride);
  return smallest;
}

// The loops of a copy between a tensor's tile and its packed form.
std::vector<CopyLoop> PackingLoops(const std::vector<tenon_mode>& rows,
                                   const std::vector<tenon_mode>& columns, bool is_column_major,
                                   Stride stride) {
  std::vector<CopyLoop> loops;
  int64_t packed = 1;
  const auto append = [&](const std::vector<tenon_mode>& modes) {
    for (size_t i = modes.size(); i-- > 0;) {
      loops.push_back({modes[i].extent, modes[i].*stride, packed});
      packed *= modes[i].extent;
    }
  };
  append(is_column_major ? rows : columns);
  append(is_column_major ? columns : rows);
  return loops;
}

// `is_result`: the tile goes to the tensor; `fetches` too when it may have to come from there.
TilePlanTensor PlanTensor(const TileAxis& rows, const TileAxis& columns, Stride stride,
                          int64_t element_bytes, bool is_result, bool may_accumulate) {
  TilePlanTensor tensor;
  if (const auto layout = LayoutInPlace(rows, columns, stride); layout.has_value()) {
    tensor.layout = *layout;
    return tensor;
  }
  constexpr int64_t kAlignment = 64;
  tensor.is_packed = true;
  tensor.layout.is_column_major = SmallestStride(rows, stride) < SmallestStride(columns, stride);
  const int64_t bytes = rows.full * columns.full * element_bytes;
  tensor.scratch_bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  for (const bool row_tail : {false, true}) {
    for (const bool column_tail : {false, true}) {
      if ((row_tail && rows.tail == rows.full) || (column_tail && columns.tail == columns.full)) {
        continue;
      }
      std::vector<CopyLoop> loops = PackingLoops(rows.Inner(row_tail), columns.Inner(column_tail),
                                                 tensor.layout.is_column_major, stride);
      if (!is_result || may_accumulate) {
        (is_result ? tensor.fetches : tensor.copies)[row_tail][column_tail] =
            StridedCopy(loops, element_bytes);
      }
      if (is_result) {
        for (CopyLoop& loop : loops) std::swap(loop.source, loop.target);
        tensor.copies[row_tail][column_tail] = StridedCopy(loops, element_bytes);
      }
    }
  }
  return tensor;
}

TilePlan MakePlan(const StepView& step, const TileAxis& m, const TileAxis& n, const TileAxis& k) {
  TilePlan plan;
  plan.batch = NestedLoops({step.batch.begin(), step.batch.end()}, NestBy::kC);
  plan.n_batch = LoopCount(plan.batch);
  plan.m = m;
  plan.n = n;
  plan.k = k;
  const int64_t bytes = step.element_bytes();
  plan.a = PlanTensor(m, k, &tenon_mode::stride_a, bytes, false, false);
  plan.b = PlanTensor(k, n, &tenon_mode::stride_b, bytes, false, false);
  plan.c = PlanTensor(m, n, &tenon_mode::stride_c, bytes, true, step.may_accumulate);
  return plan;
}

struct Choice {
  TileAxis m, n, k;
  double cost = std::numeric_limits<double>::infinity();
};

// The cheapest combination, the first one of equals.
Choice CheapestChoice(const StepView& step, const Targets& targets) {
  Choice best;
  const auto ms = Candidates(step.m, NestBy::kC, NestBy::kA, targets.m);
  const auto ns = Candidates(step.n, NestBy::kC, NestBy::kB, targets.n);
  const auto ks = Candidates(step.k, NestBy::kA, NestBy::kB, targets.k);
  for (const TileAxis& m : ms) {
    for (const TileAxis& n : ns) {
      for (const TileAxis& k : ks) {
        const double cost = PlanCost(step, m, n, k);
        if (cost < best.cost) best = {m, n, k, cost};
        if (cost == 0) return best;
      }
    }
  }
  return best;
}

}  // namespace

std::string TilePlan::Describe() const {
  return StrCat("tile ", m.full, " x ", n.full, " x ", k.full, " of ", n_batch, " x ", m.tiles,
                " x ", n.tiles, " x ", k.tiles, a.is_packed ? " pack A" : "",
                b.is_packed ? " pack B" : "", c.is_packed ? " pack C" : "");
}

std::optional<TilePlan> PlanTilesInPlace(const StepView& step) {
  const Choice choice = CheapestChoice(step, TargetsOf(step, /*is_packed=*/false));
  if (choice.cost > 0) return std::nullopt;
  return MakePlan(step, choice.m, choice.n, choice.k);
}

TilePlan PlanPackedTiles(const StepView& step) {
  const Choice choice = CheapestChoice(step, TargetsOf(step, /*is_packed=*/true));
  return MakePlan(step, choice.m, choice.n, choice.k);
}

}  // namespace tenon::cpu
