#include "backends/cpu/gett_traffic.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "backends/cpu/cache_sizes.h"
#include "backends/cpu/calibration.h"

namespace tenon::cpu {
namespace {

constexpr auto kCacheBytes = static_cast<double>(kNearBytes);

// The part of a tensor that is in the caches while the innermost loops run, and how often it is
// fetched again.
struct Footprint {
  GettStride stride;
  int64_t element_bytes;
  std::vector<tenon_mode> box = {};
  double lines = 1;
  double fetches = 1;
  bool moves = false;  // with a loop outside of the box

  void Extend(const tenon_mode& loop, int64_t extent) {
    if (loop.*stride == 0 || extent == 1) return;
    box.push_back(loop);
    box.back().extent = extent;
    lines = LinesOfBox(box, stride, element_bytes);
  }
  void RunOutside(const tenon_mode& loop, double extent) {
    if (extent == 1) return;
    moves = moves || loop.*stride != 0;
    if (moves) fetches *= extent;
  }
};

// Sets of the second cache that the lines of a box fall into. Strides that are multiples of large
// powers of two use few of them.
double CacheSets(const Footprint& tensor) {
  constexpr int64_t kSets = 2048, kLine = kCacheLineBytes;
  double sets = 1;
  for (const tenon_mode& loop : tensor.box) {
    const int64_t step = std::abs(loop.*tensor.stride) * tensor.element_bytes;
    const int64_t period = kSets * kLine / std::gcd(step, kSets * kLine);
    const int64_t values = std::min(loop.extent, period);
    sets *= step >= kLine ? static_cast<double>(values)
                          : std::max(1.0, static_cast<double>(values * step) / kLineBytes);
  }
  return std::min(sets, static_cast<double>(kSets));
}

// Whether the second cache is trusted to keep all of them.
bool AreCached(const Footprint (&tensors)[3]) {
  constexpr double kWays = 8;  // of 16
  double bytes = 0;
  for (const Footprint& tensor : tensors) {
    bytes += tensor.lines * kLineBytes;
    if (tensor.lines > kWays * CacheSets(tensor)) return false;
  }
  return bytes <= kCacheBytes;
}

// All loops over tiles, innermost first.
std::vector<tenon_mode> LoopsOverTiles(const GettPlan& plan) {
  std::vector<tenon_mode> loops(plan.depth.outer.rbegin(), plan.depth.outer.rend());
  for (size_t i = plan.order.size(); i-- > 0;) loops.push_back(plan.order[i].mode);
  return loops;
}

// The most values of a loop whose tiles the cache keeps together, at least 1; extends the boxes.
int64_t KeepTogether(const tenon_mode& loop, Footprint (&tensors)[3]) {
  for (int64_t extent = loop.extent; extent > 1; extent = (extent + 1) / 2) {
    Footprint wider[3] = {tensors[0], tensors[1], tensors[2]};
    for (Footprint& tensor : wider) tensor.Extend(loop, extent);
    if (!AreCached(wider)) continue;
    for (int i = 0; i < 3; ++i) tensors[i] = std::move(wider[i]);
    return extent;
  }
  return 1;
}

}  // namespace

double LinesOfBox(std::vector<tenon_mode> loops, GettStride stride, int64_t element_bytes) {
  std::sort(loops.begin(), loops.end(),
            [stride](const tenon_mode& p, const tenon_mode& q) { return p.*stride < q.*stride; });
  double lines = 1;
  auto reach = static_cast<double>(element_bytes);  // bytes from the first element to the last
  for (const tenon_mode& loop : loops) {
    const auto extent = static_cast<double>(loop.extent);
    const double step = static_cast<double>(loop.*stride * element_bytes);
    const double wider = reach + (extent - 1) * step;
    lines *= step >= kLineBytes ? extent : std::max(1.0, wider / std::max(reach, kLineBytes));
    reach = wider;
  }
  return lines;
}

bool OrderTiles(const GettRoles& roles, bool near_first, GettPlan& plan) {
  std::vector<TileLoop> all;
  for (const auto& [axis, role] : {std::pair(&plan.batch, TileLoop::kBatch),
                                   {&plan.columns, TileLoop::kColumns},
                                   {&plan.rows, TileLoop::kRows}}) {
    for (size_t i = 0; i < axis->outer.size(); ++i) {
      const bool is_cut = axis->tail != axis->full && i + 1 == axis->outer.size();
      all.push_back({axis->outer[i], role, is_cut});
    }
  }
  const auto bytes = [&](const tenon_mode& mode) {  // of the shortest step
    int64_t shortest = INT64_MAX;
    for (const int64_t stride : {mode.stride_b, mode.stride_c}) {
      if (stride != 0) shortest = std::min(shortest, std::abs(stride));
    }
    return static_cast<double>(shortest) * static_cast<double>(roles.element_bytes);
  };
  plan.order = all;
  if (!near_first) return true;
  const auto rows = plan.order.end() - static_cast<int64_t>(plan.rows.outer.size());
  const auto near = std::stable_partition(plan.order.begin(), rows, [&](const TileLoop& loop) {
    return bytes(loop.mode) >= kLineBytes;
  });
  std::stable_sort(near, rows, [&](const TileLoop& x, const TileLoop& y) {
    return bytes(x.mode) > bytes(y.mode);
  });
  return !std::equal(
      all.begin(), all.end(), plan.order.begin(), [](const TileLoop& x, const TileLoop& y) {
        return x.mode.stride_a == y.mode.stride_a && x.mode.stride_b == y.mode.stride_b &&
               x.mode.stride_c == y.mode.stride_c;
      });
}

double Repeats(const GettPlan& plan, GettStride stride) {
  double repeats = 1;
  bool moves = false;  // with a loop further in
  for (const tenon_mode& loop : LoopsOverTiles(plan)) {
    if (loop.*stride != 0) {
      moves = true;
    } else if (moves) {
      repeats *= static_cast<double>(loop.extent);
    }
  }
  return repeats;
}

bool IsFar(const GettRoles& roles) {
  const auto items = static_cast<double>(roles.items), rows = static_cast<double>(roles.n_rows),
             columns = static_cast<double>(roles.n_columns),
             depth = static_cast<double>(roles.n_depth);
  const double elements = (roles.is_across ? columns : items) * rows * depth +
                          items * depth * columns + items * rows * columns;
  return elements * static_cast<double>(roles.element_bytes) > kCacheBytes;
}

double WastedTraffic(const GettRoles& roles, const GettPlan& plan) {
  if (!IsFar(roles)) return 0;
  const auto items = static_cast<double>(roles.items), rows = static_cast<double>(roles.n_rows),
             columns = static_cast<double>(roles.n_columns),
             depth = static_cast<double>(roles.n_depth);
  const double elements[3] = {(roles.is_across ? columns : items) * rows * depth,
                              items * depth * columns, items * rows * columns};
  const auto element_bytes = static_cast<double>(roles.element_bytes);
  Footprint tensors[3] = {
      {kS, roles.element_bytes}, {kV, roles.element_bytes}, {kC, roles.element_bytes}};
  for (const TileAxis* axis : {&plan.batch, &plan.rows, &plan.columns, &plan.depth}) {
    for (const tenon_mode& loop : axis->inner) {
      for (Footprint& tensor : tensors) tensor.Extend(loop, loop.extent);
    }
  }
  bool is_kept = AreCached(tensors);
  for (const tenon_mode& loop : LoopsOverTiles(plan)) {
    const int64_t together = is_kept ? KeepTogether(loop, tensors) : 1;
    is_kept = is_kept && together == loop.extent;
    const double rest = static_cast<double>(loop.extent) / static_cast<double>(together);
    for (Footprint& tensor : tensors) tensor.RunOutside(loop, rest);
  }
  const Calibration::Memory& rates = MachineCalibration().memory;
  double wasted = 0;
  for (int i = 0; i < 3; ++i) {
    const double whole = elements[i] * element_bytes;
    const double moved = tensors[i].lines * tensors[i].fetches * kLineBytes;
    if (whole <= kCacheBytes) continue;
    wasted += std::max(0.0, moved - whole) / (i == 2 ? rates.written_again : rates.read_again);
  }
  return wasted;
}

}  // namespace tenon::cpu
