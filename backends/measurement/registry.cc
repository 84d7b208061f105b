#include "backends/measurement/registry.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/error.h"

namespace tenon::measurement {
namespace {

constexpr double kLargestExactInteger = 9007199254740992.0;  // 2^53

absl::Status BadParameter(const std::string& field, std::string message) {
  return Error(Reason::kBadParameter, std::move(message)).Field(field);
}

const char* TypeName(ParameterType type) {
  switch (type) {
    case ParameterType::kBool:
      return "a bool";
    case ParameterType::kInteger:
      return "an integer";
    case ParameterType::kReal:
      return "a real number";
    case ParameterType::kString:
      return "a text";
  }
  return "unknown";
}

std::string ValueText(const ParameterValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return absl::StrCat("'", *text, "'");
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return absl::StrCat(*integer);
  return absl::StrCat(std::get<double>(value));
}

// `value` in the parameter's own type.
absl::StatusOr<ParameterValue> Convert(const ParameterInfo& parameter, const ParameterValue& value,
                                       const std::string& field) {
  const auto* integer = std::get_if<int64_t>(&value);
  const auto* real = std::get_if<double>(&value);
  switch (parameter.type) {
    case ParameterType::kBool:
      if (std::holds_alternative<bool>(value)) return value;
      break;
    case ParameterType::kString:
      if (std::holds_alternative<std::string>(value)) return value;
      break;
    case ParameterType::kInteger:
      if (integer != nullptr) return value;
      if (real != nullptr && std::abs(*real) <= kLargestExactInteger &&
          *real == std::trunc(*real)) {
        return ParameterValue(static_cast<int64_t>(*real));
      }
      break;
    case ParameterType::kReal:
      if (real != nullptr) return value;
      if (integer != nullptr) return ParameterValue(static_cast<double>(*integer));
      break;
  }
  return BadParameter(field, absl::StrCat("parameter '", parameter.name, "' must be ",
                                          TypeName(parameter.type), ", not ", ValueText(value)));
}

ParameterValue DefaultValue(const ParameterInfo& parameter) {
  switch (parameter.type) {
    case ParameterType::kInteger:
      return int64_t{std::stoll(parameter.default_value)};
    case ParameterType::kReal:
      return std::stod(parameter.default_value);
    case ParameterType::kBool:
      return parameter.default_value == "true";
    case ParameterType::kString:
      break;
  }
  return parameter.default_value;
}

absl::Status CheckNeighbors(const MeasureInfo& info, int64_t k, int64_t n, bool below_half,
                            const std::string& field) {
  if (k >= 1 && k <= n - 1 && (!below_half || k < n - k)) return absl::OkStatus();
  return Error(Reason::kKOutOfRange,
               absl::StrCat(info.id, ": k = ", k, " with n = ", n, " rows, needed is ",
                            below_half ? "1 <= k and 2k < n" : "1 <= k <= n-1"))
      .Field(field)
      .Meta("k", k)
      .Meta("n", n);
}

double NumberOf(const ParameterValue& value) {
  const auto* integer = std::get_if<int64_t>(&value);
  return integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value);
}

absl::Status CheckNumber(const MeasureInfo& info, const ParameterInfo& parameter,
                         const ParameterValue& value, int64_t n, const std::string& field) {
  const auto refuse = [&](const char* rule) {
    return BadParameter(field, absl::StrCat(info.id, ": ", parameter.name, " must be ", rule,
                                            ", not ", ValueText(value)));
  };
  switch (parameter.rule) {
    case ParameterRule::kAny:
      return absl::OkStatus();
    case ParameterRule::kNeighbors:
      return CheckNeighbors(info, std::get<int64_t>(value), n, false, field);
    case ParameterRule::kNeighborsBelowHalf:
      return CheckNeighbors(info, std::get<int64_t>(value), n, true, field);
    case ParameterRule::kUpToRows:
      if (NumberOf(value) >= 1 && NumberOf(value) <= static_cast<double>(n)) break;
      return refuse("at least 1 and at most the number of rows");
    case ParameterRule::kAtLeastOne:
      if (NumberOf(value) >= 1 && std::isfinite(NumberOf(value))) break;
      return refuse("finite and at least 1");
    case ParameterRule::kNotNegative:
      if (NumberOf(value) >= 0 && std::isfinite(NumberOf(value))) break;
      return refuse("finite and not negative");
    case ParameterRule::kPositive:
      if (NumberOf(value) > 0 && std::isfinite(NumberOf(value))) break;
      return refuse("positive and finite");
  }
  return absl::OkStatus();
}

absl::Status CheckValue(const MeasureInfo& info, const ParameterInfo& parameter,
                        const ParameterValue& value, int64_t n, const std::string& field) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return CheckNumber(info, parameter, value, n, field);
  if (parameter.choices.empty() || std::find(parameter.choices.begin(), parameter.choices.end(),
                                             *text) != parameter.choices.end()) {
    return absl::OkStatus();
  }
  return BadParameter(field, absl::StrCat(info.id, ": ", parameter.name, " is '", *text,
                                          "'; it may be ", absl::StrJoin(parameter.choices, ", ")));
}

