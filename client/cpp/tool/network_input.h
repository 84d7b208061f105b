// What `contract`, `estimate` and `plan` have in common: the expression, its operands, and the
// options that say how to run.

#ifndef TENON_CLIENT_CPP_TOOL_NETWORK_INPUT_H_
#define TENON_CLIENT_CPP_TOOL_NETWORK_INPUT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/plan_file.h"
#include "client/cpp/tool/arguments.h"
#include "tenon/contract.h"

namespace tenon::tool {

// A request and the arrays that its views show.
struct NetworkInput {
  std::string name;  // of the network; the expression itself for an einsum
  client::ContractRequest request;
  std::vector<Tensor> arrays;
  std::optional<PlanFile> plan;  // that --plan names; the request has its path and slices
};

// --plan and --plan-id, which all commands take but the one that makes plans.
std::vector<Option> PlanChoiceOptions();

// Options of LoadNetworkInput.
std::vector<Option> NetworkOptions();

// Reads the first positional argument, a network file or an einsum, and the operands. Without
// `with_arrays` only their types and shapes are found out, where nothing better is known from
// --shape.
// A path in a network file is used unless `leave_path`.
absl::StatusOr<NetworkInput> LoadNetworkInput(const Arguments& arguments, bool with_arrays,
                                              bool leave_path = false);

// --providers, --threads, --memory-budget and the other options that say how to run.
absl::Status SetExecution(const Arguments& arguments, v1::ContractExecution* execution);

// The network of the request with the sizes of all indices.
Network NetworkOf(const NetworkInput& input);

// Whether `argument` names a network file and not an einsum.
bool IsNetworkFile(const std::string& argument);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_NETWORK_INPUT_H_
