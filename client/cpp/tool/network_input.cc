#include "client/cpp/tool/network_input.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "backends/core/error.h"
#include "backends/core/file.h"
#include "backends/core/network.h"
#include "client/cpp/tool/npz.h"
#include "client/cpp/tool/request_options.h"
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

// Operands that the server keeps are told by their name instead of a file.
bool IsHandle(const std::string& path) { return path.rfind("tensors/", 0) == 0; }

// An array of a file, in an element type that can be contracted.
absl::StatusOr<Tensor> LoadArray(const std::string& path, std::optional<DType> dtype) {
  TENON_ASSIGN_OR_RETURN(Tensor tensor, LoadArrayFile(path));
  const DType natural = IsContractionDType(tensor.spec.dtype) ? tensor.spec.dtype : DType::kFloat64;
  const DType wanted = dtype.value_or(natural);
  if (tensor.spec.dtype == wanted) return tensor;
  absl::StatusOr<Tensor> converted = ConvertTensor(tensor, wanted);
  if (converted.ok()) return converted;
  return Error(GetErrorDetails(converted.status()).reason,
               StrCat("'", path, "': ", converted.status().message()))
      .Field("--dtype");
}

// The files of --operand or --varying by position.
absl::StatusOr<std::map<int64_t, std::string>> GetOperandFiles(const Arguments& arguments,
                                                               const std::string& option,
                                                               size_t count) {
  std::map<int64_t, std::string> files;
  const std::string name = StrCat("--", option);
  for (const std::string& text : arguments.All(option)) {
    TENON_ASSIGN_OR_RETURN(auto file, ParseNumbered(text, name));
    if (static_cast<uint64_t>(file.first) >= count) {
      return Error(Reason::kBadParameter,
                   StrCat(name, " names tensor ", file.first, ", but the network has ", count))
          .Field(name);
    }
    if (!files.insert(std::move(file)).second) {
      return Error(Reason::kBadParameter, StrCat(name, " ", text, " is given twice")).Field(name);
    }
  }
  return files;
}

// The arrays of --operands, in the order of the archive.
absl::Status AddArchive(const Arguments& arguments, size_t count,
                        std::map<int64_t, std::string>* files) {
  const auto archive = arguments.Get("operands");
  if (!archive.has_value()) return absl::OkStatus();
  const auto bad = [](const std::string& what) {
    return Error(Reason::kBadParameter, what).Field("--operands");
  };
  if (!files->empty()) return bad("--operands gives all arrays, so there is no --operand");
  TENON_ASSIGN_OR_RETURN(const std::vector<std::string> arrays, ArraysIn(*archive));
  if (arrays.size() != count) {
    return bad(StrCat("'", *archive, "' has ", arrays.size(), " arrays, but the network has ",
                      count, " tensors"));
  }
  for (size_t k = 0; k < count; ++k) files->emplace(k, arrays[k]);
  return absl::OkStatus();
}

