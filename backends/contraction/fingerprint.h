// The identity of a lowered program.

#ifndef TENON_BACKENDS_CONTRACTION_FINGERPRINT_H_
#define TENON_BACKENDS_CONTRACTION_FINGERPRINT_H_

#include <array>
#include <cstdint>

#include "backends/plugin/abi.h"

namespace tenon::contraction {

// SHA-256 of a canonical serialisation (little-endian 64-bit words, fixed order, lengths before
// lists) of everything in `program` but its fingerprint, and of the size of slice groups.
std::array<uint8_t, 32> FingerprintProgram(const tenon_program& program, int64_t group_slices);

}  // namespace tenon::contraction

#endif  // TENON_BACKENDS_CONTRACTION_FINGERPRINT_H_
