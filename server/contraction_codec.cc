#include "server/contraction_codec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "backends/core/error.h"
#include "backends/core/figure.h"
#include "backends/schedule/peak_refusal.h"
#include "server/contraction_checks.h"
#include "server/contraction_options.h"
#include "server/contraction_report.h"
#include "server/tensor_codec.h"

namespace tenon::server {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
// What an allocation costs beyond its bytes: rounding to cache lines and the allocator's own.
constexpr int64_t kAllocationBytes = 128;

// Reads one header into one call, part by part.
class HeaderDecoder {
 public:
  HeaderDecoder(v1::ContractHeader* header, const ServerState& state, const std::string& owner,
                HeaderUse use, DType default_dtype)
      : header_(*header),
        state_(state),
        limits_(state.limits),
        use_(use),
        default_dtype_(default_dtype) {
    call_.owner = owner;
  }

  absl::StatusOr<ContractCall> Decode() {
    TENON_RETURN_IF_ERROR(ReadRequestId());
    TENON_RETURN_IF_ERROR(ReadPool());
    TENON_RETURN_IF_ERROR(ReadExpression());
    TENON_RETURN_IF_ERROR(ReadContractOptions(header_, state_, &call_));
    return std::move(call_);
  }

 private:
  absl::Status ReadRequestId();
  absl::Status ReadPool();
  absl::Status ReadExpression();
  absl::Status ReadEinsum(v1::Einsum* einsum);
  absl::Status ReadNetwork(v1::Network* network);
  absl::Status CheckName(const std::string& name, const std::string& field) const;
  absl::Status ReadOperands(google::protobuf::RepeatedPtrField<v1::Operand>* operands);
  absl::Status ReadOperand(v1::Operand* operand, size_t k);
  absl::StatusOr<TensorSpec> ReadSpec(const v1::Operand& operand, size_t k,
                                      const StoredContent* stored) const;
  absl::Status TakeInline(v1::Operand* operand, const std::string& field, OperandSource* source);
  absl::Status TakeShared(const v1::Operand& operand, const std::string& field,
                          OperandSource* source) const;
  absl::Status CheckTotalBytes() const;

