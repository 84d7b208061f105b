// The best tree without outer products, by dynamic programming over connected sets of tensors.

#ifndef TENON_BACKENDS_PLANNER_CONNECTED_SETS_H_
#define TENON_BACKENDS_PLANNER_CONNECTED_SETS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "backends/planner/stop.h"
#include "backends/planner/tree.h"

namespace tenon::planner {

// Of one use. The network is connected, has 2 .. 64 tensors and outlives it.
class ConnectedSets {
 public:
  struct Limits {
    int64_t bytes;  // of the tables, roughly
    int64_t work;   // comparisons of two sets
  };
  // Trees that cost `below` or more are not wanted.
  ConnectedSets(const SearchNetwork& network, const StepPrice& price, double below,
                const Limits& limits);

  enum class End { kFound, kNoneBelow, kGaveUp };
  // kFound: Emit gives the best tree. kNoneBelow: there is no tree that costs less than `below`.
  // kGaveUp: stopped, or beyond the limits.
  End Solve(const Stop& stop);

  Pairs Emit() const;

 private:
  // Tensor p of the order is bit 63 - p, so that sets which begin alike stand together when sorted.
  using Mask = uint64_t;
  struct Entry {
    double cost, size;
    int32_t left, right;  // the parts, -1: a tensor, or none found yet
  };
  // The sets of one number of tensors, while they are found.
  struct Level {
    std::vector<Mask> masks;
    std::vector<Entry> entries;
    std::vector<Word> legs;
    std::vector<int32_t> slots;  // open addressing by mask, -1: empty
  };

  void AddTensors();
  bool FillLevel(int count, const Stop& stop);
  bool JoinSets(int32_t set, int32_t first, int32_t last, int count, const Stop& stop);
  void TryPair(int32_t a, int32_t b, int count);
  int32_t FindOrAdd(Mask mask, int32_t a, int32_t b, int count);
  void GrowSlots();
  void KeepLevel();
  Mask NeighborsOf(Mask mask) const;
  bool MayGoOn(const Stop& stop) const;

  const Word* Legs(int32_t set) const { return legs_.data() + int64_t{set} * words_; }

  const SearchNetwork& network_;
  const StepPrice price_;
  const double below_;
  const Limits limits_;
  const int n_, words_;
  std::vector<int> order_;
  std::vector<Mask> adjacent_;  // per place in the order
  std::vector<Mask> holders_;   // per leg
  // The kept sets by number of tensors, within one sorted by mask.
  std::vector<Mask> masks_;
  std::vector<Entry> entries_;
  std::vector<Word> legs_;
  std::vector<int32_t> level_begin_;  // per number of tensors, and one more
  Level level_;
  int64_t work_ = 0;
};

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_CONNECTED_SETS_H_
