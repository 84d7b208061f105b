#include "backends/cpu/gett_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backends/cpu/calibration.h"
#include "backends/cpu/gett_traffic.h"
#include "backends/cpu/product_kernels.h"

namespace tenon::cpu {
namespace {

std::vector<tenon_mode> Swapped(Modes modes) {
  std::vector<tenon_mode> swapped(modes.begin(), modes.end());
  for (tenon_mode& mode : swapped) std::swap(mode.stride_a, mode.stride_b);
  return swapped;
}

// Elements of nested loops, from the innermost one on, that lie side by side in a tensor.
int64_t InnermostRun(const std::vector<tenon_mode>& loops, GettStride stride) {
  int64_t run = 1;
  for (size_t i = loops.size(); i-- > 0;) {
    if (loops[i].extent == 1) continue;
    if (loops[i].*stride != run) break;
    run *= loops[i].extent;
  }
  return run;
}

constexpr int kMostPieces = 4;

// Whether vectors along the axis lie in one piece in a tensor, in all tiles, without too many
// partial ones; or, where `pieces` are allowed, in as many equal ones.
bool HasVectors(const TileAxis& axis, GettStride stride, int64_t vector, int pieces = 1) {
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
int PiecesOf(const GettRoles& roles, const GettPlan& plan) {
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
double LinesPerElement(const TileAxis& x, const TileAxis& y, GettStride stride,
                       int64_t element_bytes) {
  std::vector<tenon_mode> loops = x.inner;
  loops.insert(loops.end(), y.inner.begin(), y.inner.end());
  return LinesOfBox(loops, stride, element_bytes) / static_cast<double>(LoopCount(loops));
}

// Nanoseconds for packing (or unpacking) `elements` of tiles. A line that is used in part still
// moves whole.
double PackingCost(const TileAxis& first, const TileAxis& second, GettStride stride,
                   double elements, int64_t element_bytes, bool is_copy) {
  const Calibration::Copy& rates = MachineCalibration().copy;
  const double bytes = std::max(static_cast<double>(element_bytes),
                                kLineBytes * LinesPerElement(first, second, stride, element_bytes));
  const auto is_even = [](const TileAxis& axis) {
    return std::all_of(axis.inner.begin(), axis.inner.end(), [](const tenon_mode& mode) {
      constexpr int64_t kLong = 32;
      return (mode.extent & (mode.extent - 1)) == 0 || mode.extent >= kLong;
    });
  };
  const double transpose = is_even(first) && is_even(second) ? rates.transpose : rates.uneven;
  return elements * bytes / (is_copy ? rates.plain : transpose);
}

double ProductCost(const GettRoles& roles, const GettPlan& plan) {
  const Calibration::Product& rates = MachineCalibration().product;
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
  return items * (vectors * depth * busy * rates.multiply_add +
                  vectors * rows * static_cast<double>(plan.depth.tiles) * rates.finish +
                  vectors * (rows + depth) * static_cast<double>(plan.pieces - 1) * rates.piece +
                  rates.item) +
         static_cast<double>(plan.n_tiles()) * rates.tile;
}

// Large strides that are multiples of a power of two evict each other from the caches.
bool IsHarmful(int64_t stride, int64_t element_bytes) {
  return stride * element_bytes >= 2048 && stride * element_bytes % 1024 == 0;
}

// Vectors are put together again for every block of rows, so with many of them packing is cheaper.
int MostPieces(const GettRoles& roles) {
  return roles.is_across || roles.n_rows * roles.parts > 16 ? 1 : kMostPieces;
}

void PlaceS(const GettRoles& roles, GettPlan& plan) {
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

void PlaceV(const GettRoles& roles, GettPlan& plan) {
  const int pieces = MostPieces(roles);
  plan.v.is_packed = !HasVectors(plan.columns, kV, roles.vector, pieces);
  if (plan.v.is_packed || roles.n_rows <= 16 / roles.parts || plan.depth.full <= 8) return;
  // Used by several blocks of rows: the first cache must hold the vectors of all depths.
  for (const tenon_mode& mode : plan.depth.inner) {
    if (IsHarmful(mode.stride_b, roles.element_bytes)) plan.v.is_packed = true;
  }
}

}  // namespace

GettRoles RolesOf(const StepView& step, bool is_swapped, bool is_across) {
  const auto take = [is_swapped](Modes modes) {
    return is_swapped ? Swapped(modes) : std::vector<tenon_mode>(modes.begin(), modes.end());
  };
  GettRoles roles;
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

int64_t RunOf(const GettPlan& plan, bool is_across, bool tail) {
  const std::vector<tenon_mode> loops = plan.columns.Inner(tail);
  int64_t run = tail ? plan.columns.tail : plan.columns.full;
  if (is_across && !plan.s.is_packed) run = std::min(run, InnermostRun(loops, kS));
  if (!plan.v.is_packed) run = std::min(run, InnermostRun(loops, kV));
  if (!plan.c.is_packed) run = std::min(run, InnermostRun(loops, kC));
  return run;
}

bool KeepsAllDepths(const GettRoles& roles, const GettPlan& plan) {
  constexpr int64_t kMostBytes = 3 << 19;
  return plan.v.is_packed && plan.depth.tiles > 1 && plan.rows.tiles > 1 &&
         plan.batch.full * plan.columns.full * roles.n_depth * roles.element_bytes <= kMostBytes;
}

void EvaluateCuts(const GettRoles& roles, GettPlan& plan) {
  PlaceS(roles, plan);
  PlaceV(roles, plan);
  plan.c.is_packed = !HasVectors(plan.columns, kC, roles.vector, MostPieces(roles));
  plan.pieces = PiecesOf(roles, plan);
  const auto items = static_cast<double>(roles.items), rows = static_cast<double>(roles.n_rows),
             columns = static_cast<double>(roles.n_columns),
             depth = static_cast<double>(roles.n_depth);
  const double v_repeats = KeepsAllDepths(roles, plan) ? 1 : Repeats(plan, kV);
  plan.seconds = ProductCost(roles, plan) + WastedTraffic(roles, plan);
  if (plan.s.is_packed && roles.is_across) {
    plan.seconds +=
        PackingCost(plan.rows, plan.columns, kS, columns * rows * depth * Repeats(plan, kS),
                    roles.element_bytes, HasVectors(plan.columns, kS, roles.vector));
  } else if (plan.s.is_packed) {
    plan.seconds += PackingCost(plan.rows, plan.depth, kS, items * rows * depth * Repeats(plan, kS),
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

}  // namespace tenon::cpu
