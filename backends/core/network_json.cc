#include "backends/core/network_json.h"

#include <limits>
#include <new>

#include "backends/core/json_error.h"

namespace tenon::network_json {
namespace {

// A parsed file takes tens of times its text; this keeps a hostile one harmless.
constexpr size_t kMaxJsonBytes = size_t{16} << 20;
// The deepest value of a network is a number in a step of a path; the rest is room for other keys.
constexpr int kMaxDepth = 32;

// An error about the text as a whole.
Error BadText(Reason reason, const std::string& what) {
  return Error(reason, StrCat("the JSON text ", what)).Field("json");
}

}  // namespace

absl::Status ReadObject(std::string_view text, Reason reason, std::string_view what,
                        const std::function<absl::Status(const Json&)>& read) {
  if (text.size() > kMaxJsonBytes) {
    return BadText(reason, StrCat("is over ", kMaxJsonBytes, " bytes"))
        .Meta("bytes", text.size())
        .Meta("limit_bytes", kMaxJsonBytes);
  }
  try {
    bool too_deep = false;
    const auto keep = [&too_deep](int depth, Json::parse_event_t, const Json&) {
      if (depth > kMaxDepth) too_deep = true;
      return !too_deep;
    };
    const Json file = Json::parse(text.begin(), text.end(), keep);
    if (too_deep) return BadText(reason, StrCat("nests deeper than ", kMaxDepth, " levels"));
    if (!file.is_object()) return BadText(reason, "is not an object");
    return read(file);
  } catch (const Json::exception& error) {
    return BadText(reason, StrCat("is malformed: ", JsonErrorText(error.what())));
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, StrCat("there is no memory left to read ", what));
  }
}

const Json* Find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Error BadValue(Reason reason, const std::string& key, const std::string& what) {
  return Error(reason, StrCat("'", key, "' ", what)).Field(key);
}

bool ReadInteger(const Json& value, int64_t* result) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  *result = value.get<int64_t>();
  return true;
}

absl::StatusOr<std::string> ReadString(const Json& value, Reason reason, const std::string& key) {
  if (!value.is_string()) return BadValue(reason, key, "is not a string");
  return value.get<std::string>();
}

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

namespace {

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

}  // namespace

absl::Status ReadTensors(const Json& file, Network* network) {
  TENON_ASSIGN_OR_RETURN(network->inputs, ReadInputs(file));
  const Json* output = Find(file, "output");
  if (output == nullptr) return BadValue(Reason::kBadExpression, "output", "is missing");
  TENON_ASSIGN_OR_RETURN(network->output, ReadNames(*output, Reason::kBadExpression, "output", ""));
  return absl::OkStatus();
}

absl::StatusOr<Network> ReadNetwork(const Json& file) {
  Network network;
  TENON_RETURN_IF_ERROR(ReadTensors(file, &network));
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

}  // namespace tenon::network_json
