#include "backends/planner/simplify.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace tenon::planner {
namespace {

using contraction::Expression;

// Of an index on more tensors, only so many of the smallest are proposed as partners.
constexpr size_t kManyHolders = 32;

std::vector<bool> Membership(const Expression& expression, const std::vector<int>& indices) {
  std::vector<bool> member(expression.sizes.size(), false);
  for (const int index : indices) member[index] = true;
  return member;
}

class Simplifier {
 public:
  Simplifier(const Expression& expression, const SimplifyOptions& options)
      : expression_(expression),
        options_(options),
        is_output_(Membership(expression, expression.output)),
        holders_(expression.sizes.size()) {}

  SimplifiedNetwork Run() {
    AddOperands();
    for (int t = 0; t < operands(); ++t) Settle(t);
    while (!queue_.empty()) {
      const auto [harm, joint, a, b] = queue_.top();
      queue_.pop();
      if (alive_[a] && alive_[b]) Settle(Join(a, b));
    }
    SimplifiedNetwork result;
    result.operands = operands();
    result.parts = Parts();
    if (options_.scalars) PlaceScalars(result.parts);
    for (const int scalar : scalars_) result.parts.push_back({{{}}, {scalar}, {}});
    std::sort(result.parts.begin(), result.parts.end(),
              [](const NetworkPart& x, const NetworkPart& y) { return x.ids[0] < y.ids[0]; });
    result.prefix = std::move(prefix_);
    return result;
  }

 private:
  using Candidate = std::tuple<double, double, int, int>;  // harm, joint, smaller id, larger id

  int operands() const { return static_cast<int>(expression_.inputs.size()); }
  double SizeOf(const std::vector<int>& indices) const {
    double size = 1;
    for (const int index : indices) size *= static_cast<double>(expression_.sizes[index]);
    return size;
  }

  int Add(std::vector<int> legs) {
    const int id = static_cast<int>(legs_.size());
    sizes_.push_back(SizeOf(legs));
    for (const int leg : legs) holders_[leg].emplace(sizes_[id], id);
    legs_.push_back(std::move(legs));
    alive_.push_back(true);
    return id;
  }

  void AddOperands() {
    const std::vector<bool> is_private = contraction::PrivateIndices(expression_);
    double elements = 0;
    for (std::vector<int> legs : expression_.inputs) {
      std::erase_if(legs, [&](int leg) { return is_private[leg] || expression_.sizes[leg] < 2; });
      std::sort(legs.begin(), legs.end());
      legs.erase(std::unique(legs.begin(), legs.end()), legs.end());
      elements += sizes_[Add(std::move(legs))];
    }
    most_harm_ = options_.allowance * std::max(elements / 2, SizeOf(expression_.output));
  }

  bool Ends(int leg, int a, int b) const {
    if (is_output_[leg]) return false;
    const auto& holders = holders_[leg];
    return std::all_of(holders.begin(), holders.end(), [&](const auto& holder) {
      return holder.second == a || holder.second == b;
    });
  }

  std::vector<int> JointLegs(int a, int b) const {
    std::vector<int> joint;
    std::set_union(legs_[a].begin(), legs_[a].end(), legs_[b].begin(), legs_[b].end(),
                   std::back_inserter(joint));
    return joint;
  }

  // Takes the pair out and adds its result, which is not settled yet.
  int Join(int a, int b) {
    std::vector<int> result = JointLegs(a, b);
    std::erase_if(result, [&](int leg) { return Ends(leg, a, b); });
    std::vector<int> thinned;
    for (const int leg : result) {
      if (holders_[leg].size() == kManyHolders + 1) thinned.push_back(leg);
    }
    for (const int t : {a, b}) {
      alive_[t] = false;
      for (const int leg : legs_[t]) holders_[leg].erase({sizes_[t], t});
      const auto same = by_legs_.find(legs_[t]);
      if (same != by_legs_.end() && same->second == t) by_legs_.erase(same);
    }
    prefix_.emplace_back(std::min(a, b), std::max(a, b));
    const int c = Add(std::move(result));
    for (const int leg : thinned) ProposeAll(leg);
    return c;
  }

