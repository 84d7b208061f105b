#include "backends/contraction/arena.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "backends/core/error.h"

namespace tenon::contraction {
namespace {

struct Placed {
  int tensor;
  int64_t begin, end;  // elements
};

// The smallest gap between placed tensors that conflict with `tensor` and can hold `size`, else the
// place after the last of them. `placed` is sorted by `begin`.
int64_t BestFit(const std::vector<Lifetime>& tensors, const std::vector<Placed>& placed, int tensor,
                int64_t size) {
  int64_t best = -1;
  int64_t best_gap = std::numeric_limits<int64_t>::max();
  int64_t free_from = 0;
  for (const Placed& other : placed) {
    if (!LifetimesConflict(tensors[tensor], tensors[other.tensor])) continue;
    const int64_t gap = other.begin - free_from;
    if (gap >= size && gap < best_gap) {
      best = free_from;
      best_gap = gap;
    }
    free_from = std::max(free_from, other.end);
  }
  return best >= 0 ? best : free_from;
}

}  // namespace

bool LifetimesConflict(const Lifetime& x, const Lifetime& y) {
  const Lifetime& first = x.first_step <= y.first_step ? x : y;
  const Lifetime& second = x.first_step <= y.first_step ? y : x;
  if (first.kept || first.last_step >= second.first_step) return true;
  return second.kept && first.level > second.level;
}

absl::StatusOr<ArenaPlan> PlanArena(const std::vector<Lifetime>& tensors,
                                    int64_t alignment_elements, int64_t max_elements) {
  std::vector<int> by_size(tensors.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](int x, int y) { return tensors[x].elements > tensors[y].elements; });
  ArenaPlan plan;
  plan.offsets.assign(tensors.size(), 0);
  std::vector<Placed> placed;
  for (const int tensor : by_size) {
    const int64_t elements = tensors[tensor].elements;
    if (elements == 0) break;
    int64_t end = 0;
    const bool fits = elements <= max_elements - alignment_elements;
    if (fits) {
      const int64_t size =
          (elements + alignment_elements - 1) / alignment_elements * alignment_elements;
      const int64_t begin = BestFit(tensors, placed, tensor, size);
      plan.offsets[tensor] = begin;
      if (!__builtin_add_overflow(begin, size, &end) && end <= max_elements) {
        const auto position = std::upper_bound(
            placed.begin(), placed.end(), begin,
            [](int64_t offset, const Placed& other) { return offset < other.begin; });
        placed.insert(position, Placed{tensor, begin, end});
        plan.elements = std::max(plan.elements, end);
        continue;
      }
    }
    return Error(Reason::kOverflow, "the memory for intermediate tensors does not fit in 63 bits")
        .Meta("tensor_elements", elements);
  }
  return plan;
}

}  // namespace tenon::contraction
