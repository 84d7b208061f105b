// What a measure says about one projection.

#ifndef TENON_BACKENDS_MEASUREMENT_SCORES_H_
#define TENON_BACKENDS_MEASUREMENT_SCORES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tenon::measurement {

// The scores of one projection by one specification.
struct MeasureScores {
  std::map<std::string, double> scores;                     // by output key
  std::map<std::string, std::vector<double>> local_scores;  // by local key, n values each
  std::optional<uint64_t> seed;                             // of what was drawn at random
  absl::Status error;  // why there are no scores; only where failed measures are skipped
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_SCORES_H_
