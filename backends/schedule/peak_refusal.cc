#include "backends/schedule/peak_refusal.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "backends/core/error.h"
#include "backends/core/figure.h"

namespace tenon::schedule {

absl::Status PeakRefusal(int64_t peak, int64_t budget, std::optional<int64_t> staging) {
  const std::string with =
      staging.has_value() ? StrCat("with ", *staging, " bytes of staging buffers ") : "";
  const bool exact = peak < kMostPlannedBytes;
  Error error = Error(Reason::kExceedsMemoryBudget,
                      StrCat(with, "the planned peak of ", PlannedBytesText(peak),
                             " exceeds the budget of ", budget, " bytes"))
                    .Field("execution.memory_budget_bytes")
                    .Meta("planned_peak_bytes", peak)
                    .Meta("memory_budget_bytes", budget)
                    .Meta(exact ? "smallest_budget_bytes" : "planned_peak_is_lower_bound",
                          exact ? StrCat(peak) : "true");
  if (!staging.has_value()) return error;
  return std::move(error).Meta("staging_bytes", *staging);
}

std::optional<int64_t> RefusedPeak(const absl::Status& status) {
  const ErrorDetails details = GetErrorDetails(status);
  const auto known = details.metadata.find("planned_peak_bytes");
  int64_t peak = 0;
  if (known == details.metadata.end() || !absl::SimpleAtoi(known->second, &peak)) {
    return std::nullopt;
  }
  return peak;
}

}  // namespace tenon::schedule
