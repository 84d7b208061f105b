#include "server/measurement_codec.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "backends/core/error.h"
#include "server/status.h"

namespace tenon::server {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using measurement::Labels;
using measurement::ParameterValue;
using measurement::RawSpec;

// "INTERNAL_VALIDATION_INDEX_" for InternalValidationIndex: what the names of its values begin
// with.
std::string ValuePrefix(const EnumDescriptor* type) {
  constexpr std::string_view kUnspecified = "UNSPECIFIED";
  const std::string& zero = type->value(0)->name();
  return zero.substr(0, zero.size() - kUnspecified.size());
}

absl::Status ReadEnum(const Message& message, const FieldDescriptor* field, const std::string& name,
                      const std::string& path, RawSpec* spec) {
  const int number = message.GetReflection()->GetEnumValue(message, field);
  if (number == 0) return absl::OkStatus();  // not given: the default
  const EnumValueDescriptor* value = field->enum_type()->FindValueByNumber(number);
  if (value == nullptr) {
    return Error(Reason::kBadParameter,
                 StrCat(number, " is no value of ", field->enum_type()->full_name()))
        .Field(path)
        .Meta("value", number);
  }
  std::string text = value->name().substr(ValuePrefix(field->enum_type()).size());
  spec->parameters[name] = absl::AsciiStrToLower(text);
  return absl::OkStatus();
}

// Adds the fields that are set in `message` to the parameters, their names after `prefix`.
absl::Status ReadParameters(const Message& message, const std::string& prefix,
                            const std::string& path, RawSpec* spec) {
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string name = prefix + field->name();
    const std::string field_path = StrCat(path, ".", field->name());
    ParameterValue& value = spec->parameters[name];
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        value = int64_t{reflection->GetInt32(message, field)};
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        value = reflection->GetInt64(message, field);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        // Seeds: the engine takes the same 64 bits.
        value = static_cast<int64_t>(reflection->GetUInt64(message, field));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        value = reflection->GetDouble(message, field);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        value = reflection->GetBool(message, field);
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        value = reflection->GetString(message, field);
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        spec->parameters.erase(name);
        TENON_RETURN_IF_ERROR(ReadEnum(message, field, name, field_path, spec));
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        spec->parameters.erase(name);
        TENON_RETURN_IF_ERROR(
            ReadParameters(reflection->GetMessage(message, field), name + ".", field_path, spec));
        break;
      default:
        return Error(Reason::kInternal, StrCat("no parameter has the type of ", field_path));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RawSpec> ReadSpec(const v1::MeasureSpec& spec, const std::string& path) {
  RawSpec raw;
  raw.id = spec.id();
  if (raw.id.empty()) {
    return Error(Reason::kMissingField, "the measure has no id").Field(StrCat(path, ".id"));
  }
  const measurement::MeasureInfo* info = measurement::FindMeasure(raw.id);
  if (info == nullptr) {
    return Error(Reason::kUnknownMeasure, StrCat("no measure is called '", raw.id, "'"))
        .Field(StrCat(path, ".id"))
        .Meta("id", raw.id);
  }
  const auto* oneof = v1::MeasureSpec::descriptor()->FindOneofByName("parameters");
  const FieldDescriptor* field = spec.GetReflection()->GetOneofFieldDescriptor(spec, oneof);
  if (field == nullptr) return raw;
  const std::string field_path = StrCat(path, ".", field->name());
  if (field->name() != info->id) {
    return Error(Reason::kBadParameter, StrCat("the parameters are those of ", field->name(),
                                               ", but the measure is ", info->id))
        .Field(field_path)
        .Meta("measure", info->id)
        .Meta("parameters_of", field->name());
  }
  TENON_RETURN_IF_ERROR(
      ReadParameters(spec.GetReflection()->GetMessage(spec, field), "", field_path, &raw));
  return raw;
}

// The position in "specs[12]..." and what stands behind the bracket.
std::optional<std::pair<int, std::string>> SplitSpecPath(const std::string& path) {
  constexpr std::string_view kSpecs = "specs[";
  if (!path.starts_with(kSpecs)) return std::nullopt;
  const size_t close = path.find(']');
  if (close == std::string::npos) return std::nullopt;
  int index = 0;
  if (!absl::SimpleAtoi(path.substr(kSpecs.size(), close - kSpecs.size()), &index)) {
    return std::nullopt;
  }
  return std::make_pair(index, path.substr(close + 1));
}

std::string HeaderPath(const std::string& path, const v1::MeasureHeader& header) {
  if (const auto split = SplitSpecPath(path);
      split.has_value() && split->first >= 0 && split->first < header.specs_size()) {
    const auto& [index, rest] = *split;
    const auto* info = measurement::FindMeasure(header.specs(index).id());
    const bool parameter = info != nullptr && rest.starts_with('.') && rest != ".id";
    return StrCat("header.specs[", index, "]", parameter ? StrCat(".", info->id) : "", rest);
  }
  for (const char* option :
       {"provider", "memory_budget_bytes", "temporary_budget_bytes", "temporary_directory",
        "pair_order_strategy", "compute_dtype", "geodesic", "in_flight", "threads"}) {
    if (path == option) return StrCat("header.execution.", path);
  }
  if (path == "dataset") {
    return header.has_dataset_input() ? "header.dataset_input" : "header.dataset_handle";
  }
  // Of a projection, and what the header's own checks have named in full.
  if (path.starts_with("projection") || path.starts_with("header.")) return path;
  return StrCat("header.", path);
}

template <typename T, typename Values>
absl::Status Append(const Values& values, int64_t rows, std::string_view field, Labels* labels) {
  if (std::holds_alternative<std::monostate>(*labels)) *labels = std::vector<T>();
  auto* all = std::get_if<std::vector<T>>(labels);
  if (all == nullptr) {
    return Error(Reason::kBadLabels, "all parts of the labels must be of one kind")
        .Field(std::string(field));
  }
  if (values.empty()) {
    return Error(Reason::kMissingField, "the labels are empty").Field(std::string(field));
  }
  const int64_t count = static_cast<int64_t>(all->size()) + values.size();
  if (count > rows) {
    return Error(Reason::kBadLabels,
                 StrCat("there are at least ", count, " labels for ", rows, " rows"))
        .Field(std::string(field))
        .Meta("rows", rows)
        .Meta("labels", count);
  }
  all->insert(all->end(), values.begin(), values.end());
  return absl::OkStatus();
}

absl::Status CheckFinite(const v1::DoubleLabels& labels, std::string_view field) {
  for (int i = 0; i < labels.values_size(); ++i) {
    if (std::isfinite(labels.values(i))) continue;
    return Error(Reason::kBadLabels,
                 StrCat("label ", i, " is ", labels.values(i), "; numbers must be finite"))
        .Field(std::string(field))
        .Meta("position", i);
  }
  return absl::OkStatus();
}

// The first element that is `bad`, looked for in pieces between which the work may be cancelled;
// the number of elements when there is none.
template <typename T, typename Bad>
absl::StatusOr<int64_t> FindValue(const Tensor& matrix, const Bad& bad, const CancelToken* cancel) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  const auto count = matrix.buffer.size_bytes() / static_cast<int64_t>(sizeof(T));
  const T* values = matrix.buffer.as<T>();
  for (int64_t first = 0; first < count; first += kPiece) {
    if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
    const T* end = values + std::min(first + kPiece, count);
    const T* found = std::find_if(values + first, end, bad);
    if (found != end) return found - values;
  }
  return count;
}

template <typename T>
absl::Status CheckFinite(const Tensor& matrix, std::string_view field, const CancelToken* cancel) {
  const int64_t columns = matrix.spec.shape[1];
  const auto not_finite = [](T value) { return !std::isfinite(value); };
  TENON_ASSIGN_OR_RETURN(const int64_t i, FindValue<T>(matrix, not_finite, cancel));
  if (i == matrix.spec.shape[0] * columns) return absl::OkStatus();
  return Error(Reason::kNotFinite, StrCat("row ", i / columns, ", column ", i % columns, " is ",
                                          matrix.buffer.as<T>()[i], "; all values must be finite"))
      .Field(std::string(field))
      .Meta("row", i / columns)
      .Meta("column", i % columns);
}

}  // namespace

