#include "backends/planner/tree.h"

#include <algorithm>

namespace tenon::planner {

Tree::Tree(const SearchNetwork& network, const Pairs& pairs) : network_(&network) {
  const int n = network.tensors();
  const int nodes = std::max(1, 2 * n - 1);
  left_.assign(nodes, -1);
  right_.assign(nodes, -1);
  parent_.assign(nodes, -1);
  for (size_t s = 0; s < pairs.size(); ++s) {
    SetChildren(n + static_cast<int>(s), pairs[s].first, pairs[s].second);
  }
  root_ = nodes - 1;
  legs_.assign(int64_t{nodes} * network.words(), 0);
  sizes_.assign(nodes, 1);
  joints_.assign(nodes, 1);
  levels_.assign(nodes, 0);
  ComputeAll();
}

Tree Tree::On(const SearchNetwork& network) const {
  Tree tree = *this;
  tree.network_ = &network;
  tree.ComputeAll();
  return tree;
}

void Tree::SetChildren(int node, int left, int right) {
  left_[node] = left;
  right_[node] = right;
  parent_[left] = parent_[right] = node;
}

void Tree::SetLegs(int node, const Word* legs) {
  std::copy_n(legs, network_->words(), legs_.data() + int64_t{node} * network_->words());
  sizes_[node] = network_->SizeOf(legs);
  joints_[node] = network_->SizeOfUnion(this->legs(left_[node]), this->legs(right_[node]));
  levels_[node] = std::max(levels_[left_[node]], levels_[right_[node]]);
}

void Tree::SetLevels() {
  for (int t = 0; t < leaves(); ++t) levels_[t] = network_->level(t);
  for (const int node : PostOrder()) {
    levels_[node] = std::max(levels_[left_[node]], levels_[right_[node]]);
  }
}

void Tree::Rotate(int p, int c, int x, int y, int z, const Word* legs, double size, double joint_c,
                  double joint_p) {
  SetChildren(c, x, z);
  SetChildren(p, c, y);
  std::copy_n(legs, network_->words(), legs_.data() + int64_t{c} * network_->words());
  sizes_[c] = size;
  joints_[c] = joint_c;
  levels_[c] = std::max(levels_[x], levels_[z]);
  joints_[p] = joint_p;
}

std::vector<int> Tree::PostOrder() const {
  std::vector<int> order;  // parents first, then turned around
  order.reserve(nodes());
  if (!is_leaf(root_)) order.push_back(root_);
  for (size_t next = 0; next < order.size(); ++next) {
    for (const int child : {left_[order[next]], right_[order[next]]}) {
      if (!is_leaf(child)) order.push_back(child);
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

void Tree::ComputeAll() {
  const int words = network_->words();
  for (int t = 0; t < leaves(); ++t) {
    std::copy_n(network_->legs(t), words, legs_.data() + int64_t{t} * words);
    sizes_[t] = network_->SizeOf(network_->legs(t));
    levels_[t] = network_->level(t);
  }
  // A leg ends where all that hold it have come together. Those with two holders are in both
  // children there; for others the holders below each node are counted, along the larger list.
  std::vector<std::vector<std::pair<int, int>>> counts(nodes());  // leg, holders below
  const auto many = [&](int leg) { return network_->holders(leg) > 2; };
  std::vector<int> below(network_->leg_positions(), 0);
  std::vector<Word> ended(words), set(words);
  for (int t = 0; t < leaves(); ++t) {
    ForEachLeg(legs(t), words, [&](int leg) {
      if (many(leg)) counts[t].emplace_back(leg, 1);
    });
  }
  for (const int node : PostOrder()) {
    const int l = left_[node], r = right_[node];
    for (int w = 0; w < words; ++w) {
      ended[w] = legs(l)[w] & legs(r)[w] & ~network_->output()[w];
      set[w] = legs(l)[w] | legs(r)[w];
    }
    for (const int child : {l, r}) {
      for (const auto& [leg, count] : counts[child]) {
        below[leg] += count;
        RemoveLeg(ended.data(), leg);
      }
    }
    for (const int child : {l, r}) {
      for (const auto& [leg, count] : counts[child]) {
        if (below[leg] == 0) continue;  // taken from the other child
        if (below[leg] == network_->holders(leg)) {
          AddLeg(ended.data(), leg);
        } else {
          counts[node].emplace_back(leg, below[leg]);
        }
        below[leg] = 0;
      }
      counts[child] = {};
    }
    for (int w = 0; w < words; ++w) set[w] &= ~ended[w];
    SetLegs(node, set.data());
  }
}

double Tree::Cost(const StepPrice& price) const {
  double cost = 0;
  for (int node = leaves(); node < nodes(); ++node) cost += price(Step(node));
  return cost;
}

double Tree::Largest() const {
  if (nodes() == 1) return sizes_[0];
  return *std::max_element(sizes_.begin() + leaves(), sizes_.end());
}

Pairs Tree::ToPairs() const {
  std::vector<int> weight(nodes(), 1), number(nodes());
  for (const int node : PostOrder()) weight[node] = weight[left_[node]] + weight[right_[node]];
  for (int t = 0; t < leaves(); ++t) number[t] = t;
  Pairs pairs;
  pairs.reserve(nodes() - leaves());
  std::vector<std::pair<int, bool>> stack = {{root_, false}};
  while (!stack.empty()) {
    const auto [node, done] = stack.back();
    stack.pop_back();
    if (is_leaf(node)) continue;
    if (done) {
      number[node] = leaves() + static_cast<int>(pairs.size());
      pairs.emplace_back(number[left_[node]], number[right_[node]]);
      continue;
    }
    int first = left_[node], second = right_[node];
    if (weight[second] > weight[first]) std::swap(first, second);
    stack.emplace_back(node, true);
    stack.emplace_back(second, false);
    stack.emplace_back(first, false);
  }
  return pairs;
}

}  // namespace tenon::planner
