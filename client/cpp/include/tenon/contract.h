// Contractions: the question, the answer, and what is told in between.

#ifndef TENON_CLIENT_CPP_INCLUDE_TENON_CONTRACT_H_
#define TENON_CLIENT_CPP_INCLUDE_TENON_CONTRACT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/network.h"
#include "tenon/shared_memory.h"
#include "tenon/tensor_view.h"
#include "tenon/v1/contraction.pb.h"

namespace tenon::client {

// One operand. Its bytes come from `tensor`, from the server's store (`handle`), or, when it is
// varying, from ContractRequest::next_set.
struct Operand {
  // Element type and shape, and the bytes unless `handle` or `varying` say otherwise. An estimate
  // needs no bytes, and no spec where the network has all sizes (dtype kUnspecified then).
  TensorView tensor;
  // "tensors/{sha256}", or empty.
  std::string handle;
  // Every set brings its own bytes, of the shape and type of `tensor.spec`.
  bool varying = false;

  Operand() = default;
  Operand(TensorView view) : tensor(std::move(view)) {}  // NOLINT(google-explicit-constructor)
  Operand(const Tensor& owner) : tensor(owner) {}        // NOLINT(google-explicit-constructor)
};

// A contraction. Exactly one of `einsum` and `network` is given, at most one of `path`, `plan_id`
// and `search`. The bytes that the views show must stay until Contract returns.
struct ContractRequest {
  // Names the request in logs and reports, the same at every try; empty: one is drawn.
  std::string request_id;
  // "ab,bc->ac".
  std::string einsum;
  std::optional<Network> network;
  // One per operand of the expression, in its order.
  std::vector<Operand> operands;

  // The order of contraction, with `sliced` indices. None of the three: the server plans by itself.
  std::optional<PathSteps> path;
  std::vector<std::string> sliced;
  std::string plan_id;
  std::optional<v1::SearchOptions> search;
  // Of the path that Plan returns; unspecified: SSA.
  v1::PathFormat path_format = v1::PATH_FORMAT_UNSPECIFIED;

  // Providers, threads, memory and so on; every field is explained in
  // proto/tenon/v1/contraction.proto.
  v1::ContractExecution execution;
  // Element type and form of the result. With `checksums` the uploaded chunks carry one too.
  v1::ContractResultOptions result;

  // For varying operands: puts one view per varying operand, in order of the operands, into
  // `views` and returns true, or returns false when there is no further set. It runs on a thread
  // of the call, once per set in order, and early enough to keep the server busy; the bytes must
  // stay until the next call of it, or until Contract returns. An error cancels the call and is
  // returned by Contract.
  std::function<absl::StatusOr<bool>(int64_t set, std::vector<TensorView>* views)> next_set;
  // How many sets will come, a hint. Absent: unknown.
  std::optional<int64_t> expected_sets;

  // Memory shared with a server on the same host; see tenon/shared_memory.h. Operands of 64 KiB and
  // more are named instead of sent: where they lie, if that is in the pool, else where a copy fits.
  // Those that lie in the pool must stay as they are until the result of their set has come. Null:
  // everything is sent. Estimate and Plan do not look at it.
  std::shared_ptr<SharedPool> pool;
  // Results of 64 KiB and more come in the pool, while it has room: ContractResult::block.
  bool result_in_pool = false;
};

// The result of one set.
struct ContractResult {
  int64_t set = 0;
  // Without memory when `block` is there.
  Tensor tensor;
  // Holds the bytes of a result that came in shared memory; else null.
  std::shared_ptr<const SharedBlock> block;
  // With normalize: the true result is the tensor times 10 to this power.
  std::optional<double> log10_scale;
  v1::SetReport report;

  // The result, wherever its bytes are; valid as long as this is.
  TensorView view() const {
    return block != nullptr ? TensorView(tensor.spec, block->bytes()) : TensorView(tensor);
  }
};

// The answer.
struct ContractOutcome {
  // In order of sets; without varying operands exactly one. Empty when on_result took them.
  std::vector<ContractResult> results;
  v1::ContractAccepted accepted;
  v1::ContractionReport report;
};

// Called by Contract, on the thread that called it, one at a time. All may be absent.
struct ContractCallbacks {
  std::function<void(const v1::ContractAccepted&)> on_accepted = nullptr;
  // Needs execution.progress_interval_seconds.
  std::function<void(const v1::ContractProgress&)> on_progress = nullptr;
  // Takes each result when it has come. An error cancels the call and is returned by Contract.
  std::function<absl::Status(ContractResult)> on_result = nullptr;
};

// Called by Plan, on the thread that called it, one at a time. Both may be absent.
struct PlanCallbacks {
  // Every better plan.
  std::function<void(const v1::PlanImprovement&)> on_improvement = nullptr;
  // Needs execution.progress_interval_seconds.
  std::function<void(const v1::PlanProgress&)> on_progress = nullptr;
};

// The header of the call without inline bytes: what Contract and Estimate send. Checks what can be
// checked here: one expression, byte counts that fit the shapes (SHAPE_MISMATCH), well-formed
// UTF-8 (BAD_EXPRESSION). With `need_bytes` every operand must have a source of its bytes
// (MISSING_FIELD). Field paths are those of the wire.
absl::StatusOr<v1::ContractHeader> BuildContractHeader(const ContractRequest& request,
                                                       bool need_bytes);

// What Plan sends: the same checks. BAD_HEADER for a path or a plan_id.
absl::Status BuildPlanRequest(const ContractRequest& request, v1::PlanContractionRequest* wire);

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_INCLUDE_TENON_CONTRACT_H_
