#include "server/contraction_codec.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "backends/core/error.h"
#include "server/measurement_codec.h"

namespace tenon::server {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
constexpr int64_t kMinResultChunkBytes = 4096;
constexpr int kResultBuffers = 2;
constexpr int kInputBuffers = 2;
// What an allocation costs beyond its bytes: rounding to cache lines and the allocator's own.
constexpr int64_t kAllocationBytes = 128;
constexpr int64_t kHugeBytes = int64_t{1} << 50;

absl::Status Missing(std::string_view field, std::string_view what) {
  return Error(Reason::kMissingField, std::string(what)).Field(std::string(field));
}

absl::Status NotYet(std::string_view field, std::string_view what) {
  return Error(Reason::kNotImplemented, StrCat("this server does not offer ", what, " yet"))
      .Field(std::string(field));
}

absl::Status OutOfRange(std::string_view field, std::string_view expected, std::string value) {
  return Error(Reason::kBadParameter, StrCat("expected ", expected, "; ", value, " came"))
      .Field(std::string(field))
      .Meta("value", value);
}

absl::Status CheckEnum(bool known, int value, std::string_view field) {
  if (known) return absl::OkStatus();
  return Missing(field, StrCat("the value ", value, " is unknown"));
}

absl::Status CheckPositive(double value, std::string_view field) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return OutOfRange(field, "a finite number above 0", StrCat(value));
}

absl::Status CheckAtLeastOne(int64_t value, std::string_view field) {
  if (value >= 1) return absl::OkStatus();
  return OutOfRange(field, "at least 1", StrCat(value));
}

absl::Status CheckLimit(int64_t actual, int64_t limit, std::string_view what,
                        std::string_view field) {
  if (actual <= limit) return absl::OkStatus();
  return Error(Reason::kExceedsServerLimit,
               StrCat(actual, " ", what, " came; this server takes at most ", limit))
      .Field(std::string(field))
      .Meta("limit", limit)
      .Meta("actual", actual);
}

std::string NewRequestId() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return absl::StrFormat("%016x%016x", random(), random());
}

DType WiderType(DType dtype) {
  return dtype == DType::kFloat32     ? DType::kFloat64
         : dtype == DType::kComplex64 ? DType::kComplex128
                                      : dtype;
}

// Reads one header into one call, part by part.
class HeaderDecoder {
 public:
  HeaderDecoder(v1::ContractHeader* header, const ServerState& state, HeaderUse use)
      : header_(*header), state_(state), limits_(state.limits), use_(use) {}

  absl::StatusOr<ContractCall> Decode() {
    TENON_RETURN_IF_ERROR(ReadRequestId());
    TENON_RETURN_IF_ERROR(ReadExpression());
    TENON_RETURN_IF_ERROR(ReadPlan());
    TENON_RETURN_IF_ERROR(ReadExecution());
    TENON_RETURN_IF_ERROR(ReadGroupsAndProgress());
    TENON_RETURN_IF_ERROR(ReadMemoryBudget());
    TENON_RETURN_IF_ERROR(ReadResult());
    if (header_.has_expected_sets() && header_.expected_sets() < 0) {
      return OutOfRange("header.expected_sets", "at least 0", StrCat(header_.expected_sets()));
    }
    return std::move(call_);
  }

 private:
  absl::Status ReadRequestId();
  absl::Status ReadExpression();
  absl::Status ReadEinsum(v1::Einsum* einsum);
  absl::Status ReadNetwork(v1::Network* network);
  absl::Status CheckName(const std::string& name, const std::string& field) const;
  absl::Status ReadOperands(google::protobuf::RepeatedPtrField<v1::Operand>* operands);
  absl::Status ReadOperand(v1::Operand* operand, size_t k);
  absl::StatusOr<TensorSpec> ReadSpec(const v1::Operand& operand, size_t k,
                                      const StoredContent* stored) const;
  absl::Status TakeInline(v1::Operand* operand, const std::string& field, OperandSource* source);
  absl::Status CheckTotalBytes() const;
  absl::Status ReadPlan();
  absl::Status ReadExplicitPlan(const v1::ExplicitPlan& plan);
  absl::Status ReadSearch(const v1::SearchOptions& search);
  absl::Status ReadSearchMethods(const v1::SearchOptions& search) const;
  absl::Status ReadSearchLimits(const v1::SearchOptions& search);
  absl::Status ReadExecution();
  absl::Status ReadGroupsAndProgress();
  absl::Status ReadMemoryBudget();
  absl::Status ReadTypes();
  absl::Status ReadResult();