absl::StatusOr<TensorSpec> ReadMatrixSpec(const v1::TensorSpec& spec, std::string_view field,
                                          const Limits& limits) {
  TENON_ASSIGN_OR_RETURN(TensorSpec result, ReadTensorSpec(spec, field, limits));
  if (IsComplex(result.dtype)) {
    return Error(Reason::kUnsupportedDtype,
                 StrCat("points are real; ", DTypeName(result.dtype), " came"))
        .Field(StrCat(field, ".dtype"));
  }
  if (result.shape.size() != 2) {
    return Error(Reason::kShapeMismatch,
                 StrCat("the shape must be [rows, columns]; ", result.shape.size(), " axes came"))
        .Field(StrCat(field, ".shape"))
        .Meta("expected_rank", 2)
        .Meta("actual_rank", result.shape.size());
  }
  for (size_t axis = 0; axis < 2; ++axis) {
    if (result.shape[axis] > 0) continue;
    return Error(Reason::kShapeMismatch,
                 StrCat("there must be at least one ", axis == 0 ? "row" : "column", "; 0 came"))
        .Field(StrCat(field, ".shape[", axis, "]"))
        .Meta("actual", 0);
  }
  return result;
}

absl::Status CheckValues(const Tensor& matrix, bool finite, std::string_view field,
                         const CancelToken* cancel) {
  const DType dtype = matrix.spec.dtype;
  if (finite && dtype == DType::kFloat32) return CheckFinite<float>(matrix, field, cancel);
  if (finite && dtype == DType::kFloat64) return CheckFinite<double>(matrix, field, cancel);
  if (dtype != DType::kBool) return absl::OkStatus();
  const auto no_bool = [](uint8_t value) { return value > 1; };
  TENON_ASSIGN_OR_RETURN(const int64_t i, FindValue<uint8_t>(matrix, no_bool, cancel));
  if (i == matrix.buffer.size_bytes()) return absl::OkStatus();
  const int value = matrix.buffer.as<uint8_t>()[i];
  return Error(Reason::kBadParameter,
               StrCat("element ", i, " of the bool array is ", value, "; expected 0 or 1"))
      .Field(std::string(field))
      .Meta("position", i)
      .Meta("value", value);
}