// Parameters that were given must apply, and the legacy seeds of NumPy have 32 bits.
absl::Status CheckCombination(const RawSpec& raw, const MeasureSpec& spec,
                              const std::string& prefix) {
  for (const ParameterInfo& parameter : spec.info->parameters) {
    const bool applies = parameter.condition_name.empty() ||
                         spec.Text(parameter.condition_name) == parameter.condition_value;
    if (applies || !raw.parameters.contains(parameter.name)) continue;
    return BadParameter(absl::StrCat(prefix, ".", parameter.name),
                        absl::StrCat(spec.info->id, ": ", parameter.name, " is only for ",
                                     parameter.condition_name, " = ", parameter.condition_value));
  }
  const std::string seed = SeedName(spec);
  if (seed.empty() || !spec.Has(seed) || spec.info->alias == "cadi") return absl::OkStatus();
  const std::string generator = seed.substr(0, seed.rfind('.')) + ".generator";
  constexpr int64_t kLegacySeeds = int64_t{1} << 32;
  const int64_t value = spec.Integer(seed);
  if (spec.Text(generator) != "numpy" || (value >= 0 && value < kLegacySeeds)) {
    return absl::OkStatus();
  }
  return BadParameter(
      absl::StrCat(prefix, ".", seed),
      absl::StrCat(spec.info->id, ": seeds of the generator 'numpy' are below 2^32"));
}

void FillNeighbors(int64_t n, MeasureSpec& spec) {
  if (spec.info->alias != "snc" || spec.Has("k")) return;
  auto k = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
  while (k * k > n) --k;
  while ((k + 1) * (k + 1) <= n) ++k;
  spec.parameters["k"] = std::clamp<int64_t>(k, 1, std::max<int64_t>(1, n - 1));
}

absl::Status CheckNames(const RawSpec& raw, const MeasureInfo& info, const std::string& prefix) {
  for (const auto& [name, value] : raw.parameters) {
    bool known = false;
    for (const ParameterInfo& parameter : info.parameters) known |= parameter.name == name;
    if (known) continue;
    const std::string names = absl::StrJoin(
        info.parameters, ", ",
        [](std::string* out, const ParameterInfo& p) { absl::StrAppend(out, p.name); });
    return BadParameter(absl::StrCat(prefix, ".", name),
                        absl::StrCat(info.id, " has no parameter '", name,
                                     "'; it has: ", names.empty() ? "none" : names));
  }
  return absl::OkStatus();
}

absl::StatusOr<MeasureSpec> CheckSpec(const RawSpec& raw, int64_t n, const std::string& prefix) {
  MeasureSpec spec;
  spec.info = FindMeasure(raw.id);
  if (spec.info == nullptr) {
    return Error(Reason::kUnknownMeasure, absl::StrCat("no measure is called '", raw.id, "'"))
        .Field(absl::StrCat(prefix, ".id"));
  }
  TENON_RETURN_IF_ERROR(CheckNames(raw, *spec.info, prefix));
  for (const ParameterInfo& parameter : spec.info->parameters) {
    const std::string field = absl::StrCat(prefix, ".", parameter.name);
    const auto given = raw.parameters.find(parameter.name);
    ParameterValue value;
    if (given != raw.parameters.end()) {
      TENON_ASSIGN_OR_RETURN(value, Convert(parameter, given->second, field));
    } else if (!parameter.default_value.empty()) {
      value = DefaultValue(parameter);
    } else {
      continue;
    }
    TENON_RETURN_IF_ERROR(CheckValue(*spec.info, parameter, value, n, field));
    spec.parameters[parameter.name] = std::move(value);
  }
  FillNeighbors(n, spec);
  TENON_RETURN_IF_ERROR(CheckCombination(raw, spec, prefix));
  return spec;
}

}  // namespace

const MeasureInfo* FindMeasure(std::string_view id_or_alias) {
  for (const MeasureInfo& info : AllMeasures()) {
    if (info.id == id_or_alias || info.alias == id_or_alias) return &info;
  }
  return nullptr;
}

int64_t MeasureSpec::Integer(std::string_view name) const {
  return std::get<int64_t>(parameters.at(std::string(name)));
}

double MeasureSpec::Real(std::string_view name) const {
  return std::get<double>(parameters.at(std::string(name)));
}

bool MeasureSpec::Bool(std::string_view name) const {
  return std::get<bool>(parameters.at(std::string(name)));
}

const std::string& MeasureSpec::Text(std::string_view name) const {
  return std::get<std::string>(parameters.at(std::string(name)));
}

std::string SeedName(const MeasureSpec& spec) {
  if (spec.info->alias == "snc" || spec.info->alias == "cadi") return "random.seed";
  if (spec.info->alias == "l_tnc" && spec.Text("cvm") == "ch_btw") return "random.seed";
  if (spec.info->alias == "c_evm" && spec.Text("clustering") == "kmeans") {
    return "kmeans.random.seed";
  }
  return "";
}

absl::StatusOr<std::vector<MeasureSpec>> CheckSpecs(const std::vector<RawSpec>& specs, int64_t n) {
  std::vector<MeasureSpec> checked;
  for (size_t i = 0; i < specs.size(); ++i) {
    TENON_ASSIGN_OR_RETURN(MeasureSpec spec,
                           CheckSpec(specs[i], n, absl::StrCat("specs[", i, "]")));
    checked.push_back(std::move(spec));
  }
  return checked;
}

}  // namespace tenon::measurement
