#include "backends/core/network.h"

#include <new>

#include "backends/core/error.h"
#include "backends/core/file.h"
#include "backends/core/network_json.h"
#include "backends/core/utf8.h"

namespace tenon {
namespace {

using network_json::BadValue;
using network_json::Find;
using network_json::Json;

constexpr size_t kMaxEquationBytes = size_t{1} << 20;

// "seed" and "scales", which go together.
absl::Status ReadArrayRule(const Json& file, NetworkFile* result) {
  const Json* seed = Find(file, "seed");
  const Json* scales = Find(file, "scales");
  if (seed != nullptr) {
    if (!seed->is_number_unsigned()) {
      return BadValue(Reason::kBadExpression, "seed", "is not an integer from 0 to 2^64 - 1");
    }
    result->seed = seed->get<uint64_t>();
    if (scales == nullptr) {
      return BadValue(Reason::kBadExpression, "scales", "is missing, though 'seed' is given");
    }
  }
  if (scales == nullptr) return absl::OkStatus();
  if (!scales->is_array() || scales->size() != result->network.inputs.size()) {
    return BadValue(Reason::kBadExpression, "scales", "is not a list of one number per tensor");
  }
  for (const Json& scale : *scales) {
    if (!scale.is_number()) {
      return BadValue(Reason::kBadExpression, "scales", "holds what is no number");
    }
    result->scales.push_back(scale.get<double>());
  }
  return absl::OkStatus();
}

absl::StatusOr<NetworkFile> ReadNetworkObject(const Json& file) {
  NetworkFile result;
  if (Find(file, "inputs") == nullptr && Find(file, "schema") != nullptr) {
    return BadValue(Reason::kBadExpression, "inputs", "is missing; this is a plan, not a network");
  }
  if (const Json* name = Find(file, "name"); name != nullptr) {
    TENON_ASSIGN_OR_RETURN(result.name,
                           network_json::ReadString(*name, Reason::kBadExpression, "name"));
  }
  TENON_ASSIGN_OR_RETURN(result.network, network_json::ReadNetwork(file));
  if (const Json* dtype = Find(file, "dtype"); dtype != nullptr) {
    TENON_ASSIGN_OR_RETURN(const std::string name,
                           network_json::ReadString(*dtype, Reason::kBadExpression, "dtype"));
    const absl::StatusOr<DType> known = DTypeFromName(name);
    if (!known.ok() || !IsContractionDType(*known)) {
      return BadValue(Reason::kUnsupportedDtype, "dtype",
                      "is not float32, float64, complex64 or complex128");
    }
    result.dtype = *known;
  }
  TENON_ASSIGN_OR_RETURN(result.path, network_json::ReadPath(file));
  if (const Json* sliced = Find(file, "sliced"); sliced != nullptr) {
    TENON_ASSIGN_OR_RETURN(result.sliced,
                           network_json::ReadNames(*sliced, Reason::kBadSlice, "sliced", ""));
  }
  TENON_RETURN_IF_ERROR(ReadArrayRule(file, &result));
  return result;
}

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

Error BadEquation(size_t position, const std::string& what) {
  return Error(Reason::kBadExpression, StrCat("einsum: ", what, " at byte ", position))
      .Field("equation")
      .Meta("position_bytes", position);
}

// Index names in order of value: for UTF-8 the order of bytes is that of code points.
std::vector<std::string> NamesThatOccurOnce(const std::vector<std::vector<std::string>>& inputs) {
  std::map<std::string, int> occurrences;
  for (const auto& input : inputs) {
    for (const std::string& name : input) ++occurrences[name];
  }
  std::vector<std::string> names;
  for (const auto& [name, count] : occurrences) {
    if (count == 1) names.push_back(name);
  }
  return names;
}

absl::StatusOr<Network> SplitEquation(std::string_view equation) {
  Network network;
  network.inputs.emplace_back();
  bool in_output = false;
  for (size_t i = 0; i < equation.size();) {
    const char c = equation[i];
    const size_t length = Utf8Length(equation.substr(i));
    if (length == 0) return BadEquation(i, "ill-formed UTF-8");
    if (IsSpace(c)) {
      ++i;
    } else if (c == ',') {
      if (in_output) return BadEquation(i, "',' after '->'");
      network.inputs.emplace_back();
      ++i;
    } else if (c == '-' || c == '>') {
      if (equation.substr(i, 2) != "->") return BadEquation(i, "'-' or '>' that is not '->'");
      if (in_output) return BadEquation(i, "a second '->'");
      in_output = true;
      i += 2;
    } else if (c == '.') {
      return BadEquation(i, "'.', but an ellipsis is not supported,");
    } else {
      auto& names = in_output ? network.output : network.inputs.back();
      names.emplace_back(equation.substr(i, length));
      i += length;
    }
  }
  if (!in_output) network.output = NamesThatOccurOnce(network.inputs);
  return network;
}

}  // namespace

absl::StatusOr<NetworkFile> ParseNetworkJson(std::string_view json) {
  NetworkFile result;
  TENON_RETURN_IF_ERROR(network_json::ReadObject(
      json, Reason::kBadExpression, "the network", [&result](const Json& file) -> absl::Status {
        TENON_ASSIGN_OR_RETURN(result, ReadNetworkObject(file));
        return absl::OkStatus();
      }));
  return result;
}

absl::StatusOr<NetworkFile> ReadNetworkFile(const std::string& path) {
  TENON_ASSIGN_OR_RETURN(const Buffer bytes, ReadFile(path));
  absl::StatusOr<NetworkFile> file = ParseNetworkJson(AsText(bytes));
  if (!file.ok()) return PrefixMessage(file.status(), StrCat("'", path, "': "));
  return file;
}

absl::StatusOr<Network> ParseEinsum(std::string_view equation) {
  if (equation.size() > kMaxEquationBytes) {
    return BadEquation(kMaxEquationBytes, StrCat("more than ", kMaxEquationBytes, " bytes"));
  }
  try {
    return SplitEquation(equation);
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, "there is no memory left to read the equation");
  }
}

absl::StatusOr<std::vector<int64_t>> InputShape(const Network& network, size_t k) {
  if (k >= network.inputs.size()) {
    return Error(Reason::kBadParameter,
                 StrCat("the network has ", network.inputs.size(), " tensors and no number ", k));
  }
  std::vector<int64_t> shape;
  shape.reserve(network.inputs[k].size());
  for (const std::string& name : network.inputs[k]) {
    const auto size = network.sizes.find(name);
    if (size == network.sizes.end()) {
      return Error(Reason::kUnknownIndex,
                   StrCat("index '", name, "' of tensor ", k, " has no size"))
          .Field(StrCat("inputs[", k, "]"))
          .Meta("index", name);
    }
    shape.push_back(size->second);
  }
  return shape;
}

}  // namespace tenon
