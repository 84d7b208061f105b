#include "backends/planner/connected_sets.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "backends/planner/leaf_order.h"

namespace tenon::planner {
namespace {

constexpr int64_t kWorkPerPoll = 1 << 18;

constexpr uint64_t BitOfPlace(int place) { return uint64_t{1} << (63 - place); }

// Masks differ in their high bits, slots in low ones.
size_t Hash(uint64_t mask) {
  mask = (mask ^ mask >> 32) * 0x9E3779B97F4A7C15u;
  return mask >> 32 ^ mask >> 48;
}

// What a set of this size adds at least, since a step takes it. Only prices that are known to grow
// with the sizes bound anything.
double LeastNextStep(const StepPrice& price, double size) {
  if (price.objective.kind == Objective::Kind::kSeconds) return 0;
  return price({size, 1, 1, size});
}

}  // namespace

ConnectedSets::ConnectedSets(const SearchNetwork& network, const StepPrice& price, double below,
                             const Limits& limits)
    : network_(network),
      price_(price),
      below_(below),
      limits_(limits),
      n_(network.tensors()),
      words_(network.words()),
      order_(CuthillMcKeeOrder(network)),
      adjacent_(n_, 0),
      holders_(network.leg_positions(), 0) {
  for (int p = 0; p < n_; ++p) {
    ForEachLeg(network.legs(order_[p]), words_, [&](int leg) { holders_[leg] |= BitOfPlace(p); });
  }
  for (int p = 0; p < n_; ++p) {
    ForEachLeg(network.legs(order_[p]), words_, [&](int leg) { adjacent_[p] |= holders_[leg]; });
    adjacent_[p] &= ~BitOfPlace(p);
  }
}

ConnectedSets::End ConnectedSets::Solve(const Stop& stop) {
  AddTensors();
  for (int count = 2; count <= n_; ++count) {
    if (!FillLevel(count, stop)) return End::kGaveUp;
    KeepLevel();
  }
  return level_begin_[n_] < level_begin_[n_ + 1] ? End::kFound : End::kNoneBelow;
}

void ConnectedSets::AddTensors() {
  level_begin_ = {0, 0, n_};
  for (int p = 0; p < n_; ++p) {
    masks_.push_back(BitOfPlace(n_ - 1 - p));
    const Word* legs = network_.legs(order_[n_ - 1 - p]);
    legs_.insert(legs_.end(), legs, legs + words_);
    entries_.push_back({0, network_.SizeOf(legs), -1, -1});
  }
}

// All pairs of a set and another of as many tensors or more.
bool ConnectedSets::FillLevel(int count, const Stop& stop) {
  level_ = {};
  level_.slots.assign(1 << 10, -1);
  for (int less = 1; 2 * less <= count; ++less) {
    const int more = count - less;
    for (int32_t set = level_begin_[less]; set < level_begin_[less + 1]; ++set) {
      const int32_t first = less == more ? set + 1 : level_begin_[more];
      if (!JoinSets(set, first, level_begin_[more + 1], count, stop)) return false;
    }
  }
  return MayGoOn(stop);
}

// Tries `set` with those of first .. last that are disjoint from it and touch it. Sets that have a
// tensor in common with it within the same beginning are leapt over together.
bool ConnectedSets::JoinSets(int32_t set, int32_t first, int32_t last, int count,
                             const Stop& stop) {
  const Mask mask = masks_[set], neighbors = NeighborsOf(mask);
  const double room = below_ - entries_[set].cost;
  for (int32_t other = first; other < last; ++other) {
    if (++work_ % kWorkPerPoll == 0 && !MayGoOn(stop)) return false;
    const Mask common = masks_[other] & mask;
    if (common != 0) {
      const Mask until = masks_[other] | (std::bit_floor(common) - 1);
      int32_t stride = 1;
      while (other + stride < last && masks_[other + stride] <= until) {
        other += stride;
        stride *= 2;
      }
      for (; stride > 0; stride /= 2) {
        if (other + stride < last && masks_[other + stride] <= until) other += stride;
      }
    } else if ((masks_[other] & neighbors) != 0 && entries_[other].cost < room) {
      TryPair(set, other, count);
    }
  }
  return true;
}

void ConnectedSets::TryPair(int32_t a, int32_t b, int count) {
  const int32_t found = FindOrAdd(masks_[a] | masks_[b], a, b, count);
  Entry& entry = level_.entries[found];
  const double before = entries_[a].cost + entries_[b].cost;
  if (!(before < entry.cost)) return;
  const double joint = network_.SizeOfUnion(Legs(a), Legs(b));
  const double cost = before + price_({entries_[a].size, entries_[b].size, entry.size, joint});
  if (cost < entry.cost) {
    entry.cost = cost;
    entry.left = a;
    entry.right = b;
  }
}

// The union of a and b in the level. Until a pair is found its cost is what it must stay below.
int32_t ConnectedSets::FindOrAdd(Mask mask, int32_t a, int32_t b, int count) {
  const size_t wrap = level_.slots.size() - 1;
  size_t slot = Hash(mask) & wrap;
  for (; level_.slots[slot] >= 0; slot = (slot + 1) & wrap) {
    if (level_.masks[level_.slots[slot]] == mask) return level_.slots[slot];
  }
  const auto added = static_cast<int32_t>(level_.masks.size());
  level_.slots[slot] = added;
  level_.masks.push_back(mask);
  // A leg can only end where both parts hold it.
  const Word *in_a = Legs(a), *in_b = Legs(b);
  for (int w = 0; w < words_; ++w) {
    Word legs = in_a[w] | in_b[w];
    const Word shared = in_a[w] & in_b[w] & ~network_.output()[w];
    ForEachLeg(&shared, 1, [&](int leg) {
      if ((holders_[w * kWordBits + leg] & ~mask) == 0) RemoveLeg(&legs, leg);
    });
    level_.legs.push_back(legs);
  }
  const double size = network_.SizeOf(level_.legs.data() + int64_t{added} * words_);
  const double limit = count == n_ ? below_ : below_ - LeastNextStep(price_, size);
  level_.entries.push_back({limit, size, -1, -1});
  if (2 * level_.masks.size() > level_.slots.size()) GrowSlots();
  return added;
}

void ConnectedSets::GrowSlots() {
  level_.slots.assign(2 * level_.slots.size(), -1);
  const size_t wrap = level_.slots.size() - 1;
  for (size_t set = 0; set < level_.masks.size(); ++set) {
    size_t slot = Hash(level_.masks[set]) & wrap;
    while (level_.slots[slot] >= 0) slot = (slot + 1) & wrap;
    level_.slots[slot] = static_cast<int32_t>(set);
  }
}

void ConnectedSets::KeepLevel() {
  std::vector<int32_t> kept;
  for (size_t set = 0; set < level_.masks.size(); ++set) {
    if (level_.entries[set].left >= 0) kept.push_back(static_cast<int32_t>(set));
  }
  std::sort(kept.begin(), kept.end(),
            [&](int32_t a, int32_t b) { return level_.masks[a] < level_.masks[b]; });
  for (const int32_t set : kept) {
    masks_.push_back(level_.masks[set]);
    entries_.push_back(level_.entries[set]);
    const Word* legs = level_.legs.data() + int64_t{set} * words_;
    legs_.insert(legs_.end(), legs, legs + words_);
  }
  level_begin_.push_back(static_cast<int32_t>(masks_.size()));
  level_ = {};
}

ConnectedSets::Mask ConnectedSets::NeighborsOf(Mask mask) const {
  Mask neighbors = 0;
  for (Mask rest = mask; rest != 0; rest &= ~std::bit_floor(rest)) {
    neighbors |= adjacent_[std::countl_zero(rest)];
  }
  return neighbors & ~mask;
}

bool ConnectedSets::MayGoOn(const Stop& stop) const {
  const int64_t per_set = sizeof(Mask) + sizeof(Entry) + words_ * int64_t{sizeof(Word)};
  const int64_t bytes = static_cast<int64_t>(masks_.size() + level_.masks.size()) * per_set +
                        static_cast<int64_t>(level_.slots.size() * sizeof(int32_t));
  return bytes <= limits_.bytes && work_ <= limits_.work && !stop();
}

Pairs ConnectedSets::Emit() const {
  // Sets from the root down; sets with fewer tensors have smaller numbers.
  std::vector<int32_t> sets = {level_begin_[n_]};
  for (size_t next = 0; next < sets.size(); ++next) {
    const Entry& entry = entries_[sets[next]];
    if (entry.left < 0) continue;
    sets.push_back(entry.left);
    sets.push_back(entry.right);
  }
  std::sort(sets.begin(), sets.end());
  std::vector<int> id(sets.back() + 1);
  Pairs pairs;
  for (const int32_t set : sets) {
    const Entry& entry = entries_[set];
    if (entry.left < 0) {
      id[set] = order_[std::countl_zero(masks_[set])];
    } else {
      id[set] = n_ + static_cast<int>(pairs.size());
      pairs.emplace_back(id[entry.left], id[entry.right]);
    }
  }
  return pairs;
}

}  // namespace tenon::planner
