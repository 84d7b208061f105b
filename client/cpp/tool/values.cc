#include "client/cpp/tool/values.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "backends/core/error.h"

namespace tenon::tool {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr double kKi = 1024;
constexpr std::array<Unit, 15> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"K", kKi},
                                          {"KiB", kKi},
                                          {"kB", 1e3},
                                          {"KB", 1e3},
                                          {"M", kKi* kKi},
                                          {"MiB", kKi* kKi},
                                          {"MB", 1e6},
                                          {"G", kKi* kKi* kKi},
                                          {"GiB", kKi* kKi* kKi},
                                          {"GB", 1e9},
                                          {"T", kKi* kKi* kKi* kKi},
                                          {"TiB", kKi* kKi* kKi* kKi},
                                          {"TB", 1e12}}};

Error Bad(std::string_view option, std::string_view text, std::string_view expected) {
  return Error(Reason::kBadParameter, StrCat(option, " is '", text, "'; expected is ", expected))
      .Field(std::string(option));
}

std::string_view Strip(std::string_view text) {
  return ToStd(absl::StripAsciiWhitespace(ToAbsl(text)));
}

std::optional<int64_t> ParseInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A number that is whole and fits, however it is written.
std::optional<int64_t> Whole(double value) {
  if (!(value >= 0) || value >= 0x1p63 || value != std::floor(value)) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<int64_t> ParsePower(std::string_view text) {
  const size_t caret = text.find('^');
  if (caret == std::string_view::npos) return std::nullopt;
  const auto base = ParseInteger(text.substr(0, caret));
  const auto exponent = ParseInteger(text.substr(caret + 1));
  if (!base.has_value() || !exponent.has_value() || *base < 0 || *exponent < 0) return std::nullopt;
  return Whole(std::pow(static_cast<double>(*base), static_cast<double>(*exponent)));
}

}  // namespace

absl::StatusOr<int64_t> ParseSize(std::string_view text, std::string_view option) {
  const std::string_view stripped = Strip(text);
  size_t end = stripped.find_first_not_of("0123456789.+-eE");
  if (end == std::string_view::npos) end = stripped.size();
  const std::string_view unit = Strip(stripped.substr(end));
  double number = 0;
  const bool is_number = absl::SimpleAtod(ToAbsl(Strip(stripped.substr(0, end))), &number);
  for (const Unit& known : kUnits) {
    if (!is_number || known.name != unit) continue;
    const std::optional<int64_t> bytes = Whole(std::floor(number * known.bytes));
    if (bytes.has_value() && *bytes > 0) return *bytes;
  }
  return Bad(option, text, "a positive number of bytes such as 4GiB, 512MiB or 1000");
}

std::string SizeArgument(int64_t bytes) {
  constexpr int64_t kMi = int64_t{1} << 20, kGi = int64_t{1} << 30;
  if (bytes < kMi) return StrCat(bytes);
  return bytes % kGi == 0 ? StrCat(bytes / kGi, "GiB") : StrCat(bytes / kMi, "MiB");
}

absl::StatusOr<int64_t> ParseCount(std::string_view text, std::string_view option) {
  std::optional<int64_t> count = ParseInteger(text);
  if (!count.has_value()) count = ParsePower(text);
  double number = 0;
  if (!count.has_value() && absl::SimpleAtod(ToAbsl(text), &number)) count = Whole(number);
  if (count.has_value() && *count >= 1) return *count;
  return Bad(option, text, "a count from 1 to 2^63 - 1, such as 1000, 2^24 or 1e6");
}

absl::StatusOr<int32_t> ParseSmallCount(std::string_view text, std::string_view option) {
  const std::optional<int64_t> count = ParseInteger(text);
  if (count.has_value() && *count >= 1 && *count <= std::numeric_limits<int32_t>::max()) {
    return static_cast<int32_t>(*count);
  }
  return Bad(option, text, "a whole number from 1 on");
}

absl::StatusOr<double> ParsePositive(std::string_view text, std::string_view option) {
  double number = 0;
  if (absl::SimpleAtod(ToAbsl(text), &number) && number > 0 && std::isfinite(number)) return number;
  return Bad(option, text, "a positive number");
}

absl::StatusOr<std::vector<int64_t>> ParseShape(std::string_view text, std::string_view option) {
  std::vector<int64_t> shape;
  if (Strip(text).empty()) return shape;
  for (const absl::string_view part : absl::StrSplit(ToAbsl(text), ',')) {
    const std::optional<int64_t> extent = ParseInteger(Strip(ToStd(part)));
    if (!extent.has_value() || *extent < 0) return Bad(option, text, "a shape such as 2,3,4");
    shape.push_back(*extent);
  }
  return shape;
}

absl::StatusOr<std::pair<int64_t, std::string>> ParseNumbered(std::string_view text,
                                                              std::string_view option) {
  const size_t equals = text.find('=');
  if (equals != std::string_view::npos && equals + 1 < text.size()) {
    const std::optional<int64_t> number = ParseInteger(text.substr(0, equals));
    if (number.has_value() && *number >= 0) {
      return std::pair(*number, std::string(text.substr(equals + 1)));
    }
  }
  return Bad(option, text, "a number, '=' and a file, such as 0=a.npy");
}

absl::StatusOr<std::vector<std::string>> ParseNames(std::string_view text,
                                                    std::string_view option) {
  std::vector<std::string> names;
  for (const absl::string_view part : absl::StrSplit(ToAbsl(text), ',')) {
    names.emplace_back(Strip(ToStd(part)));
    if (names.back().empty()) return Bad(option, text, "one or more names with commas between");
  }
  return names;
}

}  // namespace tenon::tool
