#include "backends/planner/random_greedy.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>
#include <vector>

namespace tenon::planner {
namespace {

// Of a leg on more tensors, only neighbours by number are pairs, until fewer hold it.
constexpr size_t kManyHolders = 32;

constexpr double kLargestSize = 1e300;  // differences of sizes are taken

class Greedy {
 public:
  Greedy(const SearchNetwork& network, const GreedyChoice& choice, Random& random)
      : network_(network), choice_(choice), random_(random), words_(network.words()) {
    const int n = network.tensors(), nodes = std::max(1, 2 * n - 1);
    legs_.assign(int64_t{nodes} * words_, 0);
    sizes_.assign(nodes, 1);
    alive_.assign(nodes, false);
    holders_.resize(network.leg_positions());
    shared_twice_.assign(words_, 0);
  }

  Pairs Run(const Stop& stop) {
    constexpr int kSteps = 16;  // between looks at the clock
    const int n = network_.tensors();
    for (int t = 0; t < n; ++t) Add(t, network_.legs(t));
    for (int leg = 0; leg < network_.leg_positions(); ++leg) UpdateTwice(leg);
    for (int t = 0; t < n; ++t) {
      if (t % kSteps == 0 && stop()) break;
      Propose(t, /*all=*/false);
    }
    while (!queue_.empty()) {
      const auto [cost, a, b] = queue_.top();
      queue_.pop();
      if (!alive_[a] || !alive_[b]) continue;
      if (pairs_.size() % kSteps == 0 && stop()) break;
      Join(a, b);
    }
    JoinRest();
    return std::move(pairs_);
  }

 private:
  using Entry = std::tuple<double, int, int>;

  const Word* Legs(int t) const { return legs_.data() + int64_t{t} * words_; }

  void Add(int t, const Word* legs) {
    std::copy_n(legs, words_, legs_.data() + int64_t{t} * words_);
    sizes_[t] = std::min(network_.SizeOf(legs), kLargestSize);
    alive_[t] = true;
    ForEachLeg(legs, words_, [&](int leg) { holders_[leg].push_back(t); });
  }

  // A leg ends with a pair that both hold it, if no other tensor does and the output does not.
  void UpdateTwice(int leg) {
    if (holders_[leg].size() == 2 && !HasLeg(network_.output(), leg)) {
      AddLeg(shared_twice_.data(), leg);
    }
  }

  Word ResultWord(int a, int b, int w) const {
    const Word in_a = Legs(a)[w], in_b = Legs(b)[w];
    return (in_a | in_b) & ~(in_a & in_b & shared_twice_[w]);
  }

  void Push(int a, int b) {
    const double result = network_.SizeOfWords([&](int w) { return ResultWord(a, b, w); });
    double cost = std::min(result, kLargestSize) - choice_.weight * (sizes_[a] + sizes_[b]);
    if (choice_.temperature > 0) {
      cost = cost > 0 ? std::log1p(cost) : -std::log1p(-cost);
      cost -= choice_.temperature * random_.Gumbel();
    }
    queue_.emplace(cost, std::min(a, b), std::max(a, b));
  }

  void Propose(int t, bool all) {
    partners_.clear();
    ForEachLeg(Legs(t), words_, [&](int leg) {
      const std::vector<int>& holders = holders_[leg];
      const bool few = holders.size() <= kManyHolders;
      for (size_t h = 0; h < holders.size(); ++h) {
        if (holders[h] == t) {
          if (!few && h > 0) partners_.push_back(holders[h - 1]);
        } else if (few && (all || holders[h] < t)) {
          partners_.push_back(holders[h]);
        }
      }
    });
    std::sort(partners_.begin(), partners_.end());
    partners_.erase(std::unique(partners_.begin(), partners_.end()), partners_.end());
    for (const int partner : partners_) Push(partner, t);
  }

  void Join(int a, int b) {
    std::vector<Word> result(words_);
    for (int w = 0; w < words_; ++w) result[w] = ResultWord(a, b, w);
    std::vector<int> thinned;
    for (const int t : {a, b}) {
      alive_[t] = false;
      ForEachLeg(Legs(t), words_, [&](int leg) {
        if (holders_[leg].size() == kManyHolders + 1) thinned.push_back(leg);
        std::erase(holders_[leg], t);
      });
    }
    const int c = network_.tensors() + static_cast<int>(pairs_.size());
    pairs_.emplace_back(a, b);
    Add(c, result.data());
    ForEachLeg(result.data(), words_, [&](int leg) { UpdateTwice(leg); });
    Propose(c, /*all=*/true);
    for (const int leg : thinned) {
      const std::vector<int>& holders = holders_[leg];
      if (holders.size() > kManyHolders) continue;
      for (size_t u = 0; u < holders.size(); ++u) {
        for (size_t v = 0; v < u; ++v) Push(holders[v], holders[u]);
      }
    }
  }

  void JoinRest() {
    std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>>
        rest;
    const int n = network_.tensors();
    for (int t = 0; t < n + static_cast<int>(pairs_.size()); ++t) {
      if (alive_[t]) rest.emplace(sizes_[t], t);
    }
    while (rest.size() > 1) {
      const auto [size_a, a] = rest.top();
      rest.pop();
      const auto [size_b, b] = rest.top();
      rest.pop();
      const int c = n + static_cast<int>(pairs_.size());
      pairs_.emplace_back(a, b);
      rest.emplace(size_a * size_b, c);
    }
  }

  const SearchNetwork& network_;
  const GreedyChoice choice_;
  Random& random_;
  const int words_;
  std::vector<Word> legs_, shared_twice_;
  std::vector<double> sizes_;
  std::vector<bool> alive_;
  std::vector<std::vector<int>> holders_;  // per leg, living tensors
  std::vector<int> partners_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  Pairs pairs_;
};

}  // namespace

Pairs RandomGreedy(const SearchNetwork& network, const GreedyChoice& choice, Random& random,
                   const Stop& stop) {
  return Greedy(network, choice, random).Run(stop);
}

}  // namespace tenon::planner
