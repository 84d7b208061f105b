// In which order the tiles of a product follow each other, and what that moves between the memory
// and a core's caches.

#ifndef TENON_BACKENDS_CPU_GETT_TRAFFIC_H_
#define TENON_BACKENDS_CPU_GETT_TRAFFIC_H_

#include <cstdint>
#include <vector>

#include "backends/cpu/gett_cost.h"
#include "backends/cpu/gett_plan.h"

namespace tenon::cpu {

inline constexpr double kLineBytes = 64;  // of a cache

// Cache lines that a box of loops touches in a tensor, at least 1.
double LinesOfBox(std::vector<tenon_mode> loops, GettStride stride, int64_t element_bytes);

// Forms `order` of a plan whose axes are cut: batch, columns, rows from the outermost one in, so
// that a packed tile of V serves all rows. With `near_first`, loops along which tiles share
// cache lines of V or C come last but for the rows: each line is then moved once, though S may have
// to be packed more often. False when that is the same order.
bool OrderTiles(const GettRoles& roles, bool near_first, GettPlan& plan);

// How often each tile of a tensor is passed to the product, in the order of the plan, once the
// tile that came last is kept.
double Repeats(const GettPlan& plan, GettStride stride);

// Whether the tensors of a step are too large together for the second cache.
bool IsFar(const GettRoles& roles);

// Nanoseconds for the cache lines that are moved more than once, or in part. None for a step whose
// tensors stay in the second cache.
double WastedTraffic(const GettRoles& roles, const GettPlan& plan);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_GETT_TRAFFIC_H_