  v1::ContractHeader& header_;
  const ServerState& state_;
  const Limits& limits_;
  const HeaderUse use_;
  const DType default_dtype_;
  ContractCall call_;
};

absl::Status HeaderDecoder::ReadRequestId() {
  call_.request_id = header_.request_id();
  if (call_.request_id.size() > kMaxRequestIdBytes) {
    return Error(Reason::kBadParameter,
                 StrCat("the request id has ", call_.request_id.size(), " bytes; at most ",
                        kMaxRequestIdBytes, " are allowed"))
        .Field("header.request_id")
        .Meta("limit_bytes", kMaxRequestIdBytes)
        .Meta("actual_bytes", call_.request_id.size());
  }
  if (call_.request_id.empty()) call_.request_id = NewRequestId();
  return absl::OkStatus();
}

absl::Status HeaderDecoder::ReadPool() {
  if (use_ != HeaderUse::kContract) return absl::OkStatus();
  TENON_ASSIGN_OR_RETURN(call_.pool,
                         FindPool(state_.shared_memory.get(), header_.shared_pool(), call_.owner));
  if (!header_.result().has_shared()) return absl::OkStatus();
  call_.result_region = header_.result().shared();
  return CheckHasPool(call_.pool.get());
}

absl::Status HeaderDecoder::ReadExpression() {
  switch (header_.expression_case()) {
    case v1::ContractHeader::kEinsum:
      call_.expression_field = "header.einsum.";
      TENON_RETURN_IF_ERROR(ReadEinsum(header_.mutable_einsum()));
      break;
    case v1::ContractHeader::kNetwork:
      call_.expression_field = "header.network.";
      TENON_RETURN_IF_ERROR(ReadNetwork(header_.mutable_network()));
      break;
    case v1::ContractHeader::EXPRESSION_NOT_SET:
      return MissingField("header.network", "an expression is required: einsum or network");
  }
  return CheckTotalBytes();
}

absl::Status HeaderDecoder::ReadEinsum(v1::Einsum* einsum) {
  auto network = ParseEinsum(einsum->subscripts());
  if (!network.ok()) return AsContractHeaderError(network.status(), call_);
  call_.request.network = *std::move(network);
  for (int k = 0; k < einsum->operands_size(); ++k) {
    if (einsum->operands(k).indices_size() == 0) continue;
    return Error(Reason::kBadHeader, "the einsum text names the indices; operands must not")
        .Field(StrCat("header.einsum.operands[", k, "].indices"));
  }
  const size_t expected = call_.request.network.inputs.size();
  const auto actual = static_cast<size_t>(einsum->operands_size());
  if (actual != expected) {
    return Error(Reason::kBadExpression,
                 StrCat("the expression has ", expected, " operands, but ", actual, " were given"))
        .Field("header.einsum.operands")
        .Meta("expected_operands", expected)
        .Meta("actual_operands", actual);
  }
  for (const auto& [name, size] : einsum->index_sizes()) {
    TENON_RETURN_IF_ERROR(CheckName(name, "header.einsum.index_sizes"));
    call_.request.network.sizes[name] = size;
  }
  return ReadOperands(einsum->mutable_operands());
}

absl::Status HeaderDecoder::ReadNetwork(v1::Network* network) {
  Network& target = call_.request.network;
  TENON_RETURN_IF_ERROR(CheckLimit(network->operands_size(), limits_.max_operands, "operands",
                                   "header.network.operands"));
  for (int k = 0; k < network->operands_size(); ++k) {
    const v1::Operand& operand = network->operands(k);
    const std::string field = StrCat("header.network.operands[", k, "].indices");
    TENON_RETURN_IF_ERROR(
        CheckLimit(operand.indices_size(), limits_.max_rank, "indices of an operand", field));
    std::vector<std::string>& input = target.inputs.emplace_back();
    for (const std::string& name : operand.indices()) {
      TENON_RETURN_IF_ERROR(CheckName(name, field));
      input.push_back(name);
    }
  }
  TENON_RETURN_IF_ERROR(CheckLimit(network->output_size(), limits_.max_rank, "output indices",
                                   "header.network.output"));
  for (const std::string& name : network->output()) {
    TENON_RETURN_IF_ERROR(CheckName(name, "header.network.output"));
    target.output.push_back(name);
  }
  for (const auto& [name, size] : network->index_sizes()) {
    TENON_RETURN_IF_ERROR(CheckName(name, "header.network.index_sizes"));
    target.sizes[name] = size;
  }
  return ReadOperands(network->mutable_operands());
}

absl::Status HeaderDecoder::CheckName(const std::string& name, const std::string& field) const {
  return CheckLimit(static_cast<int64_t>(name.size()), limits_.max_name_bytes,
                    "bytes in the name of an index", field);
}

absl::Status HeaderDecoder::ReadOperands(
    google::protobuf::RepeatedPtrField<v1::Operand>* operands) {
  const auto count = static_cast<size_t>(operands->size());
  const std::string field = call_.expression_field + "operands";
  if (count == 0) {
    return Error(Reason::kBadExpression, "a contraction needs at least one operand; 0 came")
        .Field(field);
  }
  TENON_RETURN_IF_ERROR(
      CheckLimit(static_cast<int64_t>(count), limits_.max_operands, "operands", field));
  call_.operands.reserve(count);
  call_.request.operands.reserve(count);
  for (size_t k = 0; k < count; ++k) {
    TENON_RETURN_IF_ERROR(ReadOperand(operands->Mutable(static_cast<int>(k)), k));
  }
  return absl::OkStatus();
}

absl::Status HeaderDecoder::ReadOperand(v1::Operand* operand, size_t k) {
  const std::string field = StrCat(call_.expression_field, "operands[", k, "]");
  OperandSource source;
  source.varying = operand->varying();
  const bool has_handle = !operand->handle().empty();
  if (has_handle && operand->varying()) {
    return Error(Reason::kBadHeader, "a stored tensor can't vary").Field(field + ".varying");
  }
  if (has_handle && operand->has_inline_data()) {
    return Error(Reason::kBadHeader, "the bytes come twice: from the store and inside the header")
        .Field(field + ".inline_data");
  }
  if (operand->has_shared() && (has_handle || operand->has_inline_data())) {
    return Error(Reason::kBadHeader, "the bytes come twice: one source is shared memory")
        .Field(field + ".shared");
  }
  if (has_handle && (use_ == HeaderUse::kContract || !operand->has_spec())) {
    auto stored =
        state_.store == nullptr
            ? Error(Reason::kNotFound, "this server keeps no tensors").Field("handle")
            : state_.store->Get(ContentStore::Kind::kTensor, call_.owner, operand->handle());
    if (!stored.ok()) return PrefixFields(stored.status(), field + ".");
    source.stored = *std::move(stored);
  }
  TENON_ASSIGN_OR_RETURN(source.spec, ReadSpec(*operand, k, source.stored.get()));
  if (!IsContractionDType(source.spec.dtype)) {
    return Error(Reason::kUnsupportedDtype,
                 StrCat("operand ", k, " has type ", DTypeName(source.spec.dtype),
                        "; a contraction takes float32, float64, complex64, complex128"))
        .Field(field + ".spec.dtype")
        .Meta("dtype", DTypeName(source.spec.dtype));
  }
  if (operand->has_inline_data() && use_ == HeaderUse::kContract) {
    TENON_RETURN_IF_ERROR(TakeInline(operand, field + ".inline_data", &source));
  }
  if (operand->has_shared() && use_ == HeaderUse::kContract) {
    TENON_RETURN_IF_ERROR(TakeShared(*operand, field + ".shared.", &source));
  }
  call_.request.operands.push_back(source.spec);
  call_.request.varying.push_back(source.varying);
  call_.operands.push_back(std::move(source));
  return absl::OkStatus();
}

absl::StatusOr<TensorSpec> HeaderDecoder::ReadSpec(const v1::Operand& operand, size_t k,
                                                   const StoredContent* stored) const {
  const std::string field = StrCat(call_.expression_field, "operands[", k, "].spec");
  if (operand.has_spec()) {
    TENON_ASSIGN_OR_RETURN(TensorSpec spec, ReadTensorSpec(operand.spec(), field, limits_));
    if (stored == nullptr || stored->tensor.spec == spec) return spec;
    return Error(Reason::kShapeMismatch, StrCat("operand ", k, ": the stored tensor '",
                                                operand.handle(), "' has another type or shape"))
        .Field(field)
        .Meta("operand", k);
  }
  if (stored != nullptr) return stored->tensor.spec;
  if (use_ == HeaderUse::kContract) {
    return MissingField(field, StrCat("operand ", k, " needs an element type and a shape"));
  }
  TensorSpec spec{default_dtype_, {}};
  auto shape = InputShape(call_.request.network, k);
  if (!shape.ok()) {
    return MissingField(field, StrCat("operand ", k,
                                      " has no spec, and not all of its indices have a "
                                      "size"));
  }
  spec.shape = *std::move(shape);
  const auto bytes = CheckedByteCount(spec);
  if (bytes.ok()) return spec;
  return Error(GetErrorDetails(bytes.status()).reason, std::string(ToStd(bytes.status().message())))
      .Field(call_.expression_field + "index_sizes");
}

absl::Status HeaderDecoder::TakeInline(v1::Operand* operand, const std::string& field,
                                       OperandSource* source) {
  const auto actual = static_cast<int64_t>(operand->inline_data().size());
  TENON_RETURN_IF_ERROR(CheckInlineSize(actual, field, limits_));
  TENON_ASSIGN_OR_RETURN(const int64_t expected, CheckedByteCount(source->spec));
  if (actual != expected) {
    return Error(Reason::kShapeMismatch,
                 StrCat("the operand has ", expected, " bytes by its type and shape, but ", actual,
                        " came"))
        .Field(field)
        .Meta("expected_bytes", expected)
        .Meta("actual_bytes", actual);
  }
  source->inline_bytes = std::move(*operand->mutable_inline_data());
  return absl::OkStatus();
}

absl::Status HeaderDecoder::TakeShared(const v1::Operand& operand, const std::string& field,
                                       OperandSource* source) const {
  TENON_RETURN_IF_ERROR(CheckHasPool(call_.pool.get()));
  TENON_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteCount(source->spec));
  const auto span = call_.pool->TensorRegion(operand.shared(), bytes);
  if (!span.ok()) return PrefixFields(span.status(), field);
  source->shared = *span;
  return absl::OkStatus();
}