// Operands of --varying take one value after the other along the first axis of their array.
absl::Status SetVarying(const std::map<int64_t, std::string>& files, std::optional<DType> dtype,
                        bool with_arrays, client::ContractRequest* request) {
  if (files.empty()) return absl::OkStatus();
  const auto bad = [](const std::string& path, const std::string& what) {
    return Error(Reason::kBadParameter, StrCat("'", path, "': ", what)).Field("--varying");
  };
  auto arrays = std::make_shared<std::vector<Tensor>>();
  std::optional<int64_t> sets;
  for (const auto& [position, path] : files) {
    TENON_ASSIGN_OR_RETURN(Tensor tensor, LoadArray(path, dtype));
    std::vector<int64_t> shape = tensor.spec.shape;
    if (shape.empty()) return bad(path, "a scalar has no axis to vary along");
    if (sets.value_or(shape[0]) != shape[0]) {
      return bad(path, StrCat("it has ", shape[0], " values, but another operand has ", *sets));
    }
    sets = shape[0];
    shape.erase(shape.begin());
    client::Operand& operand = request->operands[static_cast<size_t>(position)];
    operand.varying = true;
    operand.tensor = client::TensorView({tensor.spec.dtype, std::move(shape)}, {});
    arrays->push_back(std::move(tensor));
  }
  request->expected_sets = sets;
  if (!with_arrays) return absl::OkStatus();
  request->next_set =
      [arrays, sets](int64_t set, std::vector<client::TensorView>* views) -> absl::StatusOr<bool> {
    if (set >= *sets) return false;
    for (const Tensor& array : *arrays) {
      const client::TensorView all(array);
      const size_t bytes = all.bytes.size() / static_cast<size_t>(*sets);
      TensorSpec spec = array.spec;
      spec.shape.erase(spec.shape.begin());
      views->emplace_back(std::move(spec),
                          all.bytes.subspan(static_cast<size_t>(set) * bytes, bytes));
    }
    return true;
  };
  return absl::OkStatus();
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

// The operand of a file, or of the server's store. The memory of an array stays where it is when
// the array moves, so the view holds.
absl::Status SetOperand(const std::string& path, std::optional<DType> dtype, NetworkInput* input,
                        client::Operand* operand) {
  if (IsHandle(path)) {
    operand->handle = path;
    return absl::OkStatus();
  }
  TENON_ASSIGN_OR_RETURN(Tensor tensor, LoadArray(path, dtype));
  operand->tensor = tensor;
  input->arrays.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::Status LoadOperands(const NetworkFile& file, const Arguments& arguments, bool with_arrays,
                          NetworkInput* input) {
  TENON_ASSIGN_OR_RETURN(const auto dtype, GetDType(arguments));
  const size_t count = file.network.inputs.size();
  TENON_ASSIGN_OR_RETURN(auto files, GetOperandFiles(arguments, "operand", count));
  TENON_RETURN_IF_ERROR(AddArchive(arguments, count, &files));
  TENON_ASSIGN_OR_RETURN(const auto varying, GetOperandFiles(arguments, "varying", count));
  const DType made = dtype.value_or(file.dtype.value_or(DType::kFloat64));
  for (size_t k = 0; k < count; ++k) {
    client::Operand& operand = input->request.operands.emplace_back();
    if (varying.contains(static_cast<int64_t>(k))) continue;
    const auto given = files.find(static_cast<int64_t>(k));
    if (given != files.end()) {
      TENON_RETURN_IF_ERROR(SetOperand(given->second, dtype, input, &operand));
      continue;
    }
    TENON_ASSIGN_OR_RETURN(std::vector<int64_t> shape, InputShape(file.network, k));
    operand.tensor = client::TensorView({made, std::move(shape)}, {});
    if (!with_arrays) continue;
    TENON_ASSIGN_OR_RETURN(Tensor tensor, MakeArray(file, k, operand.tensor.spec));
    operand.tensor = tensor;
    input->arrays.push_back(std::move(tensor));
  }
  return SetVarying(varying, dtype, with_arrays, &input->request);
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
  for (const char* option : {"operand", "operands"}) {
    if (!arguments.Has(option)) continue;
    return Error(Reason::kBadParameter,
                 StrCat("--", option, " is for network files; the arrays of an einsum follow it"))
        .Field(StrCat("--", option));
  }
  TENON_ASSIGN_OR_RETURN(const Network network, ParseEinsum(positionals[0]));
  TENON_ASSIGN_OR_RETURN(const auto dtype, GetDType(arguments));
  input->name = positionals[0];
  input->request.einsum = positionals[0];
  for (size_t i = 1; i < positionals.size(); ++i) {
    std::vector<std::string> paths = {positionals[i]};
    if (!IsHandle(positionals[i])) {
      TENON_ASSIGN_OR_RETURN(paths, ArraysIn(positionals[i]));
    }
    for (const std::string& path : paths) {
      client::Operand operand;
      TENON_RETURN_IF_ERROR(SetOperand(path, dtype, input, &operand));
      input->request.operands.push_back(std::move(operand));
    }
  }
  if (!with_arrays) {
    for (const std::string& text : arguments.All("shape")) {
      TENON_ASSIGN_OR_RETURN(std::vector<int64_t> shape, ParseShape(text, "--shape"));
      input->request.operands.push_back(
          client::TensorView({dtype.value_or(DType::kFloat64), std::move(shape)}, {}));
    }
  }
  TENON_ASSIGN_OR_RETURN(const auto varying,
                         GetOperandFiles(arguments, "varying", network.inputs.size()));
  // In their places between the others.
  std::vector<client::Operand>& operands = input->request.operands;
  for (const auto& [position, path] : varying) {
    operands.emplace(operands.begin() + std::min(position, static_cast<int64_t>(operands.size())));
  }
  if (operands.size() == network.inputs.size()) {
    return SetVarying(varying, dtype, with_arrays, &input->request);
  }
  return Error(
      Reason::kBadParameter,
      StrCat("the einsum '", positionals[0], "' has ", network.inputs.size(), " operand(s), but ",
             input->request.operands.size(), " given",
             positionals[0].find("->") == std::string::npos ? "; and no network file has this name"
                                                            : ""));
}

// What a given plan leaves no room for.
absl::Status CheckPlanStandsAlone(const Arguments& arguments, const std::string& given) {
  if (arguments.Has("replan")) {
    return Error(Reason::kBadParameter,
                 StrCat(given, " gives the plan that --replan asks the server for"))
        .Field("--replan");
  }
  for (const Option& option : SearchOptionsOfTool()) {
    if (!arguments.Has(option.name)) continue;
    return Error(Reason::kBadParameter,
                 StrCat(given, " gives the plan, so there is no search for --", option.name))
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
  if (const auto id = arguments.Get("plan-id")) {
    if (arguments.Has("plan")) {
      return Error(Reason::kBadParameter, "one of --plan and --plan-id is enough")
          .Field("--plan-id");
    }
    TENON_RETURN_IF_ERROR(CheckPlanStandsAlone(arguments, "--plan-id"));
    request->plan_id = *id;
    request->path.reset();
    request->sliced.clear();
    return absl::OkStatus();
  }
  if (const auto plan = arguments.Get("plan")) {
    TENON_RETURN_IF_ERROR(CheckPlanStandsAlone(arguments, "--plan"));
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
  execution->set_allow_reduced_precision(arguments.Has("reduced-precision"));
  TENON_ASSIGN_OR_RETURN(const auto accumulate,
                         GetEnum<v1::DataType>(arguments, "accumulate-dtype"));
  execution->set_accumulate_dtype(accumulate);
  execution->set_required_fingerprint(arguments.Get("fingerprint").value_or(""));
  if (const auto groups = arguments.Get("slice-groups")) {
    TENON_RETURN_IF_ERROR(SetSliceGroups(*groups, execution));
  }
  return absl::OkStatus();
}

std::vector<Option> PlanChoiceOptions() {
  return {
      {"plan", "FILE.json", "Path and slices of a plan file, in the place of the network's own."},
      {"plan-id", "ID", "A plan that this server has made, \"plans/...\"."}};
}

std::vector<Option> NetworkOptions() {
  const std::vector<std::string> dtypes = {"float32", "float64", "complex64", "complex128"};
  std::vector<Option> options = {
      {"operand", "I=FILE",
       "Array of tensor I of a network file, counted from 0: FILE.npy, FILE.npz:NAME, or "
       "tensors/... that the server keeps.",
       true},
      {"operands", "FILE.npz", "Arrays of all tensors of a network file, in the archive's order."},
      {"varying", "I=FILE",
       "Operand I takes one value after the other along the first axis of this array; each gives "
       "a result.",
       true},
      {"replan", "", "Leave the path and slices of the file alone and let the server plan."},
      {"dtype", "TYPE",
       "float32, float64, complex64 or complex128 for all operands (default: the "
       "file's; of .npy files their own, integers as float64).",
       false, dtypes},
      {"result-dtype", "TYPE", "Element type of the result (default: that of the operands).", false,
       dtypes},
      {"accumulate-dtype", "TYPE", "Element type of sums and intermediates: a wider one.", false,
       dtypes},
      {"reduced-precision", "", "Providers may use reduced precision, such as TF32."},
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
  for (Option& option : RequestOptions()) options.push_back(std::move(option));
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
  TENON_RETURN_IF_ERROR(
      SetRequestOptions(arguments, &input.request.execution, &input.request.result));
  TENON_ASSIGN_OR_RETURN(const auto result, GetEnum<v1::DataType>(arguments, "result-dtype"));
  input.request.result.set_dtype(result);
  return input;
}

}  // namespace tenon::tool
