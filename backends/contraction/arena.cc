#include "backends/contraction/arena.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

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

// Best fit looks at every tensor that has been placed. Beyond this many, what is left is small.
constexpr size_t kMostBestFits = 4096;

// Places of one size for tensors of a class, from `begin` on: in the order of their first steps
// each takes a place that is free again, if there is one. Where the places end.
int64_t PlaceClass(const std::vector<Lifetime>& tensors, std::vector<int>& in_class, int64_t begin,
                   int64_t size, std::vector<int64_t>& offsets) {
  std::sort(in_class.begin(), in_class.end(), [&](int x, int y) {
    return std::pair(tensors[x].first_step, x) < std::pair(tensors[y].first_step, y);
  });
  using Taken = std::pair<int, int64_t>;  // last step, place
  std::priority_queue<Taken, std::vector<Taken>, std::greater<>> taken;
  int64_t end = begin;
  for (const int tensor : in_class) {
    const Lifetime& lifetime = tensors[tensor];
    const bool reuses = !lifetime.kept && !taken.empty() && taken.top().first < lifetime.first_step;
    const int64_t place = reuses ? taken.top().second : end;
    if (reuses) {
      taken.pop();
    } else {
      end += size;
    }
    offsets[tensor] = place;
    if (!lifetime.kept) taken.emplace(lifetime.last_step, place);  // else nobody follows
  }
  return end;
}

// The tensors from `first` on in `by_size`, behind all others: those of about one size share
// places.
void PlaceSmall(const std::vector<Lifetime>& tensors, const std::vector<int>& by_size, size_t first,
                int64_t alignment, ArenaPlan& plan) {
  for (size_t i = first; i < by_size.size() && tensors[by_size[i]].elements > 0;) {
    const int64_t largest = tensors[by_size[i]].elements;
    std::vector<int> in_class;
    for (; i < by_size.size() && tensors[by_size[i]].elements > largest / 2; ++i) {
      in_class.push_back(by_size[i]);
    }
    const int64_t size = (largest + alignment - 1) / alignment * alignment;
    plan.elements = PlaceClass(tensors, in_class, plan.elements, size, plan.offsets);
  }
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
  for (size_t i = 0; i < by_size.size(); ++i) {
    const int tensor = by_size[i];
    const int64_t elements = tensors[tensor].elements;
    if (elements == 0) break;
    const __int128 side_by_side = __int128{static_cast<int64_t>(by_size.size() - i)} *
                                  (__int128{elements} + alignment_elements);
    if (i >= kMostBestFits && plan.elements + side_by_side <= max_elements) {
      PlaceSmall(tensors, by_size, i, alignment_elements, plan);
      break;
    }
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
