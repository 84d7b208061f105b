#include "server/job_plan.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <utility>

#include "backends/core/error.h"
#include "backends/core/sha256.h"
#include "server/contraction_checks.h"
#include "server/contraction_report.h"
#include "server/tensor_codec.h"

namespace tenon::server {
namespace {

constexpr size_t kMaxDisplayNameBytes = 256;
constexpr int64_t kHugeBytes = int64_t{1} << 60;

absl::Status CheckOptions(const v1::SubmitContractionHeader& header) {
  if (header.display_name().size() > kMaxDisplayNameBytes) {
    return Error(Reason::kBadParameter,
                 StrCat("display_name has ", header.display_name().size(), " bytes; at most ",
                        kMaxDisplayNameBytes, " are taken"))
        .Field("header.display_name")
        .Meta("limit_bytes", kMaxDisplayNameBytes)
        .Meta("actual_bytes", header.display_name().size());
  }
  // The pool goes with its connection, and a job does not.
  if (!header.contraction().shared_pool().empty()) {
    return Error(Reason::kBadParameter, "a job takes nothing from shared memory")
        .Field("header.contraction.shared_pool");
  }
  if (header.has_ttl_seconds()) {
    TENON_RETURN_IF_ERROR(CheckPositive(header.ttl_seconds(), "header.ttl_seconds"));
  }
  if (!header.has_max_run_seconds()) return absl::OkStatus();
  return CheckPositive(header.max_run_seconds(), "header.max_run_seconds");
}

absl::Status CheckNoneVaries(const ContractCall& call) {
  for (size_t k = 0; k < call.operands.size(); ++k) {
    if (!call.operands[k].varying) continue;
    return Error(Reason::kBadParameter, "a job has one set of operands, so none may vary")
        .Field(StrCat(call.expression_field, "operands[", k, "].varying"));
  }
  return absl::OkStatus();
}

// Names in the header what was chosen for the call, and leaves the operands' bytes out.
void BindHeader(const ContractCall& call, const v1::PlanSummary& plan, v1::ContractHeader* header) {
  auto* operands = header->has_einsum() ? header->mutable_einsum()->mutable_operands()
                                        : header->mutable_network()->mutable_operands();
  for (int k = 0; k < operands->size(); ++k) {
    v1::Operand* operand = operands->Mutable(k);
    operand->clear_handle();
    operand->clear_inline_data();
    WriteTensorSpec(call.operands[k].spec, operand->mutable_spec());
  }
  header->set_request_id(call.request_id);
  v1::ExplicitPlan* path = header->mutable_path();
  path->Clear();
  *path->mutable_path() = plan.path();
  *path->mutable_sliced_indices() = plan.sliced_indices();
  v1::ContractExecution* execution = header->mutable_execution();
  execution->set_memory_budget_bytes(call.memory_budget_bytes);
  if (call.request.threads > 0) execution->set_threads(call.request.threads);
  execution->clear_progress_interval_seconds();
  execution->clear_max_queue_seconds();
}

// The most that the job has in the store at one time, headers aside: its operands, every block of
// the sum, the nodes of the tree, the result.
int64_t DataBytes(const ContractCall& call, const schedule::ContractionJob& job, int64_t groups,
                  int64_t result_bytes) {
  const contraction::Program& program = job.program();
  const tenon_program& descriptor = program.descriptor();
  const __int128 block = __int128{descriptor.block_elements} * DTypeSize(job.dtype());
  int64_t nodes = descriptor.n_blocks;
  for (int64_t n = std::min(groups, program.groups_per_block()); n > 0; n /= 2) ++nodes;
  __int128 bytes = block * nodes + result_bytes;
  for (const OperandSource& operand : call.operands) {
    bytes += CheckedByteCount(operand.spec).value_or(kHugeBytes);
  }
  return static_cast<int64_t>(std::min<__int128>(bytes, kHugeBytes));
}

}  // namespace

std::string HeaderSha256(const v1::SubmitContractionHeader& header) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream raw(&bytes);
    google::protobuf::io::CodedOutputStream coded(&raw);
    coded.SetSerializationDeterministic(true);
    header.SerializeToCodedStream(&coded);
  }
  const auto digest = Sha256(bytes);
  return HexDigits(digest.data(), digest.size());
}

absl::Status AtContraction(const absl::Status& status) {
  return PrefixFields(WithoutHeader(status), "header.contraction.");
}