  // Joins a tensor with one of the same legs, which is free, and proposes what is left of it.
  void Settle(int t) {
    while (true) {
      if (!alive_[t]) return;
      if (legs_[t].empty()) {
        scalars_.push_back(t);
        return;
      }
      if (!options_.subsets || sizes_[t] > options_.largest_elements) break;
      const auto [same, is_new] = by_legs_.try_emplace(legs_[t], t);
      if (is_new) break;
      t = Join(same->second, t);
    }
    for (const int leg : legs_[t]) {
      size_t count = 0;
      for (const auto& [size, partner] : holders_[leg]) {
        if (partner != t) Propose(partner, t);
        if (++count == kManyHolders) break;
      }
    }
  }

  // An index is held by so few tensors now that all their pairs count.
  void ProposeAll(int leg) {
    const auto& holders = holders_[leg];
    if (holders.size() > kManyHolders) return;
    for (auto a = holders.begin(); a != holders.end(); ++a) {
      for (auto b = std::next(a); b != holders.end(); ++b) Propose(a->second, b->second);
    }
  }

  // The harm of a pair does not change while both live: other holders of their legs vanish only
  // into tensors that hold them too.
  void Propose(int a, int b) {
    const std::vector<int> legs = JointLegs(a, b);
    const double joint = SizeOf(legs), larger = std::max(sizes_[a], sizes_[b]);
    const bool is_subset = legs.size() == std::max(legs_[a].size(), legs_[b].size());
    if (is_subset ? !options_.subsets : !options_.exchanges) return;
    double result = joint;
    for (const int leg : legs) {
      if (Ends(leg, a, b)) result /= static_cast<double>(expression_.sizes[leg]);
    }
    if (result > std::min(larger, options_.largest_elements)) return;
    const double harm = joint - sizes_[a] - sizes_[b] + result;
    if (harm > 0 && harm > most_harm_) return;
    queue_.emplace(harm, joint, std::min(a, b), std::max(a, b));
  }

  // The living tensors with legs, by what they share.
  std::vector<NetworkPart> Parts() const {
    std::vector<int> parent(legs_.size());
    for (size_t t = 0; t < parent.size(); ++t) parent[t] = static_cast<int>(t);
    const auto root = [&](int t) {
      while (parent[t] != t) t = parent[t] = parent[parent[t]];
      return t;
    };
    for (const auto& holders : holders_) {
      for (const auto& [size, t] : holders) parent[root(t)] = root(holders.begin()->second);
    }
    std::vector<NetworkPart> parts;
    std::vector<int> part_of(legs_.size(), -1);  // by root
    for (int t = 0; t < static_cast<int>(legs_.size()); ++t) {
      if (!alive_[t] || legs_[t].empty()) continue;
      int& part = part_of[root(t)];
      if (part < 0) {
        part = static_cast<int>(parts.size());
        parts.emplace_back();
      }
      parts[part].tensors.push_back(legs_[t]);
      parts[part].ids.push_back(t);
    }
    for (const int index : expression_.output) {
      if (holders_[index].empty()) continue;  // of size 0 or 1
      parts[part_of[root(holders_[index].begin()->second)]].output.push_back(index);
    }
    return parts;
  }

  void PlaceScalars(std::vector<NetworkPart>& parts) {
    if (scalars_.empty()) return;
    int scalar = scalars_[0];
    for (size_t i = 1; i < scalars_.size(); ++i) scalar = Join(scalar, scalars_[i]);
    scalars_ = {scalar};
    int* smallest = nullptr;
    double smallest_output = std::numeric_limits<double>::infinity();
    for (NetworkPart& part : parts) {
      smallest_output = std::min(smallest_output, SizeOf(part.output));
      for (int& id : part.ids) {
        if (smallest == nullptr || sizes_[id] < sizes_[*smallest]) smallest = &id;
      }
    }
    if (smallest == nullptr || sizes_[*smallest] >= smallest_output ||
        sizes_[*smallest] > options_.largest_elements) {
      return;
    }
    *smallest = Join(scalar, *smallest);
    scalars_.clear();
  }

  const Expression& expression_;
  const SimplifyOptions& options_;
  const std::vector<bool> is_output_;
  double most_harm_ = 0;
  std::vector<std::vector<int>> legs_;  // by SSA id, ascending
  std::vector<double> sizes_;
  std::vector<bool> alive_;
  std::vector<std::set<std::pair<double, int>>> holders_;  // per index: size and id, living
  std::map<std::vector<int>, int> by_legs_;                // settled and living
  std::vector<int> scalars_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
  Pairs prefix_;
};

}  // namespace

SimplifiedNetwork Simplify(const Expression& expression, const SimplifyOptions& options) {
  return Simplifier(expression, options).Run();
}

}  // namespace tenon::planner
