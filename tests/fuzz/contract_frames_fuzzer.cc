// Frames of a Contract call: the header's checks and the table of states of the operands. Nothing
// is planned or computed.

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "backends/cpu/provider.h"
#include "server/content_store.h"
#include "server/contraction_codec.h"
#include "server/state.h"
#include "tests/fuzz/frame_input.h"
#include "tests/fuzz/frame_target.h"
#include "tests/fuzz/operand_upload.h"

namespace tenon::fuzz {
namespace {

using server::UploadState;

server::ServerState& State() {
  static server::ServerState* const state = [] {
    auto* made = new server::ServerState(int64_t{64} << 20, 1, 16, std::chrono::seconds(30));
    made->limits.max_threads = 2;
    made->store = std::make_shared<server::ContentStore>(&made->budget, std::chrono::seconds(60));
    auto provider = plugin::Provider::Create(cpu::ReferenceProviderApi(), "");
    FUZZ_CHECK(provider.ok() && (*provider)->WarmUp().ok());
    made->providers.Set({"cpu", *provider, absl::OkStatus()});
    made->lifecycle.MoveTo(server::ServerPhase::kReady);
    return made;
  }();
  return *state;
}

using Upload = OperandUpload<v1::ContractRequest>;

// Null when the server would not begin to read.
std::unique_ptr<Upload> Begin(v1::ContractHeader* header) {
  auto call = server::DecodeHeader(header, State(), "", server::HeaderUse::kContract);
  if (!call.ok()) {
    CheckError(call.status());
    return nullptr;
  }
  const auto expression = server::ExpressionOf(*call);
  if (!expression.ok()) {
    CheckError(expression.status());
    return nullptr;
  }
  if (Upload::BytesOf(call->operands) > kMostOperandBytes) return nullptr;
  return std::make_unique<Upload>(std::move(call->operands), State().limits,
                                  server::UploadStateName(UploadState::kReading));
}

void CheckOne(std::string_view input) {
  std::unique_ptr<Upload> upload;
  v1::ContractRequest frame;
  bool first = true;
  for (const std::string& bytes : SplitFrames(input)) {
    CheckSplit(frame, {v1::ContractRequest::kChunkFieldNumber}, bytes);
    if (!frame.ParseFromString(bytes)) return;  // the stream fails before the states are asked
    if (std::exchange(first, false)) {
      if (!frame.has_header()) {
        return CheckError(
            server::IllegalFrame(server::UploadStateName(UploadState::kStart), frame));
      }
      upload = Begin(frame.mutable_header());
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
  return tenon::fuzz::MutateInput(tenon::v1::ContractRequest::default_instance(), data, size,
                                  max_size, seed);
}