absl::Status HeaderDecoder::CheckTotalBytes() const {
  int64_t total = 0;
  for (const OperandSource& operand : call_.operands) {
    TENON_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteCount(operand.spec));
    if (!__builtin_add_overflow(total, bytes, &total)) continue;
    return Error(Reason::kOverflow, "the bytes of all operands together do not fit in 63 bits")
        .Field(call_.expression_field + "operands");
  }
  if (use_ == HeaderUse::kEstimate || total <= state_.budget.limit_bytes()) return absl::OkStatus();
  return Error(Reason::kExceedsServerLimit,
               StrCat("the operands have ", total, " bytes; this server has memory for ",
                      state_.budget.limit_bytes()))
      .Field(call_.expression_field + "operands")
      .Meta("limit_bytes", state_.budget.limit_bytes())
      .Meta("actual_bytes", total);
}

// Those that the planner names.
constexpr std::string_view kSearchFields[] = {"target_size",       "max_trials",
                                              "max_time_seconds",  "objective",
                                              "read_write_weight", "flops_weight"};

// A field of the engine as a field of the header.
std::string WireField(const std::string& field, const ContractCall& call) {
  const bool einsum = call.expression_field == "header.einsum.";
  absl::string_view rest(field);
  if (field == "equation" || (einsum && absl::StartsWith(field, "output"))) {
    return "header.einsum.subscripts";
  }
  if (absl::ConsumePrefix(&rest, "index_sizes[") && absl::ConsumeSuffix(&rest, "]")) {
    return absl::StrCat(call.expression_field, "index_sizes[\"", rest, "\"]");
  }
  if (absl::StartsWith(field, "operands") || absl::StartsWith(field, "output")) {
    return call.expression_field + field;
  }
  if (absl::StartsWith(field, "path")) return call.plan_field + field;
  if (absl::ConsumePrefix(&rest, "sliced")) {
    return call.plan_field.empty() ? "header.search"
                                   : absl::StrCat(call.plan_field, "sliced_indices", rest);
  }
  if (absl::StartsWith(field, "header.")) return field;
  if (field == "memory_bytes") return call.budget_field;
  for (const std::string_view option : kSearchFields) {
    if (field == option) return StrCat("header.search.", option);
  }
  return "header." + field;
}

