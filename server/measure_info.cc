#include "server/measure_info.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "backends/core/error.h"
#include "backends/measurement/metrics.h"
#include "backends/measurement/registry.h"
#include "tenon/v1/measure_info.pb.h"
#include "tenon/v1/measure_spec.pb.h"

namespace tenon::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

v1::ParameterType WireType(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      return v1::PARAMETER_TYPE_INTEGER;
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return v1::PARAMETER_TYPE_REAL;
    case FieldDescriptor::CPPTYPE_BOOL:
      return v1::PARAMETER_TYPE_BOOLEAN;
    case FieldDescriptor::CPPTYPE_STRING:
      return v1::PARAMETER_TYPE_STRING;
    case FieldDescriptor::CPPTYPE_ENUM:
      return v1::PARAMETER_TYPE_ENUM;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return v1::PARAMETER_TYPE_MESSAGE;
  }
  return v1::PARAMETER_TYPE_UNSPECIFIED;
}

// Names of the values, as the wire has them and as the reference spells them.
void AddValues(const FieldDescriptor& field, v1::ParameterInfo* out) {
  const auto* type = field.enum_type();
  constexpr size_t kUnspecified = std::string_view("UNSPECIFIED").size();
  const size_t prefix = type->value(0)->name().size() - kUnspecified;
  for (int i = 1; i < type->value_count(); ++i) {
    const std::string& name = type->value(i)->name();
    out->add_allowed_values(name);
    out->add_allowed_aliases(absl::AsciiStrToLower(name.substr(prefix)));
  }
}

// Leaves only the values that the measure takes, of those that the enumeration has.
void KeepChoices(const std::vector<std::string>& choices, v1::ParameterInfo* out) {
  v1::ParameterInfo all;
  all.mutable_allowed_values()->Swap(out->mutable_allowed_values());
  all.mutable_allowed_aliases()->Swap(out->mutable_allowed_aliases());
  for (int i = 0; i < all.allowed_values_size(); ++i) {
    if (std::find(choices.begin(), choices.end(), all.allowed_aliases(i)) == choices.end())
      continue;
    out->add_allowed_values(all.allowed_values(i));
    out->add_allowed_aliases(all.allowed_aliases(i));
  }
}

// The contract's parameter message decides which parameters there are; the registry explains those
// that it knows.
void AddParameters(const Descriptor& message, const std::string& prefix,
                   const measurement::MeasureInfo& info, v1::MeasureInfo* out) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    v1::ParameterInfo* parameter = out->add_parameters();
    parameter->set_name(prefix + field.name());
    parameter->set_type(WireType(field));
    if (parameter->type() == v1::PARAMETER_TYPE_ENUM) AddValues(field, parameter);
    for (const auto& known : info.parameters) {
      if (known.name != parameter->name()) continue;
      parameter->set_description(known.description);
      parameter->set_default_value(known.default_value);
      parameter->set_range(known.range);
      if (!known.condition_name.empty()) {
        parameter->set_condition(
            StrCat("only with ", known.condition_name, " = ", known.condition_value));
      }
      if (!known.choices.empty()) KeepChoices(known.choices, parameter);
    }
    if (parameter->type() == v1::PARAMETER_TYPE_MESSAGE) {
      AddParameters(*field.message_type(), parameter->name() + ".", info, out);
    }
  }
}

std::optional<double> Number(std::string_view text) {
  double value = 0;
  if (!absl::SimpleAtod(ToAbsl(text), &value)) return std::nullopt;
  return value;
}

void WriteOutput(const std::string& key, const std::string& range, const std::string& best_text,
                 v1::OutputInfo* out) {
  out->set_key(key);
  out->set_description(StrCat("in ", range, ", best ", best_text));
  const std::vector<std::string> ends = absl::StrSplit(
      absl::StrReplaceAll(range, {{"[", ""}, {"]", ""}, {"(", ""}, {")", ""}, {" ", ""}}), ',');
  // An end that is no number depends on n and k; an infinite one is no end.
  const auto minimum = ends.size() == 2 ? Number(ends[0]) : std::nullopt;
  const auto maximum = ends.size() == 2 ? Number(ends[1]) : std::nullopt;
  const auto best = Number(best_text);
  const auto finite = [](std::optional<double> value) {
    return value.has_value() && *value - *value == 0;
  };
  if (finite(minimum)) out->set_minimum(*minimum);
  if (finite(maximum)) out->set_maximum(*maximum);
  if (finite(best)) out->set_best(*best);
  if (!best.has_value()) {
    out->set_direction(v1::SCORE_DIRECTION_HIGHER);  // "1-k/(n-1)": the upper end
  } else if (best == maximum) {
    out->set_direction(v1::SCORE_DIRECTION_HIGHER);
  } else if (best == minimum) {
    out->set_direction(v1::SCORE_DIRECTION_LOWER);
  }
}

