// A tensor network as the search for trees sees it: sets of legs with sizes.
//
// A leg is a distinct index of a tensor that another tensor or the output holds too. Legs of equal
// size share words of the bit sets, so that the size of a set is a product of few table entries.

#ifndef TENON_BACKENDS_PLANNER_SEARCH_NETWORK_H_
#define TENON_BACKENDS_PLANNER_SEARCH_NETWORK_H_

#include <cstdint>
#include <vector>

#include "backends/planner/leg_set.h"

namespace tenon::planner {

// Sliced legs as nested loops, outermost first.
struct SliceLoops {
  std::vector<int> legs;
  // How often a step runs over all slices, by its level: 1 + the position of the innermost loop
  // that it depends on; 0: none.
  std::vector<double> runs = {1};
};

// Immutable once made, but for SetLoops; thread-safe.
class SearchNetwork {
 public:
  // `tensors` are lists of distinct indices, `sizes` those of all indices (>= 1). Indices that only
  // one tensor holds and the output does not are no legs.
  SearchNetwork(const std::vector<std::vector<int>>& tensors, const std::vector<int>& output,
                const std::vector<int64_t>& sizes);

  int tensors() const { return tensors_; }
  int words() const { return words_; }
  const Word* legs(int tensor) const { return legs_.data() + int64_t{tensor} * words_; }
  const Word* output() const { return output_.data(); }
  // Whether every leg stands on two tensors, or one and the output: then |a|, |b| and |c| tell
  // |a and b together|.
  bool is_graph() const { return is_graph_; }

  // Bit positions, some unused.
  int leg_positions() const { return words_ * kWordBits; }
  int index_of(int leg) const { return index_of_leg_[leg]; }    // -1: unused
  int leg_of(int index) const { return leg_of_index_[index]; }  // -1: no leg
  double leg_size(int leg) const { return leg_size_[leg]; }
  // Tensors that hold a leg, and one more for the output.
  int holders(int leg) const { return holders_[leg]; }

  // Product of the sizes of the legs of set(w), w = 0 .. words-1; infinite beyond the range.
  template <typename Set>
  double SizeOfWords(const Set& set) const {
    double size = 1;
    for (const Group& group : groups_) {
      int count = 0;
      for (int w = group.first_word; w < group.last_word; ++w) count += std::popcount(set(w));
      size *= group.powers[count];
    }
    return size;
  }
  double SizeOf(const Word* set) const {
    return SizeOfWords([set](int w) { return set[w]; });
  }
  double SizeOfUnion(const Word* a, const Word* b) const {
    return SizeOfWords([a, b](int w) { return a[w] | b[w]; });
  }

  // Calls body(first_word, last_word, powers) for every group of legs of one size; powers[c] is the
  // size to the power of c.
  template <typename Body>
  void ForEachGroup(const Body& body) const {
    for (const Group& group : groups_) body(group.first_word, group.last_word, group.powers.data());
  }

  // The same network with these legs gone: one slice of it.
  SearchNetwork Without(const std::vector<int>& legs) const;

  // For a slice of `whole`: how its legs are nested.
  void SetLoops(const SearchNetwork& whole, const SliceLoops& loops);
  int level(int tensor) const { return levels_[tensor]; }
  double runs(int level) const { return runs_[level]; }

 private:
  struct Group {
    int first_word, last_word;
    std::vector<double> powers;  // of the size of its legs
  };

  SearchNetwork() = default;

  int tensors_ = 0, words_ = 0;
  bool is_graph_ = true;
  std::vector<Group> groups_;
  std::vector<Word> legs_, output_;
  std::vector<int> index_of_leg_, leg_of_index_, holders_;
  std::vector<double> leg_size_;
  std::vector<int> levels_;           // per tensor
  std::vector<double> runs_ = {1.0};  // by level
};

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_SEARCH_NETWORK_H_