// The same error for this reason, with its fields renamed.
template <typename Rename>
absl::Status WithFields(const absl::Status& status, Reason reason, const Rename& rename) {
  const ErrorDetails details = GetErrorDetails(status);
  Error error(reason, std::string(ToStd(status.message())));
  for (const auto& [field, description] : details.fields) {
    std::move(error).Field(rename(field), description);
  }
  for (const auto& [key, value] : details.metadata) std::move(error).Meta(key, value);
  return error;
}

}  // namespace

bool ContractCall::varies() const {
  return std::any_of(operands.begin(), operands.end(),
                     [](const OperandSource& operand) { return operand.varying; });
}

bool ContractCall::complete() const {
  return std::all_of(operands.begin(), operands.end(), [](const OperandSource& operand) {
    const bool empty = std::find(operand.spec.shape.begin(), operand.spec.shape.end(), 0) !=
                       operand.spec.shape.end();
    return !operand.varying &&
           (operand.stored != nullptr || operand.inline_bytes || operand.shared || empty);
  });
}

absl::StatusOr<ContractCall> DecodeHeader(v1::ContractHeader* header, const ServerState& state,
                                          const std::string& owner, HeaderUse use,
                                          DType default_dtype) {
  return HeaderDecoder(header, state, owner, use, default_dtype).Decode();
}

