// A small matrix on indices that lie inside a vector: lanes are permuted in registers, so that the
// large tensor is read and written once and never packed. Compiled per instruction set.
//
// With V's lanes numbered by bits, some of them contracted, a vector of the result is
//   C[row] = sum over h, p of coefficient[row][h][p] * permuted_p(V[h])
// where h runs over the contracted indices outside of the vector and p over the 2^b exclusive-ors
// of lane numbers with its b contracted bits. As in De Raedt et al., "Massively parallel quantum
// computer simulator", Comput. Phys. Commun. 176 (2007), but for any number of outputs.

#ifndef TENON_BACKENDS_CPU_GATE_KERNELS_H_
#define TENON_BACKENDS_CPU_GATE_KERNELS_H_

#include <cstdint>

#include "backends/cpu/scalar.h"

namespace tenon::cpu {

inline constexpr int64_t kMostGateTerms = 8;  // vectors h times permutations p
inline constexpr int64_t kMostGateRows = 8;   // vectors of the result beside each other
inline constexpr int64_t kMostGateLanes = 16;

// A run of positions, each of `high` vectors of V and `rows` of C; offsets and steps in elements.
struct GateRun {
  int64_t positions = 0;
  int64_t v_step = 0, c_step = 0;  // from one position to the next
  const int64_t* v_high = nullptr;
  const int64_t* c_row = nullptr;
  int64_t high = 1, rows = 1;
  int64_t v_ahead = 0;       // from a position to one that is wanted later: a hint
  int64_t permutations = 2;  // 2, 4 or 8; the first one moves nothing
  // For each permutation, where each 4-byte lane of a vector comes from.
  const int32_t* lanes = nullptr;
  // By row, h, p and, for complex numbers, real or imaginary part: one vector each, 64 bytes
  // aligned, the value for each of its lanes.
  const void* coefficients = nullptr;
  // Where every position has its own matrix, in the first `s_elements` (up to two vectors) from its
  // place in S on: the step from one position to the next, and instead of the coefficients, for
  // each of their 4-byte lanes, which lane of S it is.
  int64_t s_elements = 0, s_step = 0;
  const uint32_t* lookups = nullptr;
  bool accumulate = false;  // add to C
  bool stream = false;      // write around the caches; all vectors of C are aligned
};

// Whether there is a kernel for these counts (`high` times `permutations` terms).
bool HasGateKernel(int64_t high, int64_t permutations);

// Whether this machine has a kernel for matrices that change from position to position.
bool HasGateLookups();

// `s` is null where there are coefficients. Thread-safe on different C. Defined for the four
// contraction types; only where HasGateKernel and vectors hold more than one element.
template <typename T>
void RunGate(const GateRun& run, const T* s, const T* v, T* c);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_GATE_KERNELS_H_
