// Figures of messages: counts that are kept as doubles because they may exceed every integer.

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

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_FIGURE_H_