// Of one projection once the original side is there; e columns, k neighbours, c classes, w rows of
// a walk, t iterations.
const char* CostOf(const std::string& alias) {
  static const std::map<std::string, const char*> costs = {
      {"tnc", "n^2 (d + e)"},
      {"mrre", "n^2 (d + e)"},
      {"lcmc", "n^2 e"},
      {"nh", "n^2 e"},
      {"nd", "n^2 e + n k^2"},
      {"ca_tnc", "n^2 (d + e)"},
      {"proc", "n^2 e + n k d e"},
      {"snc", "n^2 e + iteration w^2"},
      {"dsc", "n e c"},
      {"ivm", "n^2 e (silhouette), n e c otherwise"},
      {"c_evm", "n_init max_iter n e n_clusters (kmeans), n^2 e (dbscan)"},
      {"l_tnc", "n c (d + e)"},
      {"cadi", "n_triplets (d + e)"},
      {"stress", "n^2 (d + e)"},
      {"sn_stress", "n^2 (d + e)"},
      {"nm_stress", "n^2 (e + log n)"},
      {"kl_div", "n^2 e"},
      {"dtm", "n^2 e"},
      {"topo", "n^2 e + n k (d + e)"},
      {"pr", "n^2 (d + e)"},
      {"srho", "n^2 (e + log n)"},
      {"gi", "n log n + n d"},
  };
  const auto found = costs.find(alias);
  return found == costs.end() ? "" : found->second;
}

// Great-circle distances reach a measure by the resources of the original space only.
bool SupportsGeodesic(const measurement::MeasureInfo& info) {
  constexpr int64_t kAnyRows = 1000;  // enough for every default
  const auto specs = measurement::CheckSpecs({{info.id, {}}}, kAnyRows);
  if (!specs.ok()) return false;
  const auto keys = measurement::Requirements(specs->front());
  return std::any_of(keys.begin(), keys.end(), [](const measurement::ResourceKey& key) {
    return key.space != TENON_RESOURCE_EMBEDDED;
  });
}

v1::MeasureDeterminism Determinism(const measurement::MeasureInfo& info) {
  if (!info.deterministic) return v1::MEASURE_DETERMINISM_SEEDED;
  for (const char* integer : {"tnc", "mrre", "lcmc", "nh", "nd", "ca_tnc"}) {
    if (info.alias == integer) return v1::MEASURE_DETERMINISM_INTEGER;
  }
  return v1::MEASURE_DETERMINISM_DETERMINISTIC;
}

void WriteMeasure(const measurement::MeasureInfo& info, v1::MeasureInfo* out) {
  out->set_id(info.id);
  out->set_alias(info.alias);
  out->set_title(absl::StrReplaceAll(info.id, {{"_", " "}}));
  out->set_description(info.description);
  const FieldDescriptor* field = v1::MeasureSpec::descriptor()->FindFieldByName(info.id);
  if (field != nullptr) AddParameters(*field->message_type(), "", info, out);
  for (const auto& output : info.outputs) {
    WriteOutput(output.key, output.range, output.best, out->add_outputs());
    if (output.local_key.empty()) continue;
    WriteOutput(output.local_key, output.local_range.empty() ? output.range : output.local_range,
                output.best, out->add_local_outputs());
  }
  out->set_needs_data(info.needs_original);
  out->set_needs_labels(info.needs_labels);
  const bool one_class_will_do = !info.needs_labels || info.alias == "nh";
  out->set_min_classes(!info.needs_labels ? 0 : one_class_will_do ? 1 : 2);
  const bool planar = info.alias == "gi";
  out->set_min_rows(planar || info.alias == "cadi" ? 3 : 2);
  if (planar) out->set_required_columns(2);
  out->set_determinism(Determinism(info));
  out->add_references(info.reference);
  out->set_supports_geodesic(SupportsGeodesic(info));
  out->set_cost(CostOf(info.alias));
  out->set_available(true);
}

}  // namespace

absl::Status DescribeMeasures(const std::string& id, v1::ListMeasuresResponse* response) {
  if (!id.empty()) {
    const measurement::MeasureInfo* info = measurement::FindMeasure(id);
    if (info == nullptr) {
      return Error(Reason::kUnknownMeasure, StrCat("no measure is called '", id, "'"))
          .Field("id")
          .Meta("id", id);
    }
    WriteMeasure(*info, response->add_measures());
    return absl::OkStatus();
  }
  for (const auto& info : measurement::AllMeasures()) WriteMeasure(info, response->add_measures());
  return absl::OkStatus();
}

}  // namespace tenon::server
