// Figures of messages: counts that are kept as doubles because they may exceed every integer, and
// bytes that are only counted up to a bound.

#ifndef TENON_BACKENDS_CORE_FIGURE_H_
#define TENON_BACKENDS_CORE_FIGURE_H_

#include <cmath>
#include <cstdint>
#include <string>

#include "backends/core/strings.h"

namespace tenon {

// Whole numbers below 2^53 with all their digits, others shortened.
inline std::string FigureText(double value) {
  if (std::fabs(value) < 0x1p53 && value == std::floor(value)) {
    return StrCat(static_cast<int64_t>(value));
  }
  return StrCat(value);
}

// Planned bytes are counted up to here: larger than any machine's memory, small enough that a few
// terms never overflow. From here on they are a lower bound.
inline constexpr int64_t kMostPlannedBytes = int64_t{1} << 50;

// "312 bytes"; "at least 1 PiB" where they are a lower bound.
inline std::string PlannedBytesText(int64_t bytes) {
  return bytes < kMostPlannedBytes ? StrCat(bytes, " bytes") : "at least 1 PiB";
}

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_FIGURE_H_
