// Sums in the order that NumPy adds a contiguous row: rounding grows with the logarithm of the
// number of terms, the terms are independent enough for vectors, and values whose last bits
// matter (nearly degenerate triangles) come out as they do there.

#ifndef TENON_BACKENDS_MEASUREMENT_PAIRWISE_SUM_H_
#define TENON_BACKENDS_MEASUREMENT_PAIRWISE_SUM_H_

#include <cstdint>
#include <type_traits>

namespace tenon::measurement {

inline constexpr int64_t kPairwiseLanes = 8;
inline constexpr int64_t kPairwiseLeaf = 128;  // terms that are not halved

// At most kPairwiseLeaf terms.
template <typename Term>
[[gnu::always_inline]] inline auto PairwiseLeafSum(int64_t first, int64_t count, const Term& term)
    -> std::invoke_result_t<Term, int64_t> {
  constexpr int64_t kLanes = kPairwiseLanes;
  std::invoke_result_t<Term, int64_t> sum = 0;
  int64_t i = 0;
  if (count >= kLanes) {
    std::invoke_result_t<Term, int64_t> lanes[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = term(first + l);
    for (i = kLanes; i + kLanes <= count; i += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] += term(first + i + l);
    }
    sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
          ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
  for (; i < count; ++i) sum += term(first + i);
  return sum;
}

template <typename Term>
auto PairwiseSumOfHalves(int64_t first, int64_t count, const Term& term)
    -> std::invoke_result_t<Term, int64_t> {
  if (count <= kPairwiseLeaf) return PairwiseLeafSum(first, count, term);
  const int64_t half = count / 2 / kPairwiseLanes * kPairwiseLanes;
  return PairwiseSumOfHalves(first, half, term) +
         PairwiseSumOfHalves(first + half, count - half, term);
}

// The sum of term(i) for first <= i < first + count, in the type of the terms: up to 128 terms in
// eight lanes, more by halves. Sums of one leaf are inlined, so they use the caller's vectors.
template <typename Term>
[[gnu::always_inline]] inline auto PairwiseSum(int64_t first, int64_t count, const Term& term)
    -> std::invoke_result_t<Term, int64_t> {
  return count <= kPairwiseLeaf ? PairwiseLeafSum(first, count, term)
                                : PairwiseSumOfHalves(first, count, term);
}

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_PAIRWISE_SUM_H_
