#include "backends/planner/subset_table.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

namespace tenon::planner {
namespace {

constexpr uint32_t kSubsetsPerPoll = 256;

}  // namespace

// Only the legs of these tensors matter: they get words of their own, again by size.
void SubsetTable::Compress(const std::vector<const Word*>& tensors, const Word* result) {
  n_ = static_cast<int>(tensors.size());
  groups_.clear();
  local_of_leg_.resize(network_.leg_positions());
  words_ = 0;
  network_.ForEachGroup([&](int first_word, int last_word, const double* powers) {
    int count = 0;
    for (int w = first_word; w < last_word; ++w) {
      Word all = 0;
      for (const Word* tensor : tensors) all |= tensor[w];
      ForEachLeg(&all, 1, [&](int leg) {
        local_of_leg_[w * kWordBits + leg] = words_ * kWordBits + count++;
      });
    }
    if (count == 0) return;
    const int last = words_ + (count + kWordBits - 1) / kWordBits;
    groups_.push_back({words_, last, powers});
    words_ = last;
  });
  leaf_.assign(int64_t{n_} * words_, 0);
  result_.assign(words_, 0);
  for (int t = 0; t < n_; ++t) {
    ForEachLeg(tensors[t], network_.words(), [&](int leg) {
      AddLeg(leaf_.data() + int64_t{t} * words_, local_of_leg_[leg]);
      if (HasLeg(result, leg)) AddLeg(result_.data(), local_of_leg_[leg]);
    });
  }
}

double SubsetTable::SizeOfUnion(const Word* a, const Word* b) const {
  double size = 1;
  for (const Group& group : groups_) {
    int count = 0;
    for (int w = group.first_word; w < group.last_word; ++w) count += std::popcount(a[w] | b[w]);
    size *= group.powers[count];
  }
  return size;
}

void SubsetTable::FillSizes(int n, const std::vector<int>& levels) {
  const uint32_t subsets = 1u << n;
  union_.resize(int64_t{subsets} * words_);
  legs_.resize(int64_t{subsets} * words_);
  entries_.resize(subsets);
  std::fill_n(union_.begin(), words_, 0);
  for (uint32_t s = 1; s < subsets; ++s) {
    const Word* leaf = leaf_.data() + int64_t{std::countr_zero(s)} * words_;
    const Word* rest = union_.data() + int64_t{s & (s - 1)} * words_;
    for (int w = 0; w < words_; ++w) union_[int64_t{s} * words_ + w] = rest[w] | leaf[w];
  }
  for (uint32_t s = 1; s < subsets; ++s) {
    const Word* inside = union_.data() + int64_t{s} * words_;
    const Word* outside = union_.data() + int64_t{subsets - 1 - s} * words_;
    Word* legs = legs_.data() + int64_t{s} * words_;
    for (int w = 0; w < words_; ++w) legs[w] = inside[w] & (outside[w] | result_[w]);
    Entry& entry = entries_[s];
    entry.size = SizeOfUnion(legs, legs);
    entry.root = std::sqrt(entry.size);
    entry.split = s & (s - 1);
    entry.level = levels.empty() ? 0 : levels[std::countr_zero(s)];
    if (entry.split != 0) entry.level = std::max(entry.level, entries_[entry.split].level);
    entry.cost = std::has_single_bit(s) ? 0 : std::numeric_limits<double>::infinity();
  }
}

template <bool kGraph>
void SubsetTable::FillSubset(uint32_t subset, const StepPrice& price, double below) {
  Entry& entry = entries_[subset];
  const uint32_t lowest = subset & -subset, rest = subset ^ lowest;
  const double runs = network_.runs(entry.level);
  double best = below;
  // Each pair once: `side` lacks the lowest tensor.
  for (uint32_t side = rest; side != 0; side = (side - 1) & rest) {
    const Entry& a = entries_[side];
    const Entry& b = entries_[subset ^ side];
    const double before = a.cost + b.cost;
    if (!(before < best)) continue;
    // Without hyperedges every leg is in two of the three.
    const double joint = kGraph ? a.root * b.root * entry.root
                                : SizeOfUnion(legs_.data() + int64_t{side} * words_,
                                              legs_.data() + int64_t{subset ^ side} * words_);
    const double cost = before + price({a.size, b.size, entry.size, joint, runs});
    if (cost < best) {
      best = cost;
      entry.split = side;
      entry.cost = cost;
    }
  }
}

double SubsetTable::Solve(const std::vector<const Word*>& tensors, const Word* result,
                          const StepPrice& price, double below, const Stop& stop,
                          const std::vector<int>& levels) {
  assert(!tensors.empty() && tensors.size() <= kMostTensors);
  Compress(tensors, result);
  FillSizes(n_, levels);
  const uint32_t all = (1u << n_) - 1;
  for (uint32_t subset = 3; subset <= all; ++subset) {
    if (std::has_single_bit(subset)) continue;
    if (subset % kSubsetsPerPoll == 0 && stop()) return std::numeric_limits<double>::infinity();
    if (network_.is_graph()) {
      FillSubset<true>(subset, price, below);
    } else {
      FillSubset<false>(subset, price, below);
    }
  }
  return entries_[all].cost;
}

int SubsetTable::Emit(uint32_t subset, std::vector<std::pair<int, int>>& pairs) const {
  if (std::has_single_bit(subset)) return std::countr_zero(subset);
  const uint32_t side = entries_[subset].split;
  const int a = Emit(subset ^ side, pairs);
  const int b = Emit(side, pairs);
  pairs.emplace_back(a, b);
  return n_ + static_cast<int>(pairs.size()) - 1;
}

std::vector<std::pair<int, int>> SubsetTable::Pairs() const {
  std::vector<std::pair<int, int>> pairs;
  Emit((1u << n_) - 1, pairs);
  return pairs;
}

}  // namespace tenon::planner