absl::StatusOr<std::unique_ptr<JobPlanner>> JobPlanner::Create(v1::SubmitContractionHeader header,
                                                               ServerState* state,
                                                               std::string owner,
                                                               const CancelToken* cancel) {
  TENON_RETURN_IF_ERROR(CheckOptions(header));
  std::unique_ptr<JobPlanner> planner(
      new JobPlanner(std::move(header), state, std::move(owner), cancel));
  const absl::Status read = planner->ReadHeader();
  if (!read.ok()) return AtContraction(read);
  return planner;
}

absl::Status JobPlanner::ReadHeader() {
  v1::ContractHeader header = bound_.contraction();
  TENON_ASSIGN_OR_RETURN(call_, DecodeHeader(&header, *state_, owner_, HeaderUse::kContract));
  TENON_RETURN_IF_ERROR(CheckNoneVaries(call_));
  planned_ = call_;
  for (OperandSource& operand : planned_.operands) {
    operand.stored.reset();  // when the job runs they come from its own store
    operand.inline_bytes.reset();
  }
  planned_.detail = v1::REPORT_DETAIL_FULL;
  finder_ = std::make_unique<PlanFinder>(&planned_, state_, cancel_, nullptr);
  return absl::OkStatus();
}

absl::StatusOr<bool> JobPlanner::FindAtOnce() {
  auto found = finder_->FindAtOnce();
  if (!found.ok()) return AtContraction(found.status());
  return found;
}

absl::Status JobPlanner::Search() {
  const absl::Status found = finder_->Search();
  return found.ok() ? found : AtContraction(found);
}

absl::StatusOr<PlannedJob> JobPlanner::Bind() {
  auto planned = BindCall();
  if (!planned.ok()) return AtContraction(planned.status());
  return planned;
}

absl::StatusOr<v1::PlanSummary> JobPlanner::FullPlan() const {
  TENON_ASSIGN_OR_RETURN(const auto job, PrepareCall(planned_, cancel_, &state_->programs));
  v1::PlanSummary plan;
  WritePlanSummary(planned_, *job, &plan);
  return plan;
}

absl::StatusOr<PlannedJob> JobPlanner::BindCall() {
  TENON_ASSIGN_OR_RETURN(v1::PlanSummary plan, FullPlan());
  BindHeader(call_, plan, bound_.mutable_contraction());
  v1::ContractHeader to_run = bound_.contraction();
  TENON_ASSIGN_OR_RETURN(const ContractCall call,
                         DecodeHeader(&to_run, *state_, owner_, HeaderUse::kContract));
  TENON_ASSIGN_OR_RETURN(const auto job, PrepareCall(call, cancel_, &state_->programs));
  bound_.mutable_contraction()->mutable_execution()->set_required_fingerprint(job->fingerprint());
  plan.set_program_fingerprint(job->fingerprint());
  if (call_.detail == v1::REPORT_DETAIL_BRIEF) {
    plan.clear_path();
    plan.clear_sliced_indices();
  }
  const TensorSpec result = ResultSpec(call, *job);
  TENON_ASSIGN_OR_RETURN(const int64_t result_bytes, CheckedByteCount(result));
  const int64_t last =
      call.request.last_group > 0 ? call.request.last_group : job->program().n_groups();

  PlannedJob planned;
  NewJob& out = planned.job;
  out.request_id = call_.request_id;
  out.header = bound_.SerializeAsString();
  if (bound_.has_ttl_seconds()) out.ttl_seconds = bound_.ttl_seconds();
  out.job.set_display_name(bound_.display_name());
  *out.job.mutable_plan() = std::move(plan);
  WriteTensorSpec(result, out.job.mutable_result_spec());
  out.job.set_result_bytes(result_bytes);
  out.job.set_groups_total(last - call.request.first_group);
  WriteMemoryPlan(*job, StagingBytes(call, *job), out.plan.mutable_memory());
  out.plan.set_planned_peak_bytes(out.plan.memory().total_bytes());
  if (const auto seconds = job->predicted_seconds()) out.plan.set_estimated_seconds(*seconds);
  planned.store_bytes = DataBytes(call, *job, out.job.groups_total(), result_bytes) +
                        static_cast<int64_t>(out.header.size() + out.job.ByteSizeLong()) +
                        JobStore::kRowBytes;
  planned.call = std::move(call_);
  return planned;
}

}  // namespace tenon::server
