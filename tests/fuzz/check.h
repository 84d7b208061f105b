// What every fuzz target asks of the code it drives, beside not crashing.

#ifndef TENON_TESTS_FUZZ_CHECK_H_
#define TENON_TESTS_FUZZ_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "backends/core/error.h"
#include "backends/core/utf8.h"

// Stops the process, which the fuzzer reports as a crash with the input that led here.
#define FUZZ_CHECK(condition)                                                             \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

namespace tenon::fuzz {

inline bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// An error that a caller may see: a reason with its own code, and text that may be sent.
inline void CheckError(const absl::Status& status) {
  FUZZ_CHECK(!status.ok());
  const ErrorDetails details = GetErrorDetails(status);
  FUZZ_CHECK(status.code() == ReasonCode(details.reason));
  FUZZ_CHECK(details.reason != Reason::kInternal);
  FUZZ_CHECK(!status.message().empty());
  FUZZ_CHECK(IsUtf8(ToStd(status.message())));
  for (const auto& [field, description] : details.fields) {
    FUZZ_CHECK(IsUtf8(field) && IsUtf8(description) && !description.empty());
  }
  for (const auto& [key, value] : details.metadata) FUZZ_CHECK(!key.empty() && IsUtf8(value));
}

}  // namespace tenon::fuzz

#endif  // TENON_TESTS_FUZZ_CHECK_H_
