// Offsets for the tensors of one space, from their lifetimes.

#ifndef TENON_BACKENDS_CONTRACTION_ARENA_H_
#define TENON_BACKENDS_CONTRACTION_ARENA_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace tenon::contraction {

// When a tensor holds a value that is still needed. Times are positions in the order of steps,
// which is run again for every slice, by levels (see tenon_step).
struct Lifetime {
  int64_t elements = 0;
  int first_step = 0;  // that writes it
  int last_step = 0;   // that reads it
  int level = 0;       // of the step that writes it
  // Its reader runs more often than its writer: the value must outlive every later step, and every
  // step that runs in a slice in which its writer does not.
  bool kept = false;
};

// Whether both tensors hold a needed value at one time.
bool LifetimesConflict(const Lifetime& x, const Lifetime& y);

struct ArenaPlan {
  std::vector<int64_t> offsets;  // elements, one per tensor; multiples of the alignment
  int64_t elements = 0;          // of the whole space
};

// Best-fit placement, largest tensors first: no two tensors whose lifetimes conflict overlap. A
// tensor without elements gets offset 0. OVERFLOW when the space needs more than `max_elements`.
absl::StatusOr<ArenaPlan> PlanArena(const std::vector<Lifetime>& tensors,
                                    int64_t alignment_elements, int64_t max_elements);

}  // namespace tenon::contraction

#endif  // TENON_BACKENDS_CONTRACTION_ARENA_H_
