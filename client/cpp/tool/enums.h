// Values of enumerations of the wire, written short: "weighted" for SEARCH_OBJECTIVE_WEIGHTED.

#ifndef TENON_CLIENT_CPP_TOOL_ENUMS_H_
#define TENON_CLIENT_CPP_TOOL_ENUMS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/error.h"
#include "client/cpp/tool/arguments.h"
#include "client/cpp/tool/json.h"

namespace tenon::tool {

// All known ones but the first, which says that nothing is given.
template <typename Enum>
std::vector<std::string> EnumNames() {
  const auto* type = google::protobuf::GetEnumDescriptor<Enum>();
  std::vector<std::string> names;
  for (int i = 1; i < type->value_count(); ++i) names.push_back(ShortName(type->value(i)));
  return names;
}

// The value of this name; BAD_PARAMETER with the option as field.
template <typename Enum>
absl::StatusOr<Enum> ParseEnum(const std::string& text, const std::string& option) {
  const auto* type = google::protobuf::GetEnumDescriptor<Enum>();
  std::string names;
  for (int i = 1; i < type->value_count(); ++i) {
    const std::string name = ShortName(type->value(i));
    if (name == text) return static_cast<Enum>(type->value(i)->number());
    names += StrCat(i == 1 ? "" : i + 1 == type->value_count() ? " or " : ", ", name);
  }
  return Error(Reason::kBadParameter, StrCat("--", option, " is '", text, "'; expected is ", names))
      .Field(StrCat("--", option));
}

// The value of an option; unspecified when it is not given.
template <typename Enum>
absl::StatusOr<Enum> GetEnum(const Arguments& arguments, const std::string& option) {
  const auto text = arguments.Get(option);
  if (!text.has_value()) return Enum();
  return ParseEnum<Enum>(*text, option);
}

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_ENUMS_H_
