// What tests expect of an error: its reason and the field it names.

#ifndef TENON_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define TENON_TESTS_SUPPORT_STATUS_MATCHERS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "absl/status/statusor.h"
#include "backends/core/error.h"

namespace tenon::testing {

// The status of a call, whatever it returns beside it.
inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// Success if `result` failed with `reason`, its code, and a field `field` ("" expects no fields).
template <typename T>
::testing::AssertionResult Fails(const T& result, Reason reason, std::string_view field = "") {
  const absl::Status& status = StatusOf(result);
  if (status.ok()) return ::testing::AssertionFailure() << "it succeeded";
  const ErrorDetails details = GetErrorDetails(status);
  if (details.reason != reason || status.code() != ReasonCode(reason)) {
    return ::testing::AssertionFailure()
           << ReasonName(details.reason) << ": " << status << ", expected " << ReasonName(reason);
  }
  const bool named = field.empty() ? details.fields.empty()
                                   : std::any_of(details.fields.begin(), details.fields.end(),
                                                 [&](const auto& f) { return f.first == field; });
  if (named) return ::testing::AssertionSuccess();
  auto failure = ::testing::AssertionFailure();
  failure << status << " names other fields than '" << field << "':";
  for (const auto& [path, description] : details.fields) failure << " '" << path << "'";
  return failure;
}

}  // namespace tenon::testing

#endif  // TENON_TESTS_SUPPORT_STATUS_MATCHERS_H_
