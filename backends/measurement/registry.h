// The published measures: names, parameters, outputs; and checked specifications.

#ifndef TENON_BACKENDS_MEASUREMENT_REGISTRY_H_
#define TENON_BACKENDS_MEASUREMENT_REGISTRY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace tenon::measurement {

using ParameterValue = std::variant<bool, int64_t, double, std::string>;

// A specification as it comes from a caller: full id or alias, and parameters by name.
struct RawSpec {
  std::string id;
  std::map<std::string, ParameterValue> parameters;
};

enum class ParameterType { kBool, kInteger, kReal, kString };

struct ParameterInfo {
  std::string name;
  ParameterType type;
  std::string default_value;  // as text; empty when there is none
  std::string range;          // for people: "1 <= k, 2k < n"
  std::string description;
};

struct OutputInfo {
  std::string key;        // "trustworthiness"
  std::string local_key;  // "local_trustworthiness"; empty: no pointwise output
  std::string range;
  std::string best;
};

// One entry of the registry. `implemented` is false for measures that this build only names: a
// specification of one is refused with NOT_IMPLEMENTED.
struct MeasureInfo {
  std::string id;
  std::string alias;
  std::string description;
  std::vector<ParameterInfo> parameters = {};
  std::vector<OutputInfo> outputs = {};
  bool needs_labels = false;
  bool needs_original = true;
  bool deterministic = true;
  std::string reference = {};  // the paper; empty when there is none to cite
  bool implemented = false;
};

// All 22 measures in the order of the specification.
std::span<const MeasureInfo> AllMeasures();

// By full id or alias, case-sensitive; nullptr when unknown.
const MeasureInfo* FindMeasure(std::string_view id_or_alias);

// A checked specification: every parameter of the measure present, of the right type.
struct MeasureSpec {
  const MeasureInfo* info = nullptr;
  std::map<std::string, ParameterValue> parameters;

  int64_t Integer(std::string_view name) const;
  double Real(std::string_view name) const;
};

// Checks `specs` for a data set of `n` rows. Errors have fields "specs[i].<parameter>":
// UNKNOWN_MEASURE, NOT_IMPLEMENTED, BAD_PARAMETER (unknown name, wrong type, out of range),
// K_OUT_OF_RANGE (names k and n). An integral real is taken as an integer; a bool never is.
absl::StatusOr<std::vector<MeasureSpec>> CheckSpecs(const std::vector<RawSpec>& specs, int64_t n);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_REGISTRY_H_
