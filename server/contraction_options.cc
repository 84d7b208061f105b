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
      call_.plan_source = v1::PLAN_SOURCE_PLAN_ID;
      call_.plan_id = header_.plan_id();
      call_.request.allow_slicing = false;
      return absl::OkStatus();
    case v1::ContractHeader::kSearch:
      return ReadSearch(header_.search());
    case v1::ContractHeader::PLAN_NOT_SET:
      call_.question = DefaultQuestion(state_);
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
  PlanQuestion question;
  TENON_RETURN_IF_ERROR(ReadSearchOptions(search, "header.search.", state_, &question));
  if (search.has_memory_bytes()) {
    TENON_RETURN_IF_ERROR(CheckAtLeastOne(search.memory_bytes(), "header.search.memory_bytes"));
  }
  call_.request.allow_output_slicing = question.options.allow_output_slicing;
  call_.request.allow_slicing = question.options.slicing_mode != planner::SlicingMode::kNone;
  call_.question = std::move(question);
  if (!search.has_initial()) return absl::OkStatus();
  call_.plan_field = "header.search.initial.";
  return ReadExplicitPlan(search.initial());
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
  call_.priority = PriorityOf(execution.priority());
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
  if (header_.has_search() && header_.search().has_memory_bytes() &&
      header_.search().memory_bytes() <= budget) {
    lower(header_.search().memory_bytes());
    call_.budget_field = "header.search.memory_bytes";
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
