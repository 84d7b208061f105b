// How the lanes of vectors are mixed between two layouts.

#ifndef TENON_BACKENDS_CPU_COPY_LANES_H_
#define TENON_BACKENDS_CPU_COPY_LANES_H_

#include <cstdint>

#include "backends/cpu/copy_kernels.h"
#include "backends/cpu/copy_loops.h"

namespace tenon::cpu {

// Fills the stages and tables of a part of tiles whose vectors are full on both sides: the loops of
// two iterations next to its unit, as many as a vector holds, are taken out of `loops`. False, with
// both left in no useful state, if there are not enough.
bool MixLowLoops(CopyPart& part, Loops& loops, int64_t vector_bytes);

// Fills the stages of a part of tiles that transposes units.
void TransposeUnits(CopyPart& part, int64_t vector_bytes);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_COPY_LANES_H_
