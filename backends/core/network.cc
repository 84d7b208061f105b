#include "backends/core/network.h"

#include <limits>
#include <new>
#include <nlohmann/json.hpp>

#include "backends/core/error.h"
#include "backends/core/file.h"
#include "backends/core/utf8.h"

namespace tenon {
namespace {

using Json = nlohmann::json;

// A parsed file takes tens of times its text; this keeps a hostile one harmless.
constexpr size_t kMaxJsonBytes = size_t{16} << 20;
constexpr size_t kMaxEquationBytes = size_t{1} << 20;
// The deepest value of a network is a number in a step of a path; the rest is room for other keys.
constexpr int kMaxDepth = 32;

// The value of a key, or null when it is absent.
const Json* Find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// An error about the value of `key`, which is also the field.
Error BadValue(Reason reason, const std::string& key, const std::string& what) {
  return Error(reason, StrCat("'", key, "' ", what)).Field(key);
}

// The integer in `value`, if it is one and fits.
bool ReadInteger(const Json& value, int64_t* result) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  *result = value.get<int64_t>();
  return true;
}

absl::StatusOr<std::string> ReadString(const Json& value, const std::string& key) {
  if (!value.is_string()) return BadValue(Reason::kBadExpression, key, "is not a string");
  return value.get<std::string>();
}

// A list of index names, which may be written as integers. `where` says which list of the key.
absl::StatusOr<std::vector<std::string>> ReadNames(const Json& value, Reason reason,
                                                   const std::string& key,
                                                   const std::string& where) {
  if (!value.is_array()) return BadValue(reason, key, StrCat(where, "is not a list"));
  std::vector<std::string> names;
  names.reserve(value.size());
  for (const Json& element : value) {
    if (element.is_number_integer()) {
      names.push_back(element.dump());
    } else if (element.is_string() && !element.get_ref<const std::string&>().empty()) {
      names.push_back(element.get<std::string>());
    } else {
      return BadValue(reason, key,
                      StrCat(where, "holds at ", names.size(),
                             " what is neither an index name nor an integer"));
    }
  }
  return names;
}

absl::StatusOr<std::vector<std::vector<std::string>>> ReadInputs(const Json& file) {
  const Json* value = Find(file, "inputs");
  if (value == nullptr) return BadValue(Reason::kBadExpression, "inputs", "is missing");
  if (!value->is_array()) return BadValue(Reason::kBadExpression, "inputs", "is not a list");
  std::vector<std::vector<std::string>> inputs;
  inputs.reserve(value->size());
  for (const Json& input : *value) {
    TENON_ASSIGN_OR_RETURN(auto names, ReadNames(input, Reason::kBadExpression, "inputs",
                                                 StrCat("at ", inputs.size(), " ")));
    inputs.push_back(std::move(names));
  }
  return inputs;
}

absl::StatusOr<std::map<std::string, int64_t>> ReadSizes(const Json& file) {
  const Json* value = Find(file, "size_dict");
  if (value == nullptr) return BadValue(Reason::kBadExpression, "size_dict", "is missing");
  if (!value->is_object()) return BadValue(Reason::kBadExpression, "size_dict", "is not an object");
  std::map<std::string, int64_t> sizes;
  for (const auto& [name, size] : value->items()) {
    if (name.empty()) return BadValue(Reason::kBadExpression, "size_dict", "has an empty name");
    if (!ReadInteger(size, &sizes[name])) {
      return BadValue(Reason::kBadExpression, "size_dict",
                      StrCat("gives index '", name, "' a size that is no integer of 63 bits"));
    }
  }
  return sizes;
}

absl::StatusOr<Network> ReadNetwork(const Json& file) {
  Network network;
  TENON_ASSIGN_OR_RETURN(network.inputs, ReadInputs(file));
  const Json* output = Find(file, "output");
  if (output == nullptr) return BadValue(Reason::kBadExpression, "output", "is missing");
  TENON_ASSIGN_OR_RETURN(network.output, ReadNames(*output, Reason::kBadExpression, "output", ""));
  TENON_ASSIGN_OR_RETURN(network.sizes, ReadSizes(file));
  return network;
}

absl::StatusOr<std::vector<std::vector<int64_t>>> ReadSteps(const Json& value,
                                                            const std::string& key) {
  if (!value.is_array()) return BadValue(Reason::kBadPath, key, "is not a list");
  std::vector<std::vector<int64_t>> steps;
  steps.reserve(value.size());
  for (const Json& entry : value) {
    if (!entry.is_array()) {
      return BadValue(Reason::kBadPath, key, StrCat("at step ", steps.size(), " is not a list"));
    }
    std::vector<int64_t> step(entry.size());
    for (size_t i = 0; i < step.size(); ++i) {
      if (!ReadInteger(entry[i], &step[i])) {
        return BadValue(Reason::kBadPath, key,
                        StrCat("at step ", steps.size(), " holds what is no integer of 63 bits"));
      }
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

absl::StatusOr<std::optional<PathSteps>> ReadPath(const Json& file) {
  const Json* ssa = Find(file, "path_ssa");
  const Json* linear = Find(file, "path_linear");
  if (ssa == nullptr && linear == nullptr) return std::nullopt;
  if (ssa != nullptr && linear != nullptr) {
    return BadValue(Reason::kBadPath, "path_linear", "stands beside 'path_ssa'; give one of them");
  }
  PathSteps path;
  path.format = ssa != nullptr ? PathSteps::Format::kSsa : PathSteps::Format::kLinear;
  TENON_ASSIGN_OR_RETURN(
      path.steps, ssa != nullptr ? ReadSteps(*ssa, "path_ssa") : ReadSteps(*linear, "path_linear"));
  return path;
}

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
  if (!file.is_object()) return BadValue(Reason::kBadExpression, "json", "is not a JSON object");
  NetworkFile result;
  if (const Json* name = Find(file, "name"); name != nullptr) {
    TENON_ASSIGN_OR_RETURN(result.name, ReadString(*name, "name"));
  }
  TENON_ASSIGN_OR_RETURN(result.network, ReadNetwork(file));
  if (const Json* dtype = Find(file, "dtype"); dtype != nullptr) {
    TENON_ASSIGN_OR_RETURN(const std::string name, ReadString(*dtype, "dtype"));
    const absl::StatusOr<DType> known = DTypeFromName(name);
    if (!known.ok() || !IsContractionDType(*known)) {
      return BadValue(Reason::kUnsupportedDtype, "dtype",
                      "is not float32, float64, complex64 or complex128");
    }
    result.dtype = *known;
  }
  TENON_ASSIGN_OR_RETURN(result.path, ReadPath(file));
  if (const Json* sliced = Find(file, "sliced"); sliced != nullptr) {
    TENON_ASSIGN_OR_RETURN(result.sliced, ReadNames(*sliced, Reason::kBadSlice, "sliced", ""));
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

Error OutOfMemory(std::string_view what) {
  return Error(Reason::kExceedsMemoryBudget, StrCat("there is no memory left to read ", what));
}

}  // namespace

absl::StatusOr<NetworkFile> ParseNetworkJson(std::string_view json) {
  if (json.size() > kMaxJsonBytes) {
    return BadValue(Reason::kBadExpression, "json", StrCat("is over ", kMaxJsonBytes, " bytes"))
        .Meta("bytes", json.size())
        .Meta("limit_bytes", kMaxJsonBytes);
  }
  try {
    bool too_deep = false;
    const auto keep = [&too_deep](int depth, Json::parse_event_t, const Json&) {
      if (depth > kMaxDepth) too_deep = true;
      return !too_deep;
    };
    const Json file = Json::parse(json.begin(), json.end(), keep);
    if (too_deep) {
      return BadValue(Reason::kBadExpression, "json", StrCat("nests deeper than ", kMaxDepth));
    }
    return ReadNetworkObject(file);
  } catch (const Json::exception& error) {
    return BadValue(Reason::kBadExpression, "json", StrCat("is malformed: ", error.what()));
  } catch (const std::bad_alloc&) {
    return OutOfMemory("the network");
  }
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
    return OutOfMemory("the equation");
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
