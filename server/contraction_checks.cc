#include "server/contraction_checks.h"

#include <cmath>

#include "backends/core/error.h"

namespace tenon::server {

absl::Status MissingField(std::string_view field, std::string_view what) {
  return Error(Reason::kMissingField, std::string(what)).Field(std::string(field));
}

absl::Status NotOffered(std::string_view field, std::string_view what) {
  return Error(Reason::kNotImplemented, StrCat("this server does not offer ", what, " yet"))
      .Field(std::string(field));
}

absl::Status OutOfRange(std::string_view field, std::string_view expected, std::string value) {
  return Error(Reason::kBadParameter, StrCat("expected ", expected, "; ", value, " came"))
      .Field(std::string(field))
      .Meta("value", value);
}

absl::Status CheckEnum(bool known, int value, std::string_view field) {
  if (known) return absl::OkStatus();
  if (value == 0) return MissingField(field, "a value is required");
  return OutOfRange(field, "a known value", StrCat(value));
}

absl::Status CheckPositive(double value, std::string_view field) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return OutOfRange(field, "a finite number above 0", StrCat(value));
}

absl::Status CheckAtLeastOne(int64_t value, std::string_view field) {
  if (value >= 1) return absl::OkStatus();
  return OutOfRange(field, "at least 1", StrCat(value));
}

absl::Status CheckLimit(int64_t actual, int64_t limit, std::string_view what,
                        std::string_view field) {
  if (actual <= limit) return absl::OkStatus();
  return Error(Reason::kExceedsServerLimit,
               StrCat(actual, " ", what, " came; this server takes at most ", limit))
      .Field(std::string(field))
      .Meta("limit", limit)
      .Meta("actual", actual);
}

}  // namespace tenon::server
