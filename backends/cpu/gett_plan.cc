#include "backends/cpu/gett_plan.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <utility>

#include "backends/core/strings.h"
#include "backends/cpu/cache_sizes.h"
#include "backends/cpu/gett_cost.h"
#include "backends/cpu/gett_traffic.h"

namespace tenon::cpu {
namespace {

// Lengths of tiles. A block of vectors times the depth stays in the first cache; packed tiles stay
// in the second one; large work is cut into enough tiles for many threads.
struct Targets {
  int64_t items, rows, columns, depth;
};

// Bytes of packed operands and results that the second cache is trusted to hold.
constexpr int64_t kPanelBytes = int64_t{256} << 10;

// Halves the longer side until there are enough tiles or they are small.
void CutForThreads(const GettRoles& roles, Targets& targets) {
  constexpr double kEnoughTiles = 16, kFewTiles = 4, kTileWork = 1e6;
  constexpr int64_t kLongSide = 256;  // below it, packing again for every tile costs too much
  const auto count = [](int64_t size, int64_t target) {
    return static_cast<double>((size + target - 1) / target);
  };
  while (true) {
    const double tiles = static_cast<double>(roles.items) * count(roles.n_rows, targets.rows) *
                         count(roles.n_columns, targets.columns);
    const double work = static_cast<double>(targets.rows) * static_cast<double>(targets.columns) *
                        static_cast<double>(roles.n_depth) * roles.parts;
    if (tiles >= kEnoughTiles || work <= kTileWork) return;
    int64_t& longer = targets.columns >= 2 * targets.rows ? targets.columns : targets.rows;
    if (longer < 8 * roles.vector) return;
    if (targets.depth < roles.n_depth && tiles >= kFewTiles && longer <= kLongSide) return;
    longer /= 2;
  }
}

Targets TargetsOf(const GettRoles& roles) {
  constexpr int64_t kDepth = 128, kSmallestDepth = 32, kUncut = 192, kMostRows = 512,
                    kMostColumns = 4096;
  Targets targets{};
  const int64_t longest = roles.n_depth <= kUncut ? kUncut : kDepth + kSmallestDepth;
  const int64_t pieces = (roles.n_depth + longest - 1) / longest;
  targets.depth = (roles.n_depth + pieces - 1) / pieces;
  const int64_t panel = kPanelBytes / roles.element_bytes;
  targets.rows = std::min(std::max<int64_t>(panel / targets.depth, 64), kMostRows);
  targets.rows = std::min(roles.n_rows, targets.rows);
  // Over a long depth operands are packed again for every tile, so tiles are larger.
  const int64_t wide = pieces > 1 ? 2 * panel : panel;
  int64_t beside = pieces > 1 ? targets.depth : std::max(targets.depth, targets.rows);
  if (roles.is_across) {  // every column has its own S, and all items should fit beside it
    beside = targets.rows * targets.depth +
             std::min<int64_t>(roles.items, 64) * (targets.rows + targets.depth);
  }
  targets.columns =
      std::clamp(wide / beside, (roles.is_across ? 1 : 8) * roles.vector, kMostColumns);
  targets.columns = std::min(targets.columns, roles.n_columns);
  CutForThreads(roles, targets);
  targets.items = 1;
  if (targets.rows == roles.n_rows && targets.columns == roles.n_columns &&
      targets.depth == roles.n_depth) {
    const int64_t item = (roles.is_across ? 0 : roles.n_rows * roles.n_depth) +
                         roles.n_depth * roles.n_columns + roles.n_rows * roles.n_columns;
    targets.items = std::clamp<int64_t>(panel / item, 1, 512);
  } else if (roles.is_across && targets.rows == roles.n_rows && targets.depth == roles.n_depth) {
    targets.items = std::min<int64_t>(roles.items, 64);
  }
  return targets;
}

// All ways worth trying to cut the columns.
std::vector<TileAxis> ColumnCandidates(const GettRoles& roles, int64_t target) {
  constexpr int kAll = std::numeric_limits<int>::max();
  std::vector<TileAxis> axes = {
      CutAxis(roles.columns, {NestBy::kC, NestBy::kB, false, kAll}, target)};
  if (axes[0].inner.size() <= 1 && axes[0].outer.size() <= 1) return axes;
  axes.push_back(CutAxis(roles.columns, {NestBy::kB, NestBy::kC, false, kAll}, target));
  axes.push_back(CutAxis(roles.columns, {NestBy::kC, NestBy::kB, true, kAll}, target));
  axes.push_back(CutAxis(roles.columns, {NestBy::kB, NestBy::kC, true, kAll}, target));
  return axes;
}

// For large steps one loop alone too, where S walks with one stride and needs no packing.
void AddLoneLoops(const GettRoles& roles, const std::vector<tenon_mode>& group, NestBy other,
                  int64_t target, std::vector<TileAxis>& axes) {
  constexpr double kLargeWork = 1e7;
  constexpr int64_t kShortest = 32;
  const double work = static_cast<double>(roles.items) * static_cast<double>(roles.n_rows) *
                      static_cast<double>(roles.n_columns) * static_cast<double>(roles.n_depth);
  if (work < kLargeWork || TileStride(axes[0], kS).has_value()) return;
  const TileAxis alone = CutAxis(group, {NestBy::kA, other, false, 1}, target);
  if (alone.full >= kShortest) axes.push_back(alone);
}

std::vector<TileAxis> RowCandidates(const GettRoles& roles, int64_t target) {
  constexpr int kAll = std::numeric_limits<int>::max();
  std::vector<TileAxis> axes = {CutAxis(roles.rows, {NestBy::kC, NestBy::kA, false, kAll}, target)};
  AddLoneLoops(roles, roles.rows, NestBy::kC, target, axes);
  if (axes[0].outer.empty()) return axes;  // one tile: the order inside it matters little
  axes.push_back(CutAxis(roles.rows, {NestBy::kA, NestBy::kC, false, kAll}, target));
  axes.push_back(CutAxis(roles.rows, {NestBy::kC, NestBy::kA, true, kAll}, target));
  return axes;
}

std::vector<TileAxis> DepthCandidates(const GettRoles& roles, int64_t target) {
  constexpr int kAll = std::numeric_limits<int>::max();
  std::vector<TileAxis> axes = {
      CutAxis(roles.depth, {NestBy::kB, NestBy::kA, false, kAll}, target)};
  AddLoneLoops(roles, roles.depth, NestBy::kB, target, axes);
  if (axes[0].outer.empty()) return axes;
  axes.push_back(CutAxis(roles.depth, {NestBy::kA, NestBy::kB, false, kAll}, target));
  axes.push_back(CutAxis(roles.depth, {NestBy::kB, NestBy::kA, true, kAll}, target));
  return axes;
}

// The cheapest combination of cuts, the first one of equals; nothing is tabulated yet.
GettPlan CheapestCuts(const GettRoles& roles) {
  constexpr int kAll = std::numeric_limits<int>::max();
  const Targets targets = TargetsOf(roles);
  GettPlan best;
  best.seconds = std::numeric_limits<double>::infinity();
  const auto rows = RowCandidates(roles, targets.rows);
  auto columns = ColumnCandidates(roles, targets.columns);
  constexpr int64_t kSmaller = 8;  // tiles that share cache lines may stay in the caches together
  if (IsFar(roles) && targets.columns >= 4 * kSmaller * roles.vector) {
    const auto smaller = ColumnCandidates(roles, targets.columns / kSmaller);
    columns.insert(columns.end(), smaller.begin(), smaller.end());
  }
  const auto depths = DepthCandidates(roles, targets.depth);
  GettPlan plan;
  plan.batch = CutAxis(roles.batch, {NestBy::kC, NestBy::kB, false, kAll}, targets.items);
  // Elsewhere another order of tiles has nothing to gain.
  const bool may_be_near = IsFar(roles) || roles.is_across;
  for (const TileAxis& row : rows) {
    for (const TileAxis& column : columns) {
      plan.rows = row;
      plan.columns = column;
      for (const bool near_first : {false, true}) {
        if (near_first && !may_be_near) break;
        if (!OrderTiles(roles, near_first, plan)) continue;
        for (const TileAxis& depth : depths) {
          plan.depth = depth;
          EvaluateCuts(roles, plan);
          if (plan.seconds < best.seconds) best = plan;
        }
      }
    }
  }
  return best;
}

std::vector<int64_t> Multiples(int64_t count, int64_t step) {
  std::vector<int64_t> multiples(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) multiples[static_cast<size_t>(i)] = i * step;
  return multiples;
}

// Offsets of the vectors of runs of `run` columns: the whole ones of all runs first, then the
// partial ones. Loops inside a run are contiguous.
std::vector<int64_t> VectorPositions(std::vector<tenon_mode> loops, GettStride stride, int64_t run,
                                     int64_t vector) {
  for (int64_t inside = 1; inside < run;) {
    inside *= loops.back().extent;
    loops.pop_back();
  }
  const std::vector<int64_t> runs = Positions(loops, stride);
  std::vector<int64_t> positions;
  for (const int64_t base : runs) {
    for (int64_t i = 0; i + vector <= run; i += vector) positions.push_back(base + i);
  }
  if (run % vector == 0) return positions;
  for (const int64_t base : runs) positions.push_back(base + run / vector * vector);
  return positions;
}

// The same for a tile whose columns lie side by side.
std::vector<int64_t> PackedVectorPositions(int64_t columns, int64_t run, int64_t vector) {
  tenon_mode runs{};
  runs.extent = columns / run;
  runs.stride_c = run;
  tenon_mode inside{};
  inside.extent = run;
  inside.stride_c = 1;
  return VectorPositions({runs, inside}, kC, run, vector);
}

int64_t RoundUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The loops of a copy between a tensor's tile and its packed form.
void AppendLoops(const std::vector<tenon_mode>& modes, GettStride stride, int64_t packed,
                 std::vector<CopyLoop>& loops) {
  for (size_t i = modes.size(); i-- > 0;) {
    loops.push_back({modes[i].extent, modes[i].*stride, packed});
    packed *= modes[i].extent;
  }
}

// An axis of a tile and its stride in the packed form.
struct PackedAxis {
  const TileAxis& axis;
  int64_t stride;
};

// Fills in the copies of a packed tensor with these axes, outermost first.
void PlanCopies(const PackedAxis (&axes)[3], GettStride stride, const GettRoles& roles,
                bool is_result, GettTensor& tensor) {
  for (int tails = 0; tails < 8; ++tails) {
    std::vector<CopyLoop> loops;
    bool exists = true;
    for (int i = 3; i-- > 0;) {
      const bool is_tail = (tails >> (2 - i) & 1) != 0;
      exists = exists && (!is_tail || axes[i].axis.tail != axes[i].axis.full);
      AppendLoops(axes[i].axis.Inner(is_tail), stride, axes[i].stride, loops);
    }
    if (!exists) continue;
    if (!is_result || roles.may_accumulate) {
      (is_result ? tensor.fetches : tensor.copies)[tails] = StridedCopy(loops, roles.element_bytes);
    }
    if (!is_result) continue;
    for (CopyLoop& loop : loops) std::swap(loop.source, loop.target);
    tensor.copies[tails] = StridedCopy(loops, roles.element_bytes);
  }
}

// Packs a tensor with the items of a tile one after the other.
void PackItems(const GettPlan& plan, const TileAxis& first, const TileAxis& second,
               int64_t item_elements, GettStride stride, const GettRoles& roles, bool is_result,
               GettTensor& tensor) {
  tensor.item = Multiples(plan.batch.full, item_elements);
  tensor.tile_bytes = RoundUp(plan.batch.full * item_elements * roles.element_bytes);
  PlanCopies({{plan.batch, item_elements}, {first, tensor.first}, {second, tensor.second}}, stride,
             roles, is_result, tensor);
}

// A row length that is whole vectors, an odd number of them, so that rows spread over the caches.
int64_t Padded(int64_t elements, int64_t vector) {
  if (elements <= vector) return vector;
  return ((elements + vector - 1) / vector | 1) * vector;
}

// Offsets of a tile's vectors, or of their pieces.
std::vector<int64_t> TileVectors(const GettPlan& plan, const GettTensor& tensor, GettStride stride,
                                 int64_t vector, bool tail) {
  vector /= plan.pieces;
  const int64_t run = RunOf(plan, plan.is_across, tail);
  if (tensor.is_packed) {
    return PackedVectorPositions(tail ? plan.columns.tail : plan.columns.full, run, vector);
  }
  return VectorPositions(plan.columns.Inner(tail), stride, run, vector);
}

// S with columns: rows, depths and columns of a tile in this order.
void PlanAcrossS(const GettRoles& roles, GettPlan& plan) {
  for (const bool tail : {false, true}) {
    plan.s_vector[tail] = TileVectors(plan, plan.s, kS, roles.vector, tail);
    if (plan.columns.tail == plan.columns.full) break;
  }
  plan.s.item.assign(static_cast<size_t>(plan.batch.full), 0);
  if (!plan.s.is_packed) return;
  const int64_t leading = Padded(plan.columns.full, roles.vector);
  plan.s.first = plan.depth.full * leading;
  plan.s.second = leading;
  plan.s.tile_bytes = RoundUp(plan.rows.full * plan.s.first * roles.element_bytes);
  PlanCopies({{plan.rows, plan.s.first}, {plan.depth, plan.s.second}, {plan.columns, 1}}, kS, roles,
             /*is_result=*/false, plan.s);
}

void PlanS(const GettRoles& roles, GettPlan& plan) {
  if (roles.is_across) return PlanAcrossS(roles, plan);
  if (!plan.s.is_packed) {
    plan.s.item = Positions(plan.batch.inner, kS);
    return;
  }
  const auto smallest = [](const TileAxis& axis) {
    int64_t stride = std::numeric_limits<int64_t>::max();
    for (const tenon_mode& mode : axis.inner) stride = std::min(stride, mode.*kS);
    return stride;
  };
  const bool rows_inside = smallest(plan.rows) < smallest(plan.depth);
  plan.s.first = rows_inside ? 1 : plan.depth.full;
  plan.s.second = rows_inside ? plan.rows.full : 1;
  PackItems(plan, plan.rows, plan.depth, plan.rows.full * plan.depth.full, kS, roles, false,
            plan.s);
}

void PlanV(const GettRoles& roles, GettPlan& plan) {
  const int64_t leading = Padded(plan.columns.full, roles.vector);
  for (const bool tail : {false, true}) {
    plan.v_depth[tail] = plan.v.is_packed
                             ? Multiples(tail ? plan.depth.tail : plan.depth.full, leading)
                             : Positions(plan.depth.Inner(tail), kV);
    plan.v_vector[tail] = TileVectors(plan, plan.v, kV, roles.vector, tail);
    if (plan.depth.tail == plan.depth.full && plan.columns.tail == plan.columns.full) break;
  }
  if (!plan.v.is_packed) {
    plan.v.item = Positions(plan.batch.inner, kV);
    return;
  }
  plan.v.first = leading;
  PackItems(plan, plan.depth, plan.columns, plan.depth.full * leading, kV, roles, false, plan.v);
  if (KeepsAllDepths(roles, plan)) plan.v.slots = plan.depth.tiles;
}

void PlanC(const GettRoles& roles, GettPlan& plan) {
  const int64_t leading = Padded(plan.columns.full, roles.vector);
  for (const bool tail : {false, true}) {
    plan.c_row[tail] = plan.c.is_packed ? Multiples(tail ? plan.rows.tail : plan.rows.full, leading)
                                        : Positions(plan.rows.Inner(tail), kC);
    plan.c_vector[tail] = TileVectors(plan, plan.c, kC, roles.vector, tail);
    const int64_t columns = tail ? plan.columns.tail : plan.columns.full;
    const int64_t run = RunOf(plan, plan.is_across, tail);
    plan.whole_vectors[tail] =
        plan.pieces > 1 ? columns / roles.vector : columns / run * (run / roles.vector);
    plan.partial_elements[tail] = plan.pieces > 1 ? 0 : run % roles.vector;
    if (plan.rows.tail == plan.rows.full && plan.columns.tail == plan.columns.full) break;
  }
  if (!plan.c.is_packed) {
    plan.c.item = Positions(plan.batch.inner, kC);
    return;
  }
  plan.c.first = leading;
  PackItems(plan, plan.rows, plan.columns, plan.rows.full * leading, kC, roles, true, plan.c);
}

// Whether every vector of C starts at a multiple of the vector length and is whole.
bool HasWholeVectors(const GettRoles& roles, const GettPlan& plan) {
  if (plan.pieces > 1) return false;
  if (plan.partial_elements[0] != 0 || plan.partial_elements[1] != 0) return false;
  const auto is_aligned = [&](int64_t offset) { return offset % roles.vector == 0; };
  for (const std::vector<int64_t>* offsets :
       {&plan.c_vector[0], &plan.c_vector[1], &plan.c_row[0], &plan.c_row[1], &plan.c.item}) {
    if (!std::all_of(offsets->begin(), offsets->end(), is_aligned)) return false;
  }
  for (const TileAxis* axis : {&plan.batch, &plan.rows, &plan.columns}) {
    if (!std::all_of(axis->outer.begin(), axis->outer.end(),
                     [&](const tenon_mode& mode) { return is_aligned(mode.stride_c); })) {
      return false;
    }
  }
  return true;
}

// The cache lines of a tile of a tensor too large for the caches, `axes` those that it has.
std::vector<int64_t> LinesOf(std::initializer_list<const TileAxis*> axes, GettStride stride,
                             int64_t elements, int64_t element_bytes) {
  constexpr int64_t kLine = kCacheLineBytes, kMostLines = 1 << 14;
  int64_t tiles = 1;
  std::vector<tenon_mode> loops;
  for (const TileAxis* axis : axes) {
    tiles *= axis->tiles;
    loops.insert(loops.end(), axis->inner.begin(), axis->inner.end());
  }
  if (tiles == 1 || elements * element_bytes < kNearBytes) return {};
  for (tenon_mode& loop : loops) {
    const int64_t step = loop.*stride * element_bytes;
    if (step == 0) {
      loop.extent = 1;
    } else if (step < kLine) {  // as many steps at once as stay in a line
      const int64_t together = std::max<int64_t>(kLine / step, 1);
      loop.extent = (loop.extent + together - 1) / together;
      loop.*stride *= together;
    }
  }
  if (LoopCount(loops) > kMostLines) return {};
  std::vector<int64_t> lines = Positions(loops, stride);
  for (int64_t& line : lines) line = line * element_bytes / kLine * kLine;
  std::sort(lines.begin(), lines.end());
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  return lines;
}

void PlanLines(const GettRoles& roles, GettPlan& plan) {
  const int64_t size = roles.element_bytes;
  const int64_t across = roles.is_across ? roles.n_columns : roles.items;  // size of the batch
  const int64_t rows = roles.n_rows, depth = roles.n_depth;
  const int64_t columns = roles.is_across ? roles.items : roles.n_columns;
  if (roles.is_across) {
    plan.s.lines =
        LinesOf({&plan.rows, &plan.depth, &plan.columns}, kS, across * rows * depth, size);
  } else {
    plan.s.lines = LinesOf({&plan.batch, &plan.rows, &plan.depth}, kS, across * rows * depth, size);
  }
  plan.v.lines =
      LinesOf({&plan.batch, &plan.depth, &plan.columns}, kV, across * columns * depth, size);
}

bool MayStream(const GettRoles& roles, const GettPlan& plan) {
  const double bytes = static_cast<double>(roles.items) * static_cast<double>(roles.n_rows) *
                       static_cast<double>(roles.n_columns) *
                       static_cast<double>(roles.element_bytes);
  return bytes >= kStreamedBytes && !plan.c.is_packed && plan.depth.tiles == 1 &&
         HasWholeVectors(roles, plan);
}

}  // namespace

std::string GettPlan::Describe() const {
  return StrCat("tile ", batch.full, " x ", rows.full, " x ", columns.full, " x ", depth.full,
                " of ", batch.tiles, " x ", rows.tiles, " x ", columns.tiles, " x ", depth.tiles,
                is_across ? " across the batch" : "",
                is_swapped ? " vectors of A" : " vectors of B",
                pieces > 1 ? StrCat(" in ", pieces, " pieces") : "", s.is_packed ? " pack S" : "",
                v.is_packed ? " pack V" : "", c.is_packed ? " pack C" : "");
}

GettPlan PlanGett(const StepView& step) {
  GettPlan plan;
  plan.seconds = std::numeric_limits<double>::infinity();
  GettRoles roles;
  for (const bool is_across : {false, true}) {
    if (is_across && step.batch_size == 1) break;
    for (const bool is_swapped : {false, true}) {
      GettRoles candidate = RolesOf(step, is_swapped, is_across);
      GettPlan cheapest = CheapestCuts(candidate);
      if (cheapest.seconds >= plan.seconds) continue;
      plan = std::move(cheapest);
      plan.is_swapped = is_swapped;
      plan.is_across = is_across;
      roles = std::move(candidate);
    }
  }
  PlanS(roles, plan);
  PlanV(roles, plan);
  PlanC(roles, plan);
  plan.may_stream = MayStream(roles, plan);
  PlanLines(roles, plan);
  return plan;
}

}  // namespace tenon::cpu
