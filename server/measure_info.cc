#include "server/measure_info.h"

#include <google/protobuf/descriptor.h>

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "backends/core/error.h"
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

// The contract's parameter message decides which parameters there are; the registry explains those
// that it knows.
void AddParameters(const Descriptor& message, const std::string& prefix,
                   const measurement::MeasureInfo& info, v1::MeasureInfo* out) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    v1::ParameterInfo* parameter = out->add_parameters();
    parameter->set_name(prefix + field.name());
    parameter->set_type(WireType(field));
    for (const auto& known : info.parameters) {
      if (known.name != parameter->name()) continue;
      parameter->set_description(known.description);
      parameter->set_default_value(known.default_value);
      parameter->set_range(known.range);
    }
    if (parameter->type() == v1::PARAMETER_TYPE_ENUM) AddValues(field, parameter);
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

void WriteOutput(const measurement::OutputInfo& info, const std::string& key, v1::OutputInfo* out) {
  out->set_key(key);
  out->set_description(StrCat("in ", info.range, ", best ", info.best));
  const std::vector<std::string> ends = absl::StrSplit(
      absl::StrReplaceAll(info.range, {{"[", ""}, {"]", ""}, {"(", ""}, {")", ""}, {" ", ""}}),
      ',');
  // An end that is no number depends on n and k; an infinite one is no end.
  const auto minimum = ends.size() == 2 ? Number(ends[0]) : std::nullopt;
  const auto maximum = ends.size() == 2 ? Number(ends[1]) : std::nullopt;
  const auto best = Number(info.best);
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
    WriteOutput(output, output.key, out->add_outputs());
    if (!output.local_key.empty()) WriteOutput(output, output.local_key, out->add_local_outputs());
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
  out->set_available(info.implemented);
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
