// Keys: what rows hold in the place of distances, ordered as they are.
//
// A Euclidean distance is the rounded root of a rounded sum of squares. Roots are dear, and
// neighbours and ranks need only the order, so rows hold the sums. But rounding maps neighbouring
// sums to one distance, and equal distances are ordered by index: comparisons of keys must be with
// the ends of the interval of keys that share a distance (a few keys wide, as a root halves the
// number of values).

#ifndef TENON_BACKENDS_CPU_DISTANCE_KEY_H_
#define TENON_BACKENDS_CPU_DISTANCE_KEY_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tenon::cpu {

enum class KeyKind {
  kDistance,      // the distance itself
  kSquare,        // its square before the root was taken, in double
  kSquareSingle,  // the same computed in float; keys and distances are floats
};

inline double DistanceOf(KeyKind kind, double key) {
  if (kind == KeyKind::kDistance) return key;
  const double root = std::sqrt(key);
  // Rounding the double root again gives the correctly rounded float root.
  return kind == KeyKind::kSquare ? root : static_cast<float>(root);
}

// The next larger key of the kind's type; `key` is finite and not negative.
inline double KeyAbove(KeyKind kind, double key) {
  if (kind != KeyKind::kSquareSingle) {
    return std::bit_cast<double>(std::bit_cast<uint64_t>(key) + 1);
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(key)) + 1);
}

// The next smaller key of the kind's type; -1 below 0. `key` is not negative.
inline double KeyBelow(KeyKind kind, double key) {
  if (key == 0) return -1;
  if (kind != KeyKind::kSquareSingle) {
    return std::bit_cast<double>(std::bit_cast<uint64_t>(key) - 1);
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(key)) - 1);
}

// The largest key with the distance of `key` (>= 0).
inline double LastKeyOf(KeyKind kind, double key) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (kind == KeyKind::kDistance) return key;
  const double distance = DistanceOf(kind, key);
  while (key < kInfinity) {
    const double above = KeyAbove(kind, key);
    if (DistanceOf(kind, above) != distance) break;
    key = above;
  }
  return key;
}

// The largest key of a distance (>= 0) that some key has.
inline double LastKeyAt(KeyKind kind, double distance) {
  if (kind == KeyKind::kDistance) return distance;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double key = distance * distance;
  if (kind == KeyKind::kSquareSingle) key = static_cast<float>(key);
  while (DistanceOf(kind, key) > distance) key = KeyBelow(kind, key);
  while (key < kInfinity && DistanceOf(kind, KeyAbove(kind, key)) <= distance) {
    key = KeyAbove(kind, key);
  }
  return key;
}

// The largest key with a smaller distance than that of `key` (>= 0); negative if there is none.
inline double LastKeyBefore(KeyKind kind, double key) {
  if (kind == KeyKind::kDistance) return KeyBelow(kind, key);
  const double distance = DistanceOf(kind, key);
  do {
    key = KeyBelow(kind, key);
  } while (key >= 0 && DistanceOf(kind, key) == distance);
  return key;
}

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_DISTANCE_KEY_H_