  v1::ContractHeader& header_;
  const ServerState& state_;
  const Limits& limits_;
  const HeaderUse use_;
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
      return Missing("header.network", "an expression is required: einsum or network");
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
  if (has_handle && (use_ == HeaderUse::kContract || !operand->has_spec())) {
    auto stored = state_.store == nullptr
                      ? Error(Reason::kNotFound, "this server keeps no tensors").Field("handle")
                      : state_.store->Get(ContentStore::Kind::kTensor, operand->handle());
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
    return Missing(field, StrCat("operand ", k, " needs an element type and a shape"));
  }
  TensorSpec spec{DType::kComplex128, {}};
  auto shape = InputShape(call_.request.network, k);
  if (!shape.ok()) {
    return Missing(field, StrCat("operand ", k,
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

absl::Status HeaderDecoder::ReadPlan() {
  switch (header_.plan_case()) {
    case v1::ContractHeader::kPath:
      call_.plan_field = "header.path.";
      call_.plan_source = v1::PLAN_SOURCE_EXPLICIT;
      call_.request.allow_slicing = false;
      return ReadExplicitPlan(header_.path());
    case v1::ContractHeader::kPlanId:
      return NotYet("header.plan_id", "stored plans");
    case v1::ContractHeader::kSearch:
      return ReadSearch(header_.search());
    case v1::ContractHeader::PLAN_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

absl::Status HeaderDecoder::ReadExplicitPlan(const v1::ExplicitPlan& plan) {
  const std::string& field = call_.plan_field;
  if (!plan.has_path()) return Missing(field + "path", "a path is required");
  PathSteps steps;
  switch (plan.path().format()) {
    case v1::PATH_FORMAT_SSA:
      steps.format = PathSteps::Format::kSsa;
      break;
    case v1::PATH_FORMAT_LINEAR:
      steps.format = PathSteps::Format::kLinear;
      break;
    default:
      return Missing(field + "path.format",
                     StrCat("the path's format is required; ",
                            static_cast<int>(plan.path().format()), " came"));
  }
  steps.steps.reserve(static_cast<size_t>(plan.path().steps_size()));
  for (const v1::PathStep& step : plan.path().steps()) {
    steps.steps.emplace_back(step.operands().begin(), step.operands().end());
  }
  call_.request.path = std::move(steps);
  call_.request.sliced.assign(plan.sliced_indices().begin(), plan.sliced_indices().end());
  return absl::OkStatus();
}

absl::Status HeaderDecoder::ReadSearch(const v1::SearchOptions& search) {
  TENON_RETURN_IF_ERROR(ReadSearchMethods(search));
  TENON_RETURN_IF_ERROR(ReadSearchLimits(search));
  call_.request.allow_output_slicing = search.allow_output_slicing();
  if (!search.has_initial()) return absl::OkStatus();
  call_.plan_field = "header.search.initial.";
  if (search.methods_size() > 0) {
    return NotYet("header.search.initial", "improving a given path (without methods it is sliced)");
  }
  TENON_RETURN_IF_ERROR(ReadExplicitPlan(search.initial()));
  if (!call_.request.sliced.empty() && search.has_target_size()) {
    return NotYet("header.search.initial.sliced_indices", "adding slices to given ones");
  }
  return absl::OkStatus();
}

absl::Status HeaderDecoder::ReadSearchMethods(const v1::SearchOptions& search) const {
  TENON_RETURN_IF_ERROR(CheckEnum(v1::SearchObjective_IsValid(search.objective()),
                                  search.objective(), "header.search.objective"));
  if (search.objective() != v1::SEARCH_OBJECTIVE_UNSPECIFIED &&
      search.objective() != v1::SEARCH_OBJECTIVE_WEIGHTED) {
    return NotYet("header.search.objective", "this objective");
  }
  if (search.has_flops_weight()) return NotYet("header.search.flops_weight", "weights");
  if (search.has_read_write_weight()) return NotYet("header.search.read_write_weight", "weights");
  TENON_RETURN_IF_ERROR(CheckEnum(v1::SlicingMode_IsValid(search.slicing_mode()),
                                  search.slicing_mode(), "header.search.slicing_mode"));
  if (search.slicing_mode() == v1::SLICING_MODE_DYNAMIC ||
      search.slicing_mode() == v1::SLICING_MODE_ANNEALED) {
    return NotYet("header.search.slicing_mode", "this way to choose slices");
  }
  for (int i = 0; i < search.methods_size(); ++i) {
    const std::string field = StrCat("header.search.methods[", i, "]");
    const v1::SearchMethod method = search.methods(i);
    if (method == v1::SEARCH_METHOD_UNSPECIFIED || !v1::SearchMethod_IsValid(method)) {
      return Missing(field, StrCat("the method ", static_cast<int>(method), " is unknown"));
    }
    if (method != v1::SEARCH_METHOD_GREEDY) return NotYet(field, "this search method");
    if (i > 0) return OutOfRange(field, "no repetition", v1::SearchMethod_Name(method));
  }
  TENON_RETURN_IF_ERROR(CheckEnum(v1::PlanCachePolicy_IsValid(search.cache()), search.cache(),
                                  "header.search.cache"));
  const std::string first =
      header_.execution().providers_size() == 0 ? "cpu" : header_.execution().providers(0);
  if (!search.provider().empty() && search.provider() != first) {
    return NotYet("header.search.provider", "planning for a provider that does not come first");
  }
  return absl::OkStatus();
}

absl::Status HeaderDecoder::ReadSearchLimits(const v1::SearchOptions& search) {
  if (search.has_target_size()) {
    TENON_RETURN_IF_ERROR(CheckAtLeastOne(search.target_size(), "header.search.target_size"));
    call_.request.target_elements = static_cast<double>(search.target_size());
  }
  if (search.has_memory_bytes()) {
    TENON_RETURN_IF_ERROR(CheckAtLeastOne(search.memory_bytes(), "header.search.memory_bytes"));
  }
  if (search.has_max_time_seconds()) {
    TENON_RETURN_IF_ERROR(
        CheckPositive(search.max_time_seconds(), "header.search.max_time_seconds"));
  }
  if (search.has_max_trials()) {
    TENON_RETURN_IF_ERROR(CheckAtLeastOne(search.max_trials(), "header.search.max_trials"));
  }
  if (search.has_threads()) {
    TENON_RETURN_IF_ERROR(CheckAtLeastOne(search.threads(), "header.search.threads"));
  }
  call_.request.allow_slicing = search.slicing_mode() != v1::SLICING_MODE_NONE;
  return absl::OkStatus();
}

absl::Status HeaderDecoder::ReadExecution() {
  const v1::ContractExecution& execution = header_.execution();
  auto providers =
      state_.providers.Resolve({execution.providers().begin(), execution.providers().end()});
  if (!providers.ok()) return PrefixFields(providers.status(), "header.execution.");
  call_.providers = *std::move(providers);
  if (execution.has_threads()) {
    TENON_RETURN_IF_ERROR(CheckAtLeastOne(execution.threads(), "header.execution.threads"));
    call_.request.threads = execution.threads();
  }
  if (limits_.max_threads > 0 &&
      (call_.request.threads == 0 || call_.request.threads > limits_.max_threads)) {
    call_.request.threads = static_cast<int>(limits_.max_threads);
  }
  if (execution.deterministic() && call_.providers.size() > 1) {
    return NotYet("header.execution.deterministic", "a fixed assignment to several providers");
  }
  if (execution.assignment_size() > 0) {
    return NotYet("header.execution.assignment", "assignments of slice groups");
  }
  if (execution.normalize()) return NotYet("header.execution.normalize", "normalisation");
  TENON_RETURN_IF_ERROR(CheckEnum(v1::PriorityClass_IsValid(execution.priority()),
                                  execution.priority(), "header.execution.priority"));
  call_.required_fingerprint = execution.required_fingerprint();
  return ReadTypes();
}

absl::Status HeaderDecoder::ReadGroupsAndProgress() {
  const v1::ContractExecution& execution = header_.execution();
  if (execution.has_slice_groups()) {
    const v1::SliceGroupRange& range = execution.slice_groups();
    if (range.first() < 0 || range.last() <= range.first()) {
      return Error(Reason::kBadSlice, StrCat("the range of slice groups [", range.first(), ", ",
                                             range.last(), ") is empty or negative"))
          .Field("header.execution.slice_groups")
          .Meta("first", range.first())
          .Meta("last", range.last());
    }
    call_.request.first_group = range.first();
    call_.request.last_group = range.last();
  }
  if (execution.has_progress_interval_seconds()) {
    const double seconds = execution.progress_interval_seconds();
    TENON_RETURN_IF_ERROR(CheckPositive(seconds, "header.execution.progress_interval_seconds"));
    call_.progress_interval_seconds = seconds;
  }
  if (execution.has_max_queue_seconds()) {
    const double seconds = execution.max_queue_seconds();
    TENON_RETURN_IF_ERROR(CheckPositive(seconds, "header.execution.max_queue_seconds"));
    call_.max_queue_seconds = seconds;
  }
  return absl::OkStatus();
}

absl::Status HeaderDecoder::ReadMemoryBudget() {
  const v1::ContractExecution& execution = header_.execution();
  int64_t budget = state_.budget.limit_bytes();
  call_.budget_is_the_servers = true;
  const auto lower = [&](int64_t asked) {
    if (asked > budget) return;
    budget = asked;
    call_.budget_is_the_servers = false;
  };
  if (execution.has_memory_budget_bytes()) {
    TENON_RETURN_IF_ERROR(
        CheckAtLeastOne(execution.memory_budget_bytes(), "header.execution.memory_budget_bytes"));
    lower(execution.memory_budget_bytes());
  }
  if (header_.has_search() && header_.search().has_memory_bytes()) {
    lower(header_.search().memory_bytes());
  }
  call_.memory_budget_bytes = budget;
  return absl::OkStatus();
}

// The compute type and the result's.
absl::Status HeaderDecoder::ReadTypes() {
  DType promoted = call_.operands.front().spec.dtype;
  for (const OperandSource& operand : call_.operands) {
    promoted = PromoteDTypes(promoted, operand.spec.dtype);
  }
  call_.result_dtype = promoted;
  const v1::DataType accumulate = header_.execution().accumulate_dtype();
  TENON_RETURN_IF_ERROR(
      CheckEnum(v1::DataType_IsValid(accumulate), accumulate, "header.execution.accumulate_dtype"));
  if (accumulate == v1::DATA_TYPE_UNSPECIFIED) return absl::OkStatus();
  const auto wanted = static_cast<DType>(accumulate);
  if (wanted != promoted && wanted != WiderType(promoted)) {
    return OutOfRange("header.execution.accumulate_dtype",
                      StrCat(DTypeName(promoted), " or ", DTypeName(WiderType(promoted))),
                      std::string(DTypeName(wanted)));
  }
  call_.request.dtype = wanted;
  return absl::OkStatus();
}

absl::Status HeaderDecoder::ReadResult() {
  const v1::ContractResultOptions& result = header_.result();
  TENON_RETURN_IF_ERROR(
      CheckEnum(v1::DataType_IsValid(result.dtype()), result.dtype(), "header.result.dtype"));
  if (result.dtype() != v1::DATA_TYPE_UNSPECIFIED) {
    const auto wanted = static_cast<DType>(result.dtype());
    if (!IsContractionDType(wanted) || (IsComplex(call_.result_dtype) && !IsComplex(wanted))) {
      return Error(Reason::kUnsupportedDtype,
                   StrCat("a result of type ", DTypeName(call_.result_dtype),
                          " can't be returned as ", DTypeName(wanted)))
          .Field("header.result.dtype")
          .Meta("dtype", DTypeName(wanted));
    }
    call_.result_dtype = wanted;
  }
  call_.result_chunk_bytes = limits_.default_chunk_bytes;
  if (result.has_chunk_bytes()) {
    call_.result_chunk_bytes = result.chunk_bytes();
    if (call_.result_chunk_bytes < kMinResultChunkBytes ||
        call_.result_chunk_bytes > limits_.max_chunk_bytes) {
      return OutOfRange("header.result.chunk_bytes",
                        StrCat(kMinResultChunkBytes, " to ", limits_.max_chunk_bytes, " bytes"),
                        StrCat(call_.result_chunk_bytes));
    }
  }
  call_.checksums = result.checksums();
  TENON_RETURN_IF_ERROR(CheckEnum(v1::ReportDetail_IsValid(result.report_detail()),
                                  result.report_detail(), "header.result.report_detail"));
  if (result.report_detail() != v1::REPORT_DETAIL_UNSPECIFIED) {
    call_.detail = result.report_detail();
  }
  return absl::OkStatus();
}

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
  if (field == "target_size") return "header.search.target_size";
  return "header." + field;
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
    return !operand.varying && (operand.stored != nullptr || operand.inline_bytes || empty);
  });
}

absl::StatusOr<ContractCall> DecodeHeader(v1::ContractHeader* header, const ServerState& state,
                                          HeaderUse use) {
  return HeaderDecoder(header, state, use).Decode();
}

absl::Status AsContractHeaderError(const absl::Status& status, const ContractCall& call) {
  if (status.ok()) return status;
  const ErrorDetails details = GetErrorDetails(status);
  const bool server_limit =
      details.reason == Reason::kExceedsMemoryBudget && call.budget_is_the_servers;
  Error error(server_limit ? Reason::kExceedsServerLimit : details.reason,
              std::string(ToStd(status.message())));
  for (const auto& [field, description] : details.fields) {
    std::move(error).Field(WireField(field, call), description);
  }
  for (const auto& [key, value] : details.metadata) std::move(error).Meta(key, value);
  return error;
}

int64_t StagingBytes(const ContractCall& call, const schedule::ContractionJob& job) {
  __int128 staging = 0;
  const bool varies = call.varies();
  for (const OperandSource& operand : call.operands) {
    staging += kAllocationBytes;
    if (operand.stored != nullptr) continue;
    const bool converted = operand.spec.dtype != job.dtype();
    const int extra = (operand.varying ? kInputBuffers : 1) - (converted ? 0 : 1);
    staging += __int128{extra} * CheckedByteCount(operand.spec).value_or(kHugeBytes);
  }
  const TensorSpec result{call.result_dtype, job.program().output_spec().shape};
  const int results = (varies ? kResultBuffers : 1) - (call.result_dtype == job.dtype() ? 1 : 0);
  staging += __int128{results} * CheckedByteCount(result).value_or(kHugeBytes);
  return static_cast<int64_t>(std::min<__int128>(staging, kHugeBytes));
}

absl::StatusOr<std::unique_ptr<schedule::ContractionJob>> PrepareCall(const ContractCall& call,
                                                                      const CancelToken* cancel) {
  schedule::ContractionRequest request = call.request;
  request.memory_budget_bytes = call.memory_budget_bytes;
  auto job = schedule::ContractionJob::Prepare(request, call.providers, cancel);
  if (!job.ok()) return AsContractHeaderError(job.status(), call);
  // What is staged depends on the request alone, so the second plan, if there must be one, fits.
  const int64_t staging = StagingBytes(call, **job);
  if ((*job)->plan().Total() + staging > call.memory_budget_bytes) {
    request.memory_budget_bytes = std::max<int64_t>(call.memory_budget_bytes - staging, 1);
    job = schedule::ContractionJob::Prepare(request, call.providers, cancel);
    if (!job.ok()) {
      return AsContractHeaderError(
          PrefixMessage(job.status(), StrCat("with ", staging, " bytes of staging buffers, ")),
          call);
    }
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

}  // namespace tenon::server