absl::StatusOr<std::vector<RawSpec>> ReadSpecs(const v1::MeasureHeader& header,
                                               const Limits& limits) {
  if (header.specs_size() > limits.max_specs) {
    return Error(Reason::kExceedsServerLimit,
                 StrCat(header.specs_size(), " measures are asked for; at most ", limits.max_specs,
                        " are taken"))
        .Field("header.specs")
        .Meta("limit", limits.max_specs)
        .Meta("actual", header.specs_size());
  }
  std::vector<RawSpec> specs;
  for (int i = 0; i < header.specs_size(); ++i) {
    TENON_ASSIGN_OR_RETURN(RawSpec spec,
                           ReadSpec(header.specs(i), StrCat("header.specs[", i, "]")));
    specs.push_back(std::move(spec));
  }
  return specs;
}

absl::Status AsWireError(const absl::Status& status, const v1::MeasureHeader& header) {
  if (status.ok()) return status;
  const ErrorDetails details = GetErrorDetails(status);
  Error error(details.reason, std::string(status.message()));
  for (const auto& [path, description] : details.fields) {
    std::move(error).Field(HeaderPath(path, header), description);
  }
  for (const auto& [key, value] : details.metadata) std::move(error).Meta(key, value);
  return error;
}

absl::Status AppendLabels(const v1::Labels& part, int64_t rows, std::string_view field,
                          Labels* labels) {
  switch (part.values_case()) {
    case v1::Labels::kInt64S:
      return Append<int64_t>(part.int64s().values(), rows, field, labels);
    case v1::Labels::kDoubles:
      TENON_RETURN_IF_ERROR(CheckFinite(part.doubles(), field));
      return Append<double>(part.doubles().values(), rows, field, labels);
    case v1::Labels::kStrings:
      return Append<std::string>(part.strings().values(), rows, field, labels);
    case v1::Labels::VALUES_NOT_SET:
      break;
  }
  return Error(Reason::kMissingField, "the labels hold no values").Field(std::string(field));
}

int64_t LabelCount(const Labels& labels) {
  return std::visit(
      [](const auto& values) -> int64_t {
        if constexpr (std::is_same_v<std::decay_t<decltype(values)>, std::monostate>) {
          return 0;
        } else {
          return static_cast<int64_t>(values.size());
        }
      },
      labels);
}

void WriteScores(const std::vector<measurement::MeasureSpec>& specs,
                 const measurement::ProjectionScores& scores, v1::MeasureScores* out) {
  for (size_t i = 0; i < scores.specs.size(); ++i) {
    v1::SpecScores* spec = out->add_specs();
    spec->set_id(specs[i].info->id);
    const measurement::MeasureScores& result = scores.specs[i];
    for (const auto& [key, value] : result.scores) (*spec->mutable_values())[key] = value;
    if (result.seed.has_value()) spec->set_seed(*result.seed);
    if (result.error.ok()) continue;
    const ErrorDetails details = GetErrorDetails(result.error);
    Error error(details.reason, std::string(result.error.message()));
    for (const auto& [key, value] : details.metadata) std::move(error).Meta(key, value);
    *spec->mutable_error() = ToErrorDetail(std::move(error).Field(StrCat("header.specs[", i, "]")));
  }
}

}  // namespace tenon::server
