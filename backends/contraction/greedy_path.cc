// The deterministic greedy path.

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <tuple>
#include <vector>

#include "backends/contraction/path.h"

namespace tenon::contraction {
namespace {

// An index on more tensors than this proposes only neighbours by id.
constexpr size_t kManyHolders = 32;

// Keeps sizes finite, so that differences of sizes are numbers.
constexpr double kLargestSize = 1e300;

class GreedySearch {
 public:
  explicit GreedySearch(const Expression& expression)
      : expression_(expression),
        holders_(expression.sizes.size()),
        is_output_(expression.sizes.size(), false) {
    for (const int index : expression.output) is_output_[index] = true;
    const std::vector<bool> is_private = PrivateIndices(expression);
    for (const std::vector<int>& input : expression.inputs) {
      std::vector<int> indices = input;
      std::erase_if(indices, [&](int index) { return is_private[index]; });
      std::sort(indices.begin(), indices.end());
      indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
      AddTensor(std::move(indices));
    }
  }

  Path Run() {
    for (size_t t = 0; t < tensors_.size(); ++t) Propose(static_cast<int>(t));
    while (!candidates_.empty()) {
      const auto [cost, a, b] = candidates_.top();
      candidates_.pop();
      if (alive_[a] && alive_[b]) Join(a, b);
    }
    JoinUnconnected();
    return std::move(path_);
  }

 private:
  using Candidate = std::tuple<double, int, int>;  // cost, smaller id, larger id

  int AddTensor(std::vector<int> indices) {
    const int id = static_cast<int>(tensors_.size());
    for (const int index : indices) holders_[index].insert(id);
    sizes_.push_back(Size(indices));
    tensors_.push_back(std::move(indices));
    alive_.push_back(true);
    return id;
  }

  double Size(const std::vector<int>& indices) const {
    double size = 1;
    for (const int index : indices) size *= static_cast<double>(expression_.sizes[index]);
    return std::min(size, kLargestSize);
  }

  // An index stays while another tensor or the output needs it.
  std::vector<int> ResultIndices(int a, int b) const {
    std::vector<int> result;
    std::set_union(tensors_[a].begin(), tensors_[a].end(), tensors_[b].begin(), tensors_[b].end(),
                   std::back_inserter(result));
    std::erase_if(result, [&](int index) {
      const std::set<int>& holders = holders_[index];
      return !is_output_[index] && holders.size() == holders.count(a) + holders.count(b);
    });
    return result;
  }

  // The cost of a pair never changes while both live: other holders of their indices vanish only
  // into a tensor that holds these indices too.
  void Push(int a, int b) {
    const double cost = Size(ResultIndices(a, b)) - (sizes_[a] + sizes_[b]);
    candidates_.emplace(cost, std::min(a, b), std::max(a, b));
  }

  // Pushes the pairs of `t` with tensors of smaller id.
  void Propose(int t) {
    std::vector<int> partners;
    for (const int index : tensors_[t]) {
      const std::set<int>& holders = holders_[index];
      auto position = holders.find(t);
      if (holders.size() <= kManyHolders) {
        partners.insert(partners.end(), holders.begin(), position);
      } else if (position != holders.begin()) {
        partners.push_back(*--position);
      }
    }
    std::sort(partners.begin(), partners.end());
    partners.erase(std::unique(partners.begin(), partners.end()), partners.end());
    for (const int partner : partners) Push(partner, t);
  }

  void Join(int a, int b) {
    std::vector<int> result = ResultIndices(a, b);
    std::vector<int> thinned;  // indices whose pairs must be completed now
    for (const int index : result) {
      const std::set<int>& holders = holders_[index];
      if (holders.size() == kManyHolders + 1 && holders.contains(a) && holders.contains(b)) {
        thinned.push_back(index);
      }
    }
    for (const int t : {a, b}) {
      for (const int index : tensors_[t]) holders_[index].erase(t);
      alive_[t] = false;
      tensors_[t] = {};
    }
    path_.pairs.emplace_back(a, b);
    Propose(AddTensor(std::move(result)));
    for (const int index : thinned) {
      for (const int t : holders_[index]) {
        for (auto u = holders_[index].begin(); *u != t; ++u) Push(*u, t);
      }
    }
  }

  void JoinUnconnected() {
    using Entry = std::pair<double, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> smallest;
    for (size_t t = 0; t < tensors_.size(); ++t) {
      if (alive_[t]) smallest.emplace(sizes_[t], static_cast<int>(t));
    }
    while (smallest.size() > 1) {
      const int a = smallest.top().second;
      smallest.pop();
      const int b = smallest.top().second;
      smallest.pop();
      path_.pairs.emplace_back(std::min(a, b), std::max(a, b));
      const int id = static_cast<int>(tensors_.size());
      sizes_.push_back(std::min(sizes_[a] * sizes_[b], kLargestSize));
      tensors_.emplace_back();
      smallest.emplace(sizes_[id], id);
    }
  }

  const Expression& expression_;
  std::vector<std::vector<int>> tensors_;  // indices, ascending; empty once consumed
  std::vector<double> sizes_;
  std::vector<bool> alive_;
  std::vector<std::set<int>> holders_;  // per index, living tensors
  std::vector<bool> is_output_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
  Path path_;
};

}  // namespace

Path GreedyPath(const Expression& expression) { return GreedySearch(expression).Run(); }

}  // namespace tenon::contraction