absl::Status AsContractHeaderError(const absl::Status& status, const ContractCall& call) {
  if (status.ok()) return status;
  const Reason reason = GetErrorDetails(status).reason;
  const bool server_limit = reason == Reason::kExceedsMemoryBudget && call.budget_is_the_servers;
  return WithFields(status, server_limit ? Reason::kExceedsServerLimit : reason,
                    [&](const std::string& field) { return WireField(field, call); });
}

absl::Status WithoutHeader(const absl::Status& status) {
  const ErrorDetails details = GetErrorDetails(status);
  if (status.ok() || details.fields.empty()) return status;
  return WithFields(status, details.reason, [](const std::string& field) {
    absl::string_view path(field);
    absl::ConsumePrefix(&path, "header.");
    return std::string(path);
  });
}

absl::StatusOr<contraction::Expression> ExpressionOf(const ContractCall& call) {
  std::vector<std::vector<int64_t>> shapes;
  for (const OperandSource& operand : call.operands) shapes.push_back(operand.spec.shape);
  auto expression = contraction::MakeExpression(call.request.network, shapes);
  if (!expression.ok()) return AsContractHeaderError(expression.status(), call);
  return expression;
}

absl::StatusOr<std::optional<SharedSpan>> ResultSpan(const ContractCall& call, int64_t bytes) {
  if (!call.result_region.has_value()) return std::optional<SharedSpan>();
  constexpr char kField[] = "header.result.shared";
  const auto span = call.pool->ResultRegion(*call.result_region, bytes);
  if (!span.ok()) return PrefixFields(span.status(), StrCat(kField, "."));
  for (size_t k = 0; k < call.operands.size(); ++k) {
    const std::optional<SharedSpan>& operand = call.operands[k].shared;
    if (!operand.has_value() || !operand->Overlaps(*span)) continue;
    return Error(Reason::kBadParameter,
                 StrCat("the region for the result overlaps that of operand ", k))
        .Field(kField)
        .Meta("operand", k);
  }
  return std::optional<SharedSpan>(*span);
}

namespace {

// The type that is computed in, as the engine will choose it.
DType ComputeDType(const ContractCall& call) {
  if (call.request.dtype.has_value()) return *call.request.dtype;
  DType promoted = call.operands.front().spec.dtype;
  for (const OperandSource& operand : call.operands) {
    promoted = PromoteDTypes(promoted, operand.spec.dtype);
  }
  return promoted;
}

bool IsInPlace(const OperandSource& operand, DType dtype) {
  return operand.shared.has_value() && !operand.varying && operand.spec.dtype == dtype;
}

// Bytes that the engine plans although they lie in the client's memory. Results of varying operands
// are planned: not every set need have a region.
int64_t InPlaceBytes(const ContractCall& call) {
  const DType dtype = ComputeDType(call);
  int64_t bytes = 0;
  for (const OperandSource& operand : call.operands) {
    if (!IsInPlace(operand, dtype)) continue;
    if (__builtin_add_overflow(bytes, operand.shared->size_bytes, &bytes)) return kMostPlannedBytes;
  }
  return std::min(bytes, kMostPlannedBytes);
}

int64_t InPlaceResultBytes(const ContractCall& call, const schedule::ContractionJob& job) {
  if (!call.result_region.has_value() || call.varies() || call.result_dtype != job.dtype())
    return 0;
  return CheckedByteCount(ResultSpec(call, job)).value_or(0);
}

}  // namespace

int64_t StagingBytes(const ContractCall& call, const schedule::ContractionJob& job) {
  __int128 staging = -InPlaceBytes(call) - InPlaceResultBytes(call, job);
  const bool varies = call.varies();
  const __int128 sets = job.sets_together();
  for (const OperandSource& operand : call.operands) {
    staging += kAllocationBytes;
    if (operand.stored != nullptr || IsInPlace(operand, job.dtype())) continue;
    const bool converted = operand.spec.dtype != job.dtype();
    const int extra = (operand.varying ? kInputBuffers : 1) - (converted ? 0 : 1);
    const __int128 copies = extra * (operand.varying ? sets : 1);
    staging += copies * CheckedByteCount(operand.spec).value_or(kMostPlannedBytes);
  }
  const TensorSpec result = ResultSpec(call, job);
  const int results = (varies ? kResultBuffers : 1) - (call.result_dtype == job.dtype() ? 1 : 0);
  staging += results * sets * CheckedByteCount(result).value_or(kMostPlannedBytes);
  return static_cast<int64_t>(std::min<__int128>(staging, kMostPlannedBytes));
}

