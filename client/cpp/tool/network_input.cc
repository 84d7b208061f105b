#include "client/cpp/tool/network_input.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "backends/core/error.h"
#include "backends/core/file.h"
#include "backends/core/network.h"
#include "backends/core/npy.h"
#include "client/cpp/tool/search_input.h"
#include "client/cpp/tool/values.h"

namespace tenon::tool {
namespace {

absl::StatusOr<std::optional<DType>> GetDType(const Arguments& arguments) {
  const std::optional<std::string> name = arguments.Get("dtype");
  if (!name.has_value()) return std::optional<DType>();
  const absl::StatusOr<DType> dtype = DTypeFromName(*name);
  if (!dtype.ok() || !IsContractionDType(*dtype)) {
    return Error(Reason::kBadParameter,
                 StrCat("--dtype is '", *name,
                        "'; expected is float32, float64, complex64 or complex128"))
        .Field("--dtype");
  }
  return std::optional<DType>(*dtype);
}

// An array of a file, in an element type that can be contracted.
absl::StatusOr<Tensor> LoadArray(const std::string& path, std::optional<DType> dtype) {
  TENON_ASSIGN_OR_RETURN(Tensor tensor, ReadNpyFile(path));
  const DType natural = IsContractionDType(tensor.spec.dtype) ? tensor.spec.dtype : DType::kFloat64;
  const DType wanted = dtype.value_or(natural);
  if (tensor.spec.dtype == wanted) return tensor;
  absl::StatusOr<Tensor> converted = ConvertTensor(tensor, wanted);
  if (converted.ok()) return converted;
  return Error(GetErrorDetails(converted.status()).reason,
               StrCat("'", path, "': ", converted.status().message()))
      .Field("--dtype");
}

// The files of --operand by position.
absl::StatusOr<std::map<int64_t, std::string>> GetOperandFiles(const Arguments& arguments,
                                                               size_t count) {
  std::map<int64_t, std::string> files;
  for (const std::string& text : arguments.All("operand")) {
    TENON_ASSIGN_OR_RETURN(auto file, ParseNumbered(text, "--operand"));
    if (static_cast<uint64_t>(file.first) >= count) {
      return Error(Reason::kBadParameter,
                   StrCat("--operand names tensor ", file.first, ", but the network has ", count))
          .Field("--operand");
    }
    if (!files.insert(std::move(file)).second) {
      return Error(Reason::kBadParameter, StrCat("--operand ", text, " is given twice"))
          .Field("--operand");
    }
  }
  return files;
}

// Tensor `k` of a network file by the rule of its seed.
absl::StatusOr<Tensor> MakeArray(const NetworkFile& file, size_t k, TensorSpec spec) {
  if (!file.seed.has_value()) {
    return Error(Reason::kMissingField,
                 StrCat("the file has no 'seed' to make arrays from; give tensor ", k,
                        " with --operand ", k, "=FILE.npy"))
        .Field("--operand");
  }
  return MakeCorpusTensor(*file.seed, k, file.scales[k], spec);
}

absl::Status LoadOperands(const NetworkFile& file, const Arguments& arguments, bool with_arrays,
                          NetworkInput* input) {
  TENON_ASSIGN_OR_RETURN(const auto dtype, GetDType(arguments));
  TENON_ASSIGN_OR_RETURN(const auto files, GetOperandFiles(arguments, file.network.inputs.size()));
  const DType made = dtype.value_or(file.dtype.value_or(DType::kFloat64));
  // Views are made when the arrays no longer move.
  std::vector<TensorSpec> specs;
  for (size_t k = 0; k < file.network.inputs.size(); ++k) {
    const auto given = files.find(static_cast<int64_t>(k));
    if (given != files.end()) {
      TENON_ASSIGN_OR_RETURN(Tensor tensor, LoadArray(given->second, dtype));
      specs.push_back(tensor.spec);
      input->arrays.push_back(std::move(tensor));
      continue;
    }
    TENON_ASSIGN_OR_RETURN(std::vector<int64_t> shape, InputShape(file.network, k));
    specs.push_back({made, std::move(shape)});
    if (!with_arrays) continue;
    TENON_ASSIGN_OR_RETURN(Tensor tensor, MakeArray(file, k, specs.back()));
    input->arrays.push_back(std::move(tensor));
  }
  for (size_t k = 0; k < specs.size(); ++k) {
    input->request.operands.push_back(with_arrays
                                          ? client::Operand(input->arrays[k])
                                          : client::Operand(client::TensorView(specs[k], {})));
  }
  return absl::OkStatus();
}

absl::Status LoadFile(const std::string& path, const Arguments& arguments, bool with_arrays,
                      bool leave_path, NetworkInput* input) {
  if (arguments.positionals().size() > 1) {
    return Error(Reason::kBadParameter,
                 StrCat("'", arguments.positionals()[1],
                        "' follows a network file; its arrays are given by --operand"));
  }
  if (arguments.Has("shape")) {
    return Error(Reason::kBadParameter, "--shape is for einsum expressions only").Field("--shape");
  }
  TENON_ASSIGN_OR_RETURN(NetworkFile file, ReadNetworkFile(path));
  input->name = file.name.empty() ? path : file.name;
  TENON_RETURN_IF_ERROR(LoadOperands(file, arguments, with_arrays, input));
  if (!leave_path && file.path.has_value()) {
    input->request.path = std::move(file.path);
    input->request.sliced = std::move(file.sliced);
  }
  input->request.network = std::move(file.network);
  return absl::OkStatus();
}

absl::Status LoadEinsum(const Arguments& arguments, bool with_arrays, NetworkInput* input) {
  const std::vector<std::string>& positionals = arguments.positionals();
  if (arguments.Has("operand")) {
    return Error(Reason::kBadParameter,
                 "--operand is for network files; the arrays of an einsum follow it")
        .Field("--operand");
  }
  TENON_ASSIGN_OR_RETURN(const Network network, ParseEinsum(positionals[0]));
  TENON_ASSIGN_OR_RETURN(const auto dtype, GetDType(arguments));
  input->name = positionals[0];
  input->request.einsum = positionals[0];
  for (size_t i = 1; i < positionals.size(); ++i) {
    TENON_ASSIGN_OR_RETURN(Tensor tensor, LoadArray(positionals[i], dtype));
    input->arrays.push_back(std::move(tensor));
  }
  for (const Tensor& tensor : input->arrays) input->request.operands.emplace_back(tensor);
  if (!with_arrays) {
    for (const std::string& text : arguments.All("shape")) {
      TENON_ASSIGN_OR_RETURN(std::vector<int64_t> shape, ParseShape(text, "--shape"));
      input->request.operands.push_back(
          client::TensorView({dtype.value_or(DType::kFloat64), std::move(shape)}, {}));
    }
  }
  if (input->request.operands.size() == network.inputs.size()) return absl::OkStatus();
  return Error(
      Reason::kBadParameter,
      StrCat("the einsum '", positionals[0], "' has ", network.inputs.size(), " operand(s), but ",
             input->request.operands.size(), " given",
             positionals[0].find("->") == std::string::npos ? "; and no network file has this name"
                                                            : ""));
}

// What --plan leaves no room for.
absl::Status CheckPlanStandsAlone(const Arguments& arguments) {
  if (arguments.Has("replan")) {
    return Error(Reason::kBadParameter, "--plan gives the plan that --replan asks the server for")
        .Field("--replan");
  }
  for (const Option& option : SearchOptionsOfTool()) {
    if (!arguments.Has(option.name)) continue;
    return Error(Reason::kBadParameter,
                 StrCat("--plan gives the plan, so there is no search for --", option.name))
        .Field(StrCat("--", option.name));
  }
  return absl::OkStatus();
}

absl::Status ReadPlan(const std::string& path, NetworkInput* input) {
  TENON_ASSIGN_OR_RETURN(const Buffer text, ReadFile(path));
  absl::StatusOr<PlanFile> plan = ParsePlanFile(AsText(text));
  const absl::Status used =
      plan.ok() ? UsePlanFile(*plan, NetworkOf(*input), &input->request) : plan.status();
  if (!used.ok()) return NamePlanFile(used, path);
  input->plan = *std::move(plan);
  return absl::OkStatus();
}

// --target-size and its like, and --plan.
absl::Status SetPlan(const Arguments& arguments, NetworkInput* input) {
  client::ContractRequest* request = &input->request;
  if (const auto plan = arguments.Get("plan")) {
    TENON_RETURN_IF_ERROR(CheckPlanStandsAlone(arguments));
    return ReadPlan(*plan, input);
  }
  TENON_ASSIGN_OR_RETURN(request->search, ReadSearch(arguments));
  if (request->search.has_value() && request->path.has_value()) {
    return Error(Reason::kBadParameter,
                 "the file has a path, so there is no search to be told anything; add --replan")
        .Field("--replan");
  }
  return absl::OkStatus();
}

absl::Status SetSliceGroups(const std::string& text, v1::ContractExecution* execution) {
  const size_t colon = text.find(':');
  const auto first = ParseShape(text.substr(0, colon), "--slice-groups");
  const auto last =
      ParseShape(colon == std::string::npos ? "" : text.substr(colon + 1), "--slice-groups");
  if (!first.ok() || !last.ok() || first->size() != 1 || last->size() != 1) {
    return Error(Reason::kBadParameter,
                 StrCat("--slice-groups is '", text, "'; expected is FIRST:LAST, such as 0:4"))
        .Field("--slice-groups");
  }
  execution->mutable_slice_groups()->set_first((*first)[0]);
  execution->mutable_slice_groups()->set_last((*last)[0]);
  return absl::OkStatus();
}

}  // namespace

absl::Status SetExecution(const Arguments& arguments, v1::ContractExecution* execution) {
  TENON_ASSIGN_OR_RETURN(const auto providers,
                         GetParsed<std::vector<std::string>>(arguments, "providers", ParseNames));
  if (providers.has_value()) {
    execution->mutable_providers()->Add(providers->begin(), providers->end());
  }
  TENON_ASSIGN_OR_RETURN(const auto threads,
                         GetParsed<int32_t>(arguments, "threads", ParseSmallCount));
  if (threads.has_value()) execution->set_threads(*threads);
  TENON_ASSIGN_OR_RETURN(const auto budget,
                         GetParsed<int64_t>(arguments, "memory-budget", ParseSize));
  if (budget.has_value()) execution->set_memory_budget_bytes(*budget);
  execution->set_deterministic(arguments.Has("deterministic"));
  execution->set_normalize(arguments.Has("normalize"));
  execution->set_required_fingerprint(arguments.Get("fingerprint").value_or(""));
  if (const auto groups = arguments.Get("slice-groups")) {
    TENON_RETURN_IF_ERROR(SetSliceGroups(*groups, execution));
  }
  return absl::OkStatus();
}

std::vector<Option> NetworkOptions() {
  std::vector<Option> options = {
      {"operand", "I=FILE.npy", "Array of tensor I of a network file, counted from 0.", true},
      {"replan", "", "Leave the path and slices of the file alone and let the server plan."},
      {"dtype", "TYPE",
       "float32, float64, complex64 or complex128 for all operands (default: the "
       "file's; of .npy files their own, integers as float64)."},
      {"providers", "NAMES",
       "Providers that may take part, with commas between, the preferred one "
       "first (default: cpu)."},
      {"threads", "N", "Threads on the CPU; never changes the result."},
      {"memory-budget", "SIZE", "Largest planned peak, such as 4GiB."},
      {"slice-groups", "A:B", "Only the partial sum of the slice groups from A to before B."},
      {"deterministic", "", "Pin which provider does which slices."},
      {"normalize", "",
       "Rescale intermediates, so that none over- or underflows; the result then has a power of "
       "ten "
       "beside it."},
      {"fingerprint", "TEXT", "Refuse to run any other program than this one."},
  };
  for (Option& option : SearchOptionsOfTool()) options.push_back(std::move(option));
  return options;
}

bool IsNetworkFile(const std::string& argument) {
  std::error_code error;
  return argument.ends_with(".json") || std::filesystem::is_regular_file(argument, error);
}

Network NetworkOf(const NetworkInput& input) {
  Network network;
  if (input.request.network.has_value()) {
    network = *input.request.network;
  } else {
    network = ParseEinsum(input.request.einsum).value_or(Network());
  }
  for (size_t k = 0; k < network.inputs.size(); ++k) {
    const std::vector<int64_t>& shape = input.request.operands[k].tensor.spec.shape;
    for (size_t axis = 0; axis < std::min(shape.size(), network.inputs[k].size()); ++axis) {
      network.sizes.emplace(network.inputs[k][axis], shape[axis]);
    }
  }
  return network;
}

absl::StatusOr<NetworkInput> LoadNetworkInput(const Arguments& arguments, bool with_arrays,
                                              bool leave_path) {
  NetworkInput input;
  const std::string& expression = arguments.positionals()[0];
  if (IsNetworkFile(expression)) {
    TENON_RETURN_IF_ERROR(LoadFile(expression, arguments, with_arrays,
                                   leave_path || arguments.Has("replan"), &input));
  } else {
    TENON_RETURN_IF_ERROR(LoadEinsum(arguments, with_arrays, &input));
  }
  TENON_RETURN_IF_ERROR(SetPlan(arguments, &input));
  TENON_RETURN_IF_ERROR(SetExecution(arguments, &input.request.execution));
  return input;
}

}  // namespace tenon::tool
