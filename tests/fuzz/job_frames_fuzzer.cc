// Frames of SubmitContraction: the header's checks, the job that it is planned to be, and the table
// of states of the operands. Nothing is stored or computed.

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "backends/core/cancel.h"
#include "backends/core/error.h"
#include "backends/cpu/provider.h"
#include "server/content_store.h"
#include "server/job_plan.h"
#include "server/state.h"
#include "tests/fuzz/frame_input.h"
#include "tests/fuzz/frame_target.h"
#include "tests/fuzz/operand_upload.h"

namespace tenon::fuzz {
namespace {

using Upload = OperandUpload<v1::SubmitContractionRequest>;

server::ServerState& State() {
  static server::ServerState* const state = [] {
    auto* made = new server::ServerState(int64_t{64} << 20, 1, 16, std::chrono::seconds(30));
    made->limits.max_threads = 2;
    // Searches are not what is tested here.
    made->limits.max_plan_seconds = 0.02;
    made->limits.default_plan_seconds = 0.002;
    made->store = std::make_shared<server::ContentStore>(&made->budget, std::chrono::seconds(60));
    auto provider = plugin::Provider::Create(cpu::ReferenceProviderApi(), "");
    FUZZ_CHECK(provider.ok() && (*provider)->WarmUp().ok());
    made->providers.Set({"cpu", *provider, absl::OkStatus()});
    made->lifecycle.MoveTo(server::ServerPhase::kReady);
    return made;
  }();
  return *state;
}

// The stages of a submission, one after the other.
absl::StatusOr<server::PlannedJob> Plan(const v1::SubmitContractionHeader& header) {
  const CancelToken cancel;
  TENON_ASSIGN_OR_RETURN(const auto planner,
                         server::JobPlanner::Create(header, &State(), "", &cancel));
  TENON_ASSIGN_OR_RETURN(const bool found, planner->FindAtOnce());
  if (!found) TENON_RETURN_IF_ERROR(planner->Search());
  return planner->Bind();
}

// What is stored must run as it was planned: it has all but the operands' bytes, and leads to the
// same program again.
void CheckPlanned(const server::PlannedJob& planned) {
  v1::SubmitContractionHeader bound;
  FUZZ_CHECK(bound.ParseFromString(planned.job.header));
  const v1::ContractHeader& header = bound.contraction();
  FUZZ_CHECK(header.has_path() && !header.execution().required_fingerprint().empty());
  const auto& operands =
      header.has_einsum() ? header.einsum().operands() : header.network().operands();
  FUZZ_CHECK(operands.size() == static_cast<int>(planned.call.operands.size()));
  for (const v1::Operand& operand : operands) {
    FUZZ_CHECK(operand.has_spec() && !operand.has_inline_data() && operand.handle().empty());
  }
  FUZZ_CHECK(planned.job.job.result_bytes() >= 0 && planned.job.job.groups_total() > 0);
  FUZZ_CHECK(planned.store_bytes >=
             Upload::BytesOf(planned.call.operands) + planned.job.job.result_bytes());
  const auto again = Plan(bound);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again->job.job.plan().program_fingerprint() ==
             planned.job.job.plan().program_fingerprint());
}

// Null when the server would not begin to read.
std::unique_ptr<Upload> Begin(const v1::SubmitContractionHeader& header) {
  FUZZ_CHECK(server::HeaderSha256(header).size() == 64);
  auto planned = Plan(header);
  if (!planned.ok()) {
    CheckError(planned.status());
    return nullptr;
  }
  CheckPlanned(*planned);
  if (Upload::BytesOf(planned->call.operands) > kMostOperandBytes) return nullptr;
  return std::make_unique<Upload>(std::move(planned->call.operands), State().limits, "UPLOAD");
}

void CheckOne(std::string_view input) {
  std::unique_ptr<Upload> upload;
  v1::SubmitContractionRequest frame;
  bool first = true;
  for (const std::string& bytes : SplitFrames(input)) {
    CheckSplit(frame, {v1::SubmitContractionRequest::kChunkFieldNumber}, bytes);
    if (!frame.ParseFromString(bytes)) return;  // the stream fails before the states are asked
    if (std::exchange(first, false)) {
      if (!frame.has_header()) return CheckError(server::IllegalFrame("START", frame));
      upload = Begin(frame.header());
      if (upload == nullptr) return;
    } else if (!upload->OnFrame(frame)) {
      return;
    }
  }
  if (upload != nullptr) upload->OnHalfClose();
}

}  // namespace
}  // namespace tenon::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenon::fuzz::CheckOne({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return tenon::fuzz::MutateInput(tenon::v1::SubmitContractionRequest::default_instance(), data,
                                  size, max_size, seed);
}
