#include <algorithm>

#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "client/cpp/wire.h"
#include "tenon/contract.h"

namespace tenon::client {
namespace {

bool IsWellFormed(std::string_view text) { return ReplaceInvalidUtf8(text) == text; }

absl::Status CheckText(std::string_view text, const std::string& field) {
  if (IsWellFormed(text)) return absl::OkStatus();
  return Error(Reason::kBadExpression, "the text is not well-formed UTF-8").Field(field);
}

absl::Status CheckNames(std::span<const std::string> names, const std::string& field) {
  for (size_t i = 0; i < names.size(); ++i) {
    TENON_RETURN_IF_ERROR(CheckText(names[i], StrCat(field, "[", i, "]")));
  }
  return absl::OkStatus();
}

// Checks one operand and describes it without its bytes.
absl::Status DescribeOperand(const Operand& operand, bool need_bytes, const std::string& field,
                             v1::Operand* wire) {
  wire->set_varying(operand.varying);
  wire->set_handle(operand.handle);
  const TensorSpec& spec = operand.tensor.spec;
  if (spec.dtype != DType::kUnspecified) *wire->mutable_spec() = ToWire(spec);
  if (!operand.handle.empty() && operand.varying) {
    return Error(Reason::kBadHeader, "an operand with a handle can't be varying").Field(field);
  }
  if (!operand.handle.empty()) return CheckText(operand.handle, StrCat(field, ".handle"));
  if (!need_bytes) return absl::OkStatus();
  if (spec.dtype == DType::kUnspecified) {
    return Error(Reason::kMissingField, "the operand has no element type")
        .Field(StrCat(field, ".spec"));
  }
  if (operand.varying) return CheckedByteCount(spec).status();
  return CheckView(operand.tensor, StrCat(field, ".spec"));
}

absl::Status DescribeOperands(const ContractRequest& request, bool need_bytes,
                              const std::string& field,
                              google::protobuf::RepeatedPtrField<v1::Operand>* wire) {
  for (size_t i = 0; i < request.operands.size(); ++i) {
    const std::string path = StrCat(field, ".operands[", i, "]");
    TENON_RETURN_IF_ERROR(DescribeOperand(request.operands[i], need_bytes, path, wire->Add()));
  }
  return absl::OkStatus();
}

absl::Status DescribeNetwork(const ContractRequest& request, bool need_bytes, v1::Network* wire) {
  const Network& network = *request.network;
  if (network.inputs.size() != request.operands.size()) {
    return Error(Reason::kShapeMismatch,
                 StrCat("the network has ", network.inputs.size(), " tensors, but ",
                        request.operands.size(), " operands are given"))
        .Field("header.network.operands")
        .Meta("expected_count", network.inputs.size())
        .Meta("actual_count", request.operands.size());
  }
  TENON_RETURN_IF_ERROR(
      DescribeOperands(request, need_bytes, "header.network", wire->mutable_operands()));
  for (size_t i = 0; i < network.inputs.size(); ++i) {
    TENON_RETURN_IF_ERROR(
        CheckNames(network.inputs[i], StrCat("header.network.operands[", i, "].indices")));
    auto* operand = wire->mutable_operands(static_cast<int>(i));
    operand->mutable_indices()->Add(network.inputs[i].begin(), network.inputs[i].end());
  }
  TENON_RETURN_IF_ERROR(CheckNames(network.output, "header.network.output"));
  wire->mutable_output()->Add(network.output.begin(), network.output.end());
  for (const auto& [name, size] : network.sizes) {
    TENON_RETURN_IF_ERROR(CheckText(name, "header.network.index_sizes"));
    (*wire->mutable_index_sizes())[name] = size;
  }
  return absl::OkStatus();
}

absl::Status DescribePlan(const ContractRequest& request, v1::ContractHeader* header) {
  const int plans = (request.path.has_value() ? 1 : 0) + (request.plan_id.empty() ? 0 : 1) +
                    (request.search.has_value() ? 1 : 0);
  if (plans > 1) {
    return Error(Reason::kBadHeader, "path, plan_id and search exclude each other")
        .Field("header.plan");
  }
  if (!request.sliced.empty() && !request.path.has_value()) {
    return Error(Reason::kBadSlice, "sliced indices need a path").Field("header.path");
  }
  TENON_RETURN_IF_ERROR(CheckNames(request.sliced, "header.path.sliced_indices"));
  if (request.path.has_value()) *header->mutable_path() = ToWire(*request.path, request.sliced);
  if (!request.plan_id.empty()) header->set_plan_id(request.plan_id);
  if (request.search.has_value()) *header->mutable_search() = *request.search;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::ContractHeader> BuildContractHeader(const ContractRequest& request,
                                                       bool need_bytes) {
  v1::ContractHeader header;
  header.set_request_id(ReplaceInvalidUtf8(request.request_id));
  if (request.einsum.empty() == !request.network.has_value()) {
    return Error(Reason::kMissingField, "exactly one of einsum and network must be given")
        .Field("header.expression");
  }
  if (request.network.has_value()) {
    TENON_RETURN_IF_ERROR(DescribeNetwork(request, need_bytes, header.mutable_network()));
  } else {
    TENON_RETURN_IF_ERROR(CheckText(request.einsum, "header.einsum.subscripts"));
    header.mutable_einsum()->set_subscripts(request.einsum);
    TENON_RETURN_IF_ERROR(DescribeOperands(request, need_bytes, "header.einsum",
                                           header.mutable_einsum()->mutable_operands()));
  }
  TENON_RETURN_IF_ERROR(DescribePlan(request, &header));
  *header.mutable_execution() = request.execution;
  *header.mutable_result() = request.result;
  if (request.expected_sets.has_value()) header.set_expected_sets(*request.expected_sets);
  const bool varies = std::any_of(request.operands.begin(), request.operands.end(),
                                  [](const Operand& operand) { return operand.varying; });
  if (need_bytes && varies != static_cast<bool>(request.next_set)) {
    return Error(Reason::kBadHeader, varies ? "varying operands need next_set"
                                            : "next_set is given, but no operand is varying")
        .Field("next_set");
  }
  return header;
}

absl::Status BuildPlanRequest(const ContractRequest& request, v1::PlanContractionRequest* wire) {
  TENON_ASSIGN_OR_RETURN(v1::ContractHeader header, BuildContractHeader(request, false));
  if (header.has_path() || !header.plan_id().empty()) {
    return Error(Reason::kBadHeader, "a search starts from search.initial, not from a path")
        .Field("path");
  }
  wire->set_request_id(header.request_id());
  if (header.has_einsum()) *wire->mutable_einsum() = std::move(*header.mutable_einsum());
  if (header.has_network()) *wire->mutable_network() = std::move(*header.mutable_network());
  if (header.has_search()) *wire->mutable_search() = std::move(*header.mutable_search());
  *wire->mutable_execution() = std::move(*header.mutable_execution());
  wire->set_path_format(request.path_format);
  return absl::OkStatus();
}

}  // namespace tenon::client
