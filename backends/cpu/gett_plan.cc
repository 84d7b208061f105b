#include "backends/cpu/gett_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backends/core/strings.h"
#include "backends/cpu/product_kernels.h"

namespace tenon::cpu {
namespace {

using Stride = int64_t tenon_mode::*;
constexpr Stride kS = &tenon_mode::stride_a, kV = &tenon_mode::stride_b, kC = &tenon_mode::stride_c;

// A step in the roles of the kernel.
struct Roles {
  std::vector<tenon_mode> batch, rows, columns, depth;
  int64_t items = 1, n_rows = 1, n_columns = 1, n_depth = 1;
  int64_t element_bytes = 0, vector = 1;
  int parts = 1;
  bool may_accumulate = false;
  bool is_across = false;
};

std::vector<tenon_mode> Swapped(Modes modes) {
  std::vector<tenon_mode> swapped(modes.begin(), modes.end());
  for (tenon_mode& mode : swapped) std::swap(mode.stride_a, mode.stride_b);
  return swapped;
}

Roles RolesOf(const StepView& step, bool is_swapped, bool is_across) {
  const auto take = [is_swapped](Modes modes) {
    return is_swapped ? Swapped(modes) : std::vector<tenon_mode>(modes.begin(), modes.end());
  };
  Roles roles;
  roles.is_across = is_across;
  roles.batch = take(step.batch);
  roles.rows = take(is_swapped ? step.n : step.m);
  roles.columns = take(is_swapped ? step.m : step.n);
  roles.depth = take(step.k);
  roles.items = step.batch_size;
  roles.n_rows = is_swapped ? step.n_size : step.m_size;
  roles.n_columns = is_swapped ? step.m_size : step.n_size;
  roles.n_depth = step.k_size;
  if (is_across) {
    roles.batch.swap(roles.columns);
    std::swap(roles.items, roles.n_columns);
  }
  roles.element_bytes = step.element_bytes();
  roles.parts = step.is_complex() ? 2 : 1;
  roles.may_accumulate = step.may_accumulate;
  roles.vector = DispatchDType(
      step.dtype, [](auto type) { return VectorElements<typename decltype(type)::type>(); });
  return roles;
}

// Lengths of tiles. A block of vectors times the depth stays in the first cache; packed tiles stay
// in the second one; large work is cut into enough tiles for many threads.
struct Targets {
  int64_t items, rows, columns, depth;
};

// Bytes of packed operands and results that the second cache is trusted to hold.
constexpr int64_t kPanelBytes = 256 * 1024;

// Halves the longer side until there are enough tiles or they are small.
void CutForThreads(const Roles& roles, Targets& targets) {
  constexpr double kEnoughTiles = 16, kTileWork = 8e6;
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
    longer /= 2;
  }
}

Targets TargetsOf(const Roles& roles) {
  constexpr int64_t kDepth = 128, kSmallestDepth = 32, kMostRows = 512, kMostColumns = 4096;
  Targets targets{};
  const int64_t pieces = (roles.n_depth + kDepth + kSmallestDepth - 1) / (kDepth + kSmallestDepth);
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

// Elements of nested loops, from the innermost one on, that lie side by side in a tensor.
int64_t InnermostRun(const std::vector<tenon_mode>& loops, Stride stride) {
  int64_t run = 1;
  for (size_t i = loops.size(); i-- > 0;) {
    if (loops[i].extent == 1) continue;
    if (loops[i].*stride != run) break;
    run *= loops[i].extent;
  }
  return run;
}

// How the columns of a tile, long or short, fall into vectors: runs that are contiguous in every
// tensor that is not packed, each of whole vectors and at most one partial one.
int64_t RunOf(const GettPlan& plan, bool is_across, bool tail) {
  const std::vector<tenon_mode> loops = plan.columns.Inner(tail);
  int64_t run = tail ? plan.columns.tail : plan.columns.full;
  if (is_across && !plan.s.is_packed) run = std::min(run, InnermostRun(loops, kS));
  if (!plan.v.is_packed) run = std::min(run, InnermostRun(loops, kV));
  if (!plan.c.is_packed) run = std::min(run, InnermostRun(loops, kC));
  return run;
}

constexpr int kMostPieces = 4;

// Whether vectors along the axis lie in one piece in a tensor, in all tiles, without too many
// partial ones; or, where `pieces` are allowed, in as many equal ones.
bool HasVectors(const TileAxis& axis, Stride stride, int64_t vector, int pieces = 1) {
  const bool is_whole = axis.full % vector == 0 && axis.tail % vector == 0;
  for (const bool tail : {false, true}) {
    if (tail && axis.tail == axis.full) break;
    const int64_t length = tail ? axis.tail : axis.full;
    const int64_t run = InnermostRun(axis.Inner(tail), stride);
    const bool in_pieces = is_whole && vector % pieces == 0 && run % (vector / pieces) == 0;
    if (run != length && !in_pieces && run < 2 * vector) return false;
  }
  return true;
}

// Pieces that the vectors of a plan are made of: the fewest that come out even.
int PiecesOf(const Roles& roles, const GettPlan& plan) {
  if (roles.is_across || plan.columns.full % roles.vector != 0 ||
      plan.columns.tail % roles.vector != 0) {
    return 1;
  }
  for (int pieces = 1; pieces <= kMostPieces && roles.vector % pieces == 0; pieces *= 2) {
    const int64_t piece = roles.vector / pieces;
    if (RunOf(plan, false, false) % piece == 0 && RunOf(plan, false, true) % piece == 0) {
      return pieces;
    }
  }
  return 1;
}

// Cache lines that a box of loops touches, per element.
double LinesPerElement(const TileAxis& x, const TileAxis& y, Stride stride, int64_t element_bytes) {
  constexpr double kLineBytes = 64;
  std::vector<tenon_mode> loops = x.inner;
  loops.insert(loops.end(), y.inner.begin(), y.inner.end());
  std::sort(loops.begin(), loops.end(),
            [stride](const tenon_mode& p, const tenon_mode& q) { return p.*stride < q.*stride; });
  double lines = 1, elements = 1;
  auto reach = static_cast<double>(element_bytes);  // bytes from the first element to the last
  for (const tenon_mode& loop : loops) {
    const auto extent = static_cast<double>(loop.extent);
    const double step = static_cast<double>(loop.*stride * element_bytes);
    const double wider = reach + (extent - 1) * step;
    lines *= step >= kLineBytes ? extent : std::max(1.0, wider / std::max(reach, kLineBytes));
    reach = wider;
    elements *= extent;
  }
  return lines / elements;
}

// Rates of one core, in bytes per nanosecond that are read and written once each.
struct Rates {
  double copy = 14, transpose = 9;
  double product = 0.22;  // nanoseconds of a multiply-add of one vector
  double finish = 2.0;    // of a vector of results
  double partial = 1.4;   // whole vectors that take as long as a partial one, which is alone
  double piece = 0.35;    // for each of a vector's pieces
  double tile = 80, item = 12;
};

// Nanoseconds for packing (or unpacking) `elements` of tiles. A line that is used in part still
// moves whole.
double PackingCost(const TileAxis& first, const TileAxis& second, Stride stride, double elements,
                   int64_t element_bytes, bool is_copy) {
  constexpr double kLineBytes = 64;
  const Rates rates;
  const double bytes = std::max(static_cast<double>(element_bytes),
                                kLineBytes * LinesPerElement(first, second, stride, element_bytes));
  return elements * bytes / (is_copy ? rates.copy : rates.transpose);
}

double ProductCost(const Roles& roles, const GettPlan& plan) {
  const Rates rates;
  const int64_t run = RunOf(plan, roles.is_across, false);
  // Partial vectors are taken one by one.
  const double vectors =
      plan.pieces > 1 ? static_cast<double>(plan.columns.tiles * (plan.columns.full / roles.vector))
                      : static_cast<double>(plan.columns.tiles * (plan.columns.full / run)) *
                            (static_cast<double>(run / roles.vector) +
                             (run % roles.vector == 0 ? 0 : rates.partial));
  const auto rows = static_cast<double>(roles.n_rows), depth = static_cast<double>(roles.n_depth);
  // With few rows the loads of V are what takes the time.
  const double busy = roles.is_across
                          ? rows * roles.parts * 1.3 + 1
                          : std::max(rows * roles.parts, std::min(rows * roles.parts + 2, 4.0));
  const auto items = static_cast<double>(roles.items);
  return items *
             (vectors * depth * busy * rates.product +
              vectors * rows * static_cast<double>(plan.depth.tiles) * rates.finish + rates.item) +
         static_cast<double>(plan.n_tiles()) * rates.tile;
}

// Large strides that are multiples of a power of two evict each other from the caches.
bool IsHarmful(int64_t stride, int64_t element_bytes) {
  return stride * element_bytes >= 2048 && stride * element_bytes % 1024 == 0;
}

// Vectors are put together again for every block of rows, so with many of them packing is cheaper.
int MostPieces(const Roles& roles) {
  return roles.is_across || roles.n_rows * roles.parts > 16 ? 1 : kMostPieces;
}

void PlaceS(const Roles& roles, GettPlan& plan) {
  const auto row = TileStride(plan.rows, kS), depth = TileStride(plan.depth, kS);
  plan.s.is_packed = !row.has_value() || !depth.has_value();
  if (roles.is_across) {
    const bool is_reused = roles.items >= 4 && roles.n_rows * roles.n_depth >= 16;
    plan.s.is_packed = plan.s.is_packed || !HasVectors(plan.columns, kS, roles.vector) ||
                       (is_reused && (IsHarmful(*row, roles.element_bytes) ||
                                      IsHarmful(*depth, roles.element_bytes)));
  } else if (!plan.s.is_packed) {
    // Terms that lie far apart are fetched one by one.
    const bool is_scattered =
        *depth * roles.element_bytes >= 1024 && plan.columns.full >= 4 * roles.vector;
    plan.s.is_packed = plan.depth.full > 8 && is_scattered;
  }
  if (!plan.s.is_packed) {
    plan.s.first = *row;
    plan.s.second = *depth;
  }
}

void PlaceV(const Roles& roles, GettPlan& plan) {
  const int pieces = MostPieces(roles);
  plan.v.is_packed = !HasVectors(plan.columns, kV, roles.vector, pieces);
  if (plan.v.is_packed || roles.n_rows <= 16 / roles.parts || plan.depth.full <= 8) return;
  // Used by several blocks of rows: the first cache must hold the vectors of all depths.
  for (const tenon_mode& mode : plan.depth.inner) {
    if (IsHarmful(mode.stride_b, roles.element_bytes)) plan.v.is_packed = true;
  }
}

// Decides what is packed and predicts the time.
void Evaluate(const Roles& roles, GettPlan& plan) {
  PlaceS(roles, plan);
  PlaceV(roles, plan);
  plan.c.is_packed = !HasVectors(plan.columns, kC, roles.vector, MostPieces(roles));
  plan.pieces = PiecesOf(roles, plan);
  const auto items = static_cast<double>(roles.items), rows = static_cast<double>(roles.n_rows),
             columns = static_cast<double>(roles.n_columns),
             depth = static_cast<double>(roles.n_depth);
  const double s_repeats =
      plan.depth.tiles > 1 || plan.rows.tiles > 1 ? static_cast<double>(plan.columns.tiles) : 1;
  const double v_repeats = plan.depth.tiles > 1 ? static_cast<double>(plan.rows.tiles) : 1;
  plan.seconds = ProductCost(roles, plan);
  if (plan.s.is_packed && roles.is_across) {
    const double repeats =
        plan.depth.tiles > 1 || plan.rows.tiles > 1 ? static_cast<double>(plan.batch.tiles) : 1;
    plan.seconds += PackingCost(plan.rows, plan.columns, kS, columns * rows * depth * repeats,
                                roles.element_bytes, HasVectors(plan.columns, kS, roles.vector));
  } else if (plan.s.is_packed) {
    plan.seconds += PackingCost(plan.rows, plan.depth, kS, items * rows * depth * s_repeats,
                                roles.element_bytes, false);
  }
  if (plan.v.is_packed) {
    plan.seconds += PackingCost(plan.depth, plan.columns, kV, items * columns * depth * v_repeats,
                                roles.element_bytes, HasVectors(plan.columns, kV, roles.vector));
  }
  if (plan.c.is_packed) {
    plan.seconds += PackingCost(plan.rows, plan.columns, kC,
                                items * rows * columns * (roles.may_accumulate ? 2 : 1),
                                roles.element_bytes, false);
  }
  plan.seconds *= 1e-9;
}

// All ways worth trying to cut the columns.
std::vector<TileAxis> ColumnCandidates(const Roles& roles, int64_t target) {
  constexpr int kAll = std::numeric_limits<int>::max();
  std::vector<TileAxis> axes = {
      CutAxis(roles.columns, {NestBy::kC, NestBy::kB, false, kAll}, target)};
  if (axes[0].inner.size() <= 1 && axes[0].outer.size() <= 1) return axes;
  axes.push_back(CutAxis(roles.columns, {NestBy::kB, NestBy::kC, false, kAll}, target));
  axes.push_back(CutAxis(roles.columns, {NestBy::kC, NestBy::kB, true, kAll}, target));
  axes.push_back(CutAxis(roles.columns, {NestBy::kB, NestBy::kC, true, kAll}, target));
  return axes;
}

std::vector<TileAxis> RowCandidates(const Roles& roles, int64_t target) {
  constexpr int kAll = std::numeric_limits<int>::max();
  std::vector<TileAxis> axes = {CutAxis(roles.rows, {NestBy::kC, NestBy::kA, false, kAll}, target)};
  if (axes[0].outer.empty()) return axes;  // one tile: the order inside it matters little
  axes.push_back(CutAxis(roles.rows, {NestBy::kA, NestBy::kC, false, kAll}, target));
  axes.push_back(CutAxis(roles.rows, {NestBy::kC, NestBy::kA, true, kAll}, target));
  return axes;
}

std::vector<TileAxis> DepthCandidates(const Roles& roles, int64_t target) {
  constexpr int kAll = std::numeric_limits<int>::max();
  std::vector<TileAxis> axes = {
      CutAxis(roles.depth, {NestBy::kB, NestBy::kA, false, kAll}, target)};
  if (axes[0].outer.empty()) return axes;
  axes.push_back(CutAxis(roles.depth, {NestBy::kA, NestBy::kB, false, kAll}, target));
  axes.push_back(CutAxis(roles.depth, {NestBy::kB, NestBy::kA, true, kAll}, target));
  return axes;
}

// The cheapest combination of cuts, the first one of equals; nothing is tabulated yet.
GettPlan CheapestCuts(const Roles& roles) {
  constexpr int kAll = std::numeric_limits<int>::max();
  const Targets targets = TargetsOf(roles);
  GettPlan best;
  best.seconds = std::numeric_limits<double>::infinity();
  const auto rows = RowCandidates(roles, targets.rows);
  const auto columns = ColumnCandidates(roles, targets.columns);
  const auto depths = DepthCandidates(roles, targets.depth);
  GettPlan plan;
  plan.batch = CutAxis(roles.batch, {NestBy::kC, NestBy::kB, false, kAll}, targets.items);
  for (const TileAxis& row : rows) {
    for (const TileAxis& column : columns) {
      for (const TileAxis& depth : depths) {
        plan.rows = row;
        plan.columns = column;
        plan.depth = depth;
        Evaluate(roles, plan);
        if (plan.seconds < best.seconds) best = plan;
      }
    }
  }
  return best;
}

// Offsets of all iterations of nested loops, the last one fastest.
std::vector<int64_t> Positions(const std::vector<tenon_mode>& loops, Stride stride) {
  std::vector<int64_t> positions = {0};
  for (const tenon_mode& loop : loops) {
    std::vector<int64_t> next;
    next.reserve(positions.size() * static_cast<size_t>(loop.extent));
    for (const int64_t base : positions) {
      for (int64_t i = 0; i < loop.extent; ++i) next.push_back(base + i * (loop.*stride));
    }
    positions = std::move(next);
  }
  return positions;
}

std::vector<int64_t> Multiples(int64_t count, int64_t step) {
  std::vector<int64_t> multiples(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) multiples[static_cast<size_t>(i)] = i * step;
  return multiples;
}

// Offsets of the vectors of runs of `run` columns: the whole ones of all runs first, then the
// partial ones. Loops inside a run are contiguous.
std::vector<int64_t> VectorPositions(std::vector<tenon_mode> loops, Stride stride, int64_t run,
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
void AppendLoops(const std::vector<tenon_mode>& modes, Stride stride, int64_t packed,
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
void PlanCopies(const PackedAxis (&axes)[3], Stride stride, const Roles& roles, bool is_result,
                GettTensor& tensor) {
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
               int64_t item_elements, Stride stride, const Roles& roles, bool is_result,
               GettTensor& tensor) {
  tensor.item = Multiples(plan.batch.full, item_elements);
  tensor.scratch_bytes = RoundUp(plan.batch.full * item_elements * roles.element_bytes);
  PlanCopies({{plan.batch, item_elements}, {first, tensor.first}, {second, tensor.second}}, stride,
             roles, is_result, tensor);
}

// A row length that is whole vectors, an odd number of them, so that rows spread over the caches.
int64_t Padded(int64_t elements, int64_t vector) {
  if (elements <= vector) return vector;
  return ((elements + vector - 1) / vector | 1) * vector;
}

// Offsets of a tile's vectors, or of their pieces.
std::vector<int64_t> TileVectors(const GettPlan& plan, const GettTensor& tensor, Stride stride,
                                 int64_t vector, bool tail) {
  vector /= plan.pieces;
  const int64_t run = RunOf(plan, plan.is_across, tail);
  if (tensor.is_packed) {
    return PackedVectorPositions(tail ? plan.columns.tail : plan.columns.full, run, vector);
  }
  return VectorPositions(plan.columns.Inner(tail), stride, run, vector);
}

// S with columns: rows, depths and columns of a tile in this order.
void PlanAcrossS(const Roles& roles, GettPlan& plan) {
  for (const bool tail : {false, true}) {
    plan.s_vector[tail] = TileVectors(plan, plan.s, kS, roles.vector, tail);
    if (plan.columns.tail == plan.columns.full) break;
  }
  plan.s.item.assign(static_cast<size_t>(plan.batch.full), 0);
  if (!plan.s.is_packed) return;
  const int64_t leading = Padded(plan.columns.full, roles.vector);
  plan.s.first = plan.depth.full * leading;
  plan.s.second = leading;
  plan.s.scratch_bytes = RoundUp(plan.rows.full * plan.s.first * roles.element_bytes);
  PlanCopies({{plan.rows, plan.s.first}, {plan.depth, plan.s.second}, {plan.columns, 1}}, kS, roles,
             /*is_result=*/false, plan.s);
}

void PlanS(const Roles& roles, GettPlan& plan) {
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

void PlanV(const Roles& roles, GettPlan& plan) {
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
}

void PlanC(const Roles& roles, GettPlan& plan) {
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
bool HasWholeVectors(const Roles& roles, const GettPlan& plan) {
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

bool MayStream(const Roles& roles, const GettPlan& plan) {
  constexpr double kLargeBytes = 64e6;
  const double bytes = static_cast<double>(roles.items) * static_cast<double>(roles.n_rows) *
                       static_cast<double>(roles.n_columns) *
                       static_cast<double>(roles.element_bytes);
  return bytes >= kLargeBytes && !plan.c.is_packed && plan.depth.tiles == 1 &&
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
  Roles roles;
  for (const bool is_across : {false, true}) {
    if (is_across && step.batch_size == 1) break;
    for (const bool is_swapped : {false, true}) {
      Roles candidate = RolesOf(step, is_swapped, is_across);
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
  return plan;
}

}  // namespace tenon::cpu
