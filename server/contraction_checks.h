// Checks of single fields that the parts of a contraction's header share.

#ifndef TENON_SERVER_CONTRACTION_CHECKS_H_
#define TENON_SERVER_CONTRACTION_CHECKS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tenon::server {

// MISSING_FIELD.
absl::Status MissingField(std::string_view field, std::string_view what);
// NOT_IMPLEMENTED: "this server does not offer `what` yet".
absl::Status NotOffered(std::string_view field, std::string_view what);
// BAD_PARAMETER, with the value in the metadata.
absl::Status OutOfRange(std::string_view field, std::string_view expected, std::string value);

// MISSING_FIELD unless `known`: the enumeration has this value.
absl::Status CheckEnum(bool known, int value, std::string_view field);
// BAD_PARAMETER unless finite and above 0, or at least 1.
absl::Status CheckPositive(double value, std::string_view field);
absl::Status CheckAtLeastOne(int64_t value, std::string_view field);
// EXCEEDS_SERVER_LIMIT, with both figures in the metadata.
absl::Status CheckLimit(int64_t actual, int64_t limit, std::string_view what,
                        std::string_view field);

}  // namespace tenon::server

#endif  // TENON_SERVER_CONTRACTION_CHECKS_H_
