#include "client/cpp/tool/json.h"

#include <charconv>
#include <cmath>
#include <complex>
#include <map>
#include <span>
#include <vector>

#include "absl/strings/ascii.h"
#include "backends/core/error.h"
#include "google/protobuf/timestamp.pb.h"
#include "google/protobuf/util/time_util.h"

namespace tenon::tool {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The prefix that all values of an enumeration share, from the name of the zero.
std::string Prefix(const EnumDescriptor* type) {
  constexpr std::string_view kZero = "UNSPECIFIED";
  const std::string& name = type->value(0)->name();
  return name.size() > kZero.size() ? name.substr(0, name.size() - kZero.size()) : "";
}

Json EnumToJson(const EnumDescriptor* type, int number) {
  const EnumValueDescriptor* value = type->FindValueByNumber(number);
  return value == nullptr ? Json(number) : Json(ShortName(value));
}

Json ScalarToJson(const Message& message, const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->GetFloat(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumToJson(field->enum_type(), reflection->GetEnumValue(message, field));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->GetString(message, field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(reflection->GetMessage(message, field));
  }
  return nullptr;
}

Json ElementToJson(const Message& message, const FieldDescriptor* field, int i) {
  const Reflection* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->GetRepeatedInt32(message, field, i);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->GetRepeatedInt64(message, field, i);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->GetRepeatedUInt32(message, field, i);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->GetRepeatedUInt64(message, field, i);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->GetRepeatedDouble(message, field, i);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->GetRepeatedFloat(message, field, i);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetRepeatedBool(message, field, i);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumToJson(field->enum_type(), reflection->GetRepeatedEnumValue(message, field, i));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->GetRepeatedString(message, field, i);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(reflection->GetRepeatedMessage(message, field, i));
  }
  return nullptr;
}

std::string KeyText(const Json& key) {
  return key.is_string() ? key.get<std::string>() : key.dump();
}

Json MapToJson(const Message& message, const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  const auto* entry_type = field->message_type();
  // Sorted, because the order within a map changes from run to run.
  std::map<std::string, Json> entries;
  for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
    const Message& entry = reflection->GetRepeatedMessage(message, field, i);
    entries[KeyText(ScalarToJson(entry, entry_type->map_key()))] =
        ScalarToJson(entry, entry_type->map_value());
  }
  Json object = Json::object();
  for (auto& [key, value] : entries) object[key] = std::move(value);
  return object;
}

Json FieldToJson(const Message& message, const FieldDescriptor* field) {
  if (field->is_map()) return MapToJson(message, field);
  if (!field->is_repeated()) return ScalarToJson(message, field);
  Json list = Json::array();
  const int size = message.GetReflection()->FieldSize(message, field);
  for (int i = 0; i < size; ++i) list.push_back(ElementToJson(message, field, i));
  return list;
}

void AppendNumber(double value, std::string* out) {
  if (!std::isfinite(value)) {
    *out += "null";
    return;
  }
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  if (error == std::errc()) out->append(text, end);
}

template <typename T>
void AppendElement(const T& value, std::string* out) {
  AppendNumber(static_cast<double>(value), out);
}
template <typename T>
void AppendElement(const std::complex<T>& value, std::string* out) {
  *out += "[";
  AppendElement(value.real(), out);
  *out += ", ";
  AppendElement(value.imag(), out);
  *out += "]";
}

// Whether the nested lists of a tensor without elements would still be too many to write.
bool IsVastAndEmpty(std::span<const int64_t> shape) {
  constexpr double kMostLists = 1e6;
  double lists = 1;
  for (const int64_t extent : shape) {
    if (extent == 0) return lists > kMostLists;
    lists *= static_cast<double>(extent);
  }
  return false;
}

// Writes in pieces: a document in memory would be many times larger than the tensor.
template <typename T>
void WriteElements(const Tensor& tensor, std::ostream* out) {
  constexpr size_t kFlushBytes = size_t{1} << 16;
  const T* element = tensor.buffer.as<T>();
  const std::vector<int64_t>& shape = tensor.spec.shape;
  if (IsVastAndEmpty(shape)) {
    *out << "[]";
    return;
  }
  std::string text;
  // Depth first over the axes: a list is opened, its parts follow, it is closed.
  const auto write = [&](const auto& self, size_t axis) -> void {
    if (axis == shape.size()) {
      AppendElement(*element++, &text);
      return;
    }
    text += "[";
    for (int64_t i = 0; i < shape[axis]; ++i) {
      if (i > 0) text += ", ";
      self(self, axis + 1);
      if (text.size() >= kFlushBytes) {
        *out << text;
        text.clear();
      }
    }
    text += "]";
  };
  write(write, 0);
  *out << text;
}

}  // namespace

std::string ShortName(const EnumValueDescriptor* value) {
  return absl::AsciiStrToLower(value->name().substr(Prefix(value->type()).size()));
}

Json MessageToJson(const Message& message) {
  if (const auto* time = dynamic_cast<const google::protobuf::Timestamp*>(&message)) {
    return google::protobuf::util::TimeUtil::ToString(*time);
  }
  Json object = Json::object();
  const auto* type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->type() == FieldDescriptor::TYPE_BYTES) continue;
    const bool absent = field->has_presence() && !message.GetReflection()->HasField(message, field);
    if (!absent) {
      object[field->name()] = FieldToJson(message, field);
    } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE &&
               field->real_containing_oneof() == nullptr) {
      object[field->name()] = nullptr;
    }
  }
  return object;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status WriteTensorJson(const Tensor& tensor, std::ostream* out) {
  switch (tensor.spec.dtype) {
    case DType::kFloat32:
      WriteElements<float>(tensor, out);
      return absl::OkStatus();
    case DType::kFloat64:
      WriteElements<double>(tensor, out);
      return absl::OkStatus();
    case DType::kComplex64:
      WriteElements<std::complex<float>>(tensor, out);
      return absl::OkStatus();
    case DType::kComplex128:
      WriteElements<std::complex<double>>(tensor, out);
      return absl::OkStatus();
    default:
      return Error(Reason::kUnsupportedDtype,
                   StrCat("a tensor of ", DTypeName(tensor.spec.dtype), " can't be printed"));
  }
}

}  // namespace tenon::tool
