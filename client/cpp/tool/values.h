// Values of options.

#ifndef TENON_CLIENT_CPP_TOOL_VALUES_H_
#define TENON_CLIENT_CPP_TOOL_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/tool/arguments.h"

namespace tenon::tool {

// All errors are BAD_PARAMETER with `option` as field.

// Bytes: "4GiB", "512 MiB", "4G" (as GiB), "1.5GiB", "2GB" (10^9), "1000", "1e9".
absl::StatusOr<int64_t> ParseSize(std::string_view text, std::string_view option);

// The largest such text that means at most `bytes`, in whole units: "4GiB", "1536MiB", "1000".
std::string SizeArgument(int64_t bytes);

// A count: "1000", "2^24", "1e6".
absl::StatusOr<int64_t> ParseCount(std::string_view text, std::string_view option);

// A positive, finite number.
absl::StatusOr<double> ParsePositive(std::string_view text, std::string_view option);

// "2,3,4"; an empty text is the shape of a scalar.
absl::StatusOr<std::vector<int64_t>> ParseShape(std::string_view text, std::string_view option);

// "3=file": a number, and what stands after the sign.
absl::StatusOr<std::pair<int64_t, std::string>> ParseNumbered(std::string_view text,
                                                              std::string_view option);

// "cpu,cuda:0".
absl::StatusOr<std::vector<std::string>> ParseNames(std::string_view text, std::string_view option);

// The value of an option, parsed; nullopt when it is not given.
template <typename T>
absl::StatusOr<std::optional<T>> GetParsed(const Arguments& arguments, std::string_view name,
                                           absl::StatusOr<T> (*parse)(std::string_view,
                                                                      std::string_view)) {
  const std::optional<std::string> text = arguments.Get(name);
  if (!text.has_value()) return std::optional<T>();
  absl::StatusOr<T> value = parse(*text, "--" + std::string(name));
  if (!value.ok()) return value.status();
  return std::optional<T>(*std::move(value));
}

// A count from 1 to 2^31 - 1, as threads are.
absl::StatusOr<int32_t> ParseSmallCount(std::string_view text, std::string_view option);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_VALUES_H_