namespace {

// The refusal of a plan that left no room for the staging, with figures that include it. The budget
// is that of the call, whatever the engine was given.
absl::Status AddStaging(const absl::Status& refusal, const ContractCall& call, int64_t staging) {
  const std::optional<int64_t> peak = schedule::RefusedPeak(refusal);
  if (!peak.has_value()) return refusal;
  return schedule::PeakRefusal(*peak + staging, call.memory_budget_bytes, staging);
}

// A refusal's figures with the staging. It is that of the program which a budget of the peak
// allows.
absl::Status AddStagingOf(const absl::Status& refusal, const ContractCall& call,
                          schedule::ContractionRequest request, const CancelToken* cancel,
                          schedule::ProgramCache* cache) {
  const std::optional<int64_t> peak = schedule::RefusedPeak(refusal);
  if (!peak.has_value()) return refusal;
  request.memory_budget_bytes = *peak;
  const auto job = schedule::ContractionJob::Prepare(request, call.providers, cancel, cache);
  return job.ok() ? AddStaging(refusal, call, StagingBytes(call, **job)) : refusal;
}

}  // namespace

absl::StatusOr<std::unique_ptr<schedule::ContractionJob>> PrepareCall(
    const ContractCall& call, const CancelToken* cancel, schedule::ProgramCache* cache) {
  schedule::ContractionRequest request = call.request;
  // What is used in place is planned, but takes nothing of the budget.
  const int64_t in_place = InPlaceBytes(call);
  request.memory_budget_bytes = call.memory_budget_bytes > INT64_MAX - in_place
                                    ? INT64_MAX
                                    : call.memory_budget_bytes + in_place;
  auto job = schedule::ContractionJob::Prepare(request, call.providers, cancel, cache);
  if (!job.ok()) {
    return AsContractHeaderError(AddStagingOf(job.status(), call, request, cancel, cache), call);
  }
  int64_t staging = StagingBytes(call, **job);
  // Sets that are computed together are staged together.
  while ((*job)->sets_together() > 1 &&
         (*job)->plan().Total() + staging > call.memory_budget_bytes) {
    request.max_sets_together = (*job)->sets_together() / 2;
    job = schedule::ContractionJob::Prepare(request, call.providers, cancel);
    if (!job.ok()) return AsContractHeaderError(job.status(), call);
    staging = StagingBytes(call, **job);
  }
  // What is staged depends on the request alone, so the second plan, if there must be one, fits.
  if ((*job)->plan().Total() + staging > call.memory_budget_bytes) {
    request.memory_budget_bytes = std::max<int64_t>(call.memory_budget_bytes - staging, 1);
    job = schedule::ContractionJob::Prepare(request, call.providers, cancel, cache);
    if (!job.ok()) return AsContractHeaderError(AddStaging(job.status(), call, staging), call);
  }
  if (!call.required_fingerprint.empty() && (*job)->fingerprint() != call.required_fingerprint) {
    return Error(Reason::kFingerprintMismatch,
                 StrCat("the program's fingerprint is ", (*job)->fingerprint(), ", required is ",
                        call.required_fingerprint))
        .Field("header.execution.required_fingerprint")
        .Meta("required", call.required_fingerprint)
        .Meta("actual", (*job)->fingerprint());
  }
  return job;
}

std::optional<double> SecondsIfPrepared(const ContractCall& call, schedule::ProgramCache* cache) {
  schedule::ContractionRequest request = call.request;
  request.memory_budget_bytes = call.memory_budget_bytes;
  return schedule::ContractionJob::SecondsIfPrepared(request, call.providers, cache);
}

}  // namespace tenon::server
