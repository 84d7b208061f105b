// Sets of indices as bits in a fixed number of words.

#ifndef TENON_BACKENDS_PLANNER_LEG_SET_H_
#define TENON_BACKENDS_PLANNER_LEG_SET_H_

#include <bit>
#include <cstdint>

namespace tenon::planner {

using Word = uint64_t;
inline constexpr int kWordBits = 64;

inline bool HasLeg(const Word* set, int leg) {
  return (set[leg / kWordBits] >> (leg % kWordBits) & 1) != 0;
}
inline void AddLeg(Word* set, int leg) { set[leg / kWordBits] |= Word{1} << (leg % kWordBits); }
inline void RemoveLeg(Word* set, int leg) {
  set[leg / kWordBits] &= ~(Word{1} << (leg % kWordBits));
}

// Calls body(leg) for every member in ascending order.
template <typename Body>
void ForEachLeg(const Word* set, int words, const Body& body) {
  for (int w = 0; w < words; ++w) {
    for (Word bits = set[w]; bits != 0; bits &= bits - 1) {
      body(w * kWordBits + std::countr_zero(bits));
    }
  }
}

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_LEG_SET_H_
