#include "server/contraction_options.h"

#include <string>
#include <utility>

#include "backends/core/error.h"
#include "server/contraction_checks.h"

namespace tenon::server {
namespace {

constexpr int64_t kMinResultChunkBytes = 4096;

DType WiderType(DType dtype) {
  return dtype == DType::kFloat32     ? DType::kFloat64
         : dtype == DType::kComplex64 ? DType::kComplex128
                                      : dtype;
}

// Reads the options of one header into one call, part by part.
class Options {
 public:
  Options(const v1::ContractHeader& header, const ServerState& state, ContractCall* call)
      : header_(header), state_(state), limits_(state.limits), call_(*call) {}

  absl::Status Read() {
    TENON_RETURN_IF_ERROR(ReadPlan());
    TENON_RETURN_IF_ERROR(ReadExecution());
    TENON_RETURN_IF_ERROR(ReadGroupsAndProgress());
    TENON_RETURN_IF_ERROR(ReadMemoryBudget());
    TENON_RETURN_IF_ERROR(ReadResult());
    if (header_.has_expected_sets() && header_.expected_sets() < 0) {
      return OutOfRange("header.expected_sets", "at least 0", StrCat(header_.expected_sets()));
    }
    call_.request.expected_sets = header_.expected_sets();
    return absl::OkStatus();
  }

 private:
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

  const v1::ContractHeader& header_;
  const ServerState& state_;
  const Limits& limits_;
  ContractCall& call_;
};

absl::Status Options::ReadPlan() {
  switch (header_.plan_case()) {
    case v1::ContractHeader::kPath:
      call_.plan_field = "header.path.";
      call_.plan_source = v1::PLAN_SOURCE_EXPLICIT;
      call_.request.allow_slicing = false;
      return ReadExplicitPlan(header_.path());
    case v1::ContractHeader::kPlanId:
      return NotOffered("header.plan_id", "stored plans");
    case v1::ContractHeader::kSearch:
      return ReadSearch(header_.search());
    case v1::ContractHeader::PLAN_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

absl::Status Options::ReadExplicitPlan(const v1::ExplicitPlan& plan) {
  const std::string& field = call_.plan_field;
  if (!plan.has_path()) return MissingField(field + "path", "a path is required");
  PathSteps steps;
  switch (plan.path().format()) {
    case v1::PATH_FORMAT_SSA:
      steps.format = PathSteps::Format::kSsa;
      break;
    case v1::PATH_FORMAT_LINEAR:
      steps.format = PathSteps::Format::kLinear;
      break;
    default:
      return MissingField(field + "path.format",
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

absl::Status Options::ReadSearch(const v1::SearchOptions& search) {
  TENON_RETURN_IF_ERROR(ReadSearchMethods(search));
  TENON_RETURN_IF_ERROR(ReadSearchLimits(search));
  call_.request.allow_output_slicing = search.allow_output_slicing();
  if (!search.has_initial()) return absl::OkStatus();
  call_.plan_field = "header.search.initial.";
  if (search.methods_size() > 0) {
    return NotOffered("header.search.initial",
                      "improving a given path (without methods it is sliced)");
  }
  TENON_RETURN_IF_ERROR(ReadExplicitPlan(search.initial()));
  if (!call_.request.sliced.empty() && search.has_target_size()) {
    return NotOffered("header.search.initial.sliced_indices", "adding slices to given ones");
  }
  return absl::OkStatus();
}

absl::Status Options::ReadSearchMethods(const v1::SearchOptions& search) const {
  TENON_RETURN_IF_ERROR(CheckEnum(v1::SearchObjective_IsValid(search.objective()),
                                  search.objective(), "header.search.objective"));
  if (search.objective() != v1::SEARCH_OBJECTIVE_UNSPECIFIED &&
      search.objective() != v1::SEARCH_OBJECTIVE_WEIGHTED) {
    return NotOffered("header.search.objective", "this objective");
  }
  if (search.has_flops_weight()) return NotOffered("header.search.flops_weight", "weights");
  if (search.has_read_write_weight())
    return NotOffered("header.search.read_write_weight", "weights");
  TENON_RETURN_IF_ERROR(CheckEnum(v1::SlicingMode_IsValid(search.slicing_mode()),
                                  search.slicing_mode(), "header.search.slicing_mode"));
  if (search.slicing_mode() == v1::SLICING_MODE_DYNAMIC ||
      search.slicing_mode() == v1::SLICING_MODE_ANNEALED) {
    return NotOffered("header.search.slicing_mode", "this way to choose slices");
  }
  for (int i = 0; i < search.methods_size(); ++i) {
    const std::string field = StrCat("header.search.methods[", i, "]");
    const v1::SearchMethod method = search.methods(i);
    if (method == v1::SEARCH_METHOD_UNSPECIFIED || !v1::SearchMethod_IsValid(method)) {
      return MissingField(field, StrCat("the method ", static_cast<int>(method), " is unknown"));
    }
    if (method != v1::SEARCH_METHOD_GREEDY) return NotOffered(field, "this search method");
    if (i > 0) return OutOfRange(field, "no repetition", v1::SearchMethod_Name(method));
  }
  TENON_RETURN_IF_ERROR(CheckEnum(v1::PlanCachePolicy_IsValid(search.cache()), search.cache(),
                                  "header.search.cache"));
  const std::string first =
      header_.execution().providers_size() == 0 ? "cpu" : header_.execution().providers(0);
  if (!search.provider().empty() && search.provider() != first) {
    return NotOffered("header.search.provider", "planning for a provider that does not come first");
  }
  return absl::OkStatus();
}

absl::Status Options::ReadSearchLimits(const v1::SearchOptions& search) {
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

absl::Status Options::ReadExecution() {
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
    return NotOffered("header.execution.deterministic", "a fixed assignment to several providers");
  }
  if (execution.assignment_size() > 0) {
    return NotOffered("header.execution.assignment", "assignments of slice groups");
  }
  call_.request.normalize = execution.normalize();
  TENON_RETURN_IF_ERROR(CheckEnum(v1::PriorityClass_IsValid(execution.priority()),
                                  execution.priority(), "header.execution.priority"));
  call_.required_fingerprint = execution.required_fingerprint();
  return ReadTypes();
}

absl::Status Options::ReadGroupsAndProgress() {
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

absl::Status Options::ReadMemoryBudget() {
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
absl::Status Options::ReadTypes() {
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

absl::Status Options::ReadResult() {
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

}  // namespace

absl::Status ReadContractOptions(const v1::ContractHeader& header, const ServerState& state,
                                 ContractCall* call) {
  return Options(header, state, call).Read();
}

}  // namespace tenon::server
