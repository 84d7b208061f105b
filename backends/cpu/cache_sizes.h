// Sizes of caches that plans and predictions count on.
//
// They are of usual machines and not of this one: what they decide may decide bits, and must not
// differ from one machine to the next.

#ifndef TENON_BACKENDS_CPU_CACHE_SIZES_H_
#define TENON_BACKENDS_CPU_CACHE_SIZES_H_

#include <cstdint>

namespace tenon::cpu {

// What a core's second cache is trusted to keep: about half of it.
inline constexpr int64_t kNearBytes = int64_t{1} << 20;

inline constexpr int64_t kCacheLineBytes = 64;

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_CACHE_SIZES_H_
