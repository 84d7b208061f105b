#include "backends/planner/search_network.h"

#include <algorithm>
#include <map>

namespace tenon::planner {

SearchNetwork::SearchNetwork(const std::vector<std::vector<int>>& tensors,
                             const std::vector<int>& output, const std::vector<int64_t>& sizes)
    : tensors_(static_cast<int>(tensors.size())) {
  std::vector<int> holders(sizes.size(), 0);
  for (const std::vector<int>& tensor : tensors) {
    for (const int index : tensor) ++holders[index];
  }
  for (const int index : output) ++holders[index];
  std::map<int64_t, std::vector<int>> by_size;
  for (size_t index = 0; index < sizes.size(); ++index) {
    if (holders[index] > 1) by_size[sizes[index]].push_back(static_cast<int>(index));
  }
  leg_of_index_.assign(sizes.size(), -1);
  for (const auto& [size, indices] : by_size) {
    const auto count = static_cast<int>(indices.size());
    Group group{words_, words_ + (count + kWordBits - 1) / kWordBits, {1.0}};
    for (int p = 0; p < count; ++p) {
      const int leg = words_ * kWordBits + p;
      leg_of_index_[indices[p]] = leg;
      group.powers.push_back(group.powers.back() * static_cast<double>(size));
    }
    words_ = group.last_word;
    groups_.push_back(std::move(group));
  }
  words_ = std::max(words_, 1);
  index_of_leg_.assign(leg_positions(), -1);
  leg_size_.assign(leg_positions(), 1.0);
  holders_.assign(leg_positions(), 0);
  for (size_t index = 0; index < sizes.size(); ++index) {
    const int leg = leg_of_index_[index];
    if (leg < 0) continue;
    index_of_leg_[leg] = static_cast<int>(index);
    leg_size_[leg] = static_cast<double>(sizes[index]);
    holders_[leg] = holders[index];
    is_graph_ &= holders[index] == 2;
  }
  levels_.assign(tensors_, 0);
  legs_.assign(int64_t{tensors_} * words_, 0);
  output_.assign(words_, 0);
  for (int t = 0; t < tensors_; ++t) {
    for (const int index : tensors[t]) {
      if (leg_of_index_[index] >= 0)
        AddLeg(legs_.data() + int64_t{t} * words_, leg_of_index_[index]);
    }
  }
  for (const int index : output) {
    if (leg_of_index_[index] >= 0) AddLeg(output_.data(), leg_of_index_[index]);
  }
}

SearchNetwork SearchNetwork::Without(const std::vector<int>& legs) const {
  SearchNetwork slice = *this;
  for (const int leg : legs) {
    for (int t = 0; t < tensors_; ++t) RemoveLeg(slice.legs_.data() + int64_t{t} * words_, leg);
    RemoveLeg(slice.output_.data(), leg);
  }
  return slice;
}

void SearchNetwork::SetLoops(const SearchNetwork& whole, const SliceLoops& loops) {
  runs_ = loops.runs;
  levels_.assign(tensors_, 0);
  for (int t = 0; t < tensors_; ++t) {
    for (size_t i = loops.legs.size(); i > 0 && levels_[t] == 0; --i) {
      if (HasLeg(whole.legs(t), loops.legs[i - 1])) levels_[t] = static_cast<int>(i);
    }
  }
}

}  // namespace tenon::planner
