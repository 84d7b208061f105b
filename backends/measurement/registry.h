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

// Which values of a number are taken.
enum class ParameterRule {
  kAny,
  kNeighbors,           // 1 <= value <= n-1
  kNeighborsBelowHalf,  // 1 <= value, 2 value < n
  kUpToRows,            // 1 <= value <= n
  kAtLeastOne,
  kNotNegative,
  kPositive,  // and finite
};

// The parameters of random numbers have the names "<prefix>random.generator" ("counter" or "numpy")
// and "<prefix>random.seed" (64 bits; the legacy generators of NumPy take 32).
struct ParameterInfo {
  std::string name;  // inner ones with dots: "kmeans.n_init"
  ParameterType type;
  std::string default_value;  // as text; empty when there is none
  std::string range;          // for people: "1 <= k, 2k < n"
  std::string description;
  ParameterRule rule = ParameterRule::kAny;
  std::vector<std::string> choices = {};  // of a text; empty: any
  // The parameter may be given only if this other text parameter has this value.
  std::string condition_name = {}, condition_value = {};
};

struct OutputInfo {
  std::string key;        // "trustworthiness"
  std::string local_key;  // "local_trustworthiness"; empty: no pointwise output
  std::string range;      // of the score; "[0, 1]"
  std::string best;
  std::string local_range = {};  // of the pointwise output; empty: that of the score
};

// One entry of the registry.
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
};

// All 22 measures in the order of the specification.
std::span<const MeasureInfo> AllMeasures();

// By full id or alias, case-sensitive; nullptr when unknown.
const MeasureInfo* FindMeasure(std::string_view id_or_alias);

// A checked specification: every parameter of the measure that was given or has a default, of the
// right type.
struct MeasureSpec {
  const MeasureInfo* info = nullptr;
  std::map<std::string, ParameterValue> parameters;

  // The values of parameters that are there.
  int64_t Integer(std::string_view name) const;
  double Real(std::string_view name) const;
  bool Bool(std::string_view name) const;
  const std::string& Text(std::string_view name) const;
  bool Has(std::string_view name) const { return parameters.contains(std::string(name)); }
};

// Checks `specs` for a data set of `n` rows. Errors have fields "specs[i].<parameter>":
// UNKNOWN_MEASURE, BAD_PARAMETER (unknown name, wrong type, out of range, not
// applicable), K_OUT_OF_RANGE (names k and n). An integral real is taken as an integer; a bool
// never is. The k of snc becomes floor(sqrt(n)) when it is not given.
absl::StatusOr<std::vector<MeasureSpec>> CheckSpecs(const std::vector<RawSpec>& specs, int64_t n);

// The name of the seed of a specification whose score is drawn at random; empty for others.
std::string SeedName(const MeasureSpec& spec);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_REGISTRY_H_
