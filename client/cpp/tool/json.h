// JSON of messages and tensors.

#ifndef TENON_CLIENT_CPP_TOOL_JSON_H_
#define TENON_CLIENT_CPP_TOOL_JSON_H_

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "backends/core/tensor.h"
#include "google/protobuf/message.h"

namespace tenon::tool {

using Json = nlohmann::ordered_json;

// A message with the names of its fields. Enumerations are written short and in lower case
// ("synchronous_host"), times as RFC 3339, optional fields that are absent as null; absent messages
// and raw bytes are left out. Numbers stay numbers, NaN and infinity become null when dumped.
Json MessageToJson(const google::protobuf::Message& message);

// "synchronous_host" for TIMING_SCOPE_SYNCHRONOUS_HOST.
std::string ShortName(const google::protobuf::EnumValueDescriptor* value);
template <typename Enum>
std::string ShortEnumName(Enum value) {
  const auto* type = google::protobuf::GetEnumDescriptor<Enum>();
  const auto* known = type->FindValueByNumber(static_cast<int>(value));
  return known == nullptr ? std::to_string(static_cast<int>(value)) : ShortName(known);
}

// One line.
std::string Dump(const Json& json);

// The elements in row-major nested lists, a scalar alone, complex ones as [re, im]. Every number
// has as many digits as it takes to read the very same float64 again (17 at most); NaN and
// infinity become null. Contraction types only.
absl::Status WriteTensorJson(const Tensor& tensor, std::ostream* out);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_JSON_H_
