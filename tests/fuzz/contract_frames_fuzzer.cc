// Frames of a Contract call: the header's checks and the table of states of the operands, against a
// model that keeps its own copy of all bytes. Nothing is planned or computed.

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/cpu/provider.h"
#include "server/content_store.h"
#include "server/contraction_codec.h"
#include "server/contraction_upload.h"
#include "server/state.h"
#include "tests/fuzz/frame_input.h"
#include "tests/fuzz/frame_target.h"

namespace tenon::fuzz {
namespace {

using server::UploadState;

constexpr int64_t kMostOperandBytes = int64_t{1} << 20;  // larger uploads are not begun
constexpr int64_t kBytesPerOperand = 1024;               // beside its elements
constexpr int64_t kErrorBytes = int64_t{16} << 10;       // a frame brings nothing else to keep

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

// One upload beside its model.
class Upload {
 public:
  // Null when the server would not begin to read.
  static std::unique_ptr<Upload> Begin(v1::ContractHeader* header) {
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
    int64_t bytes = 0;
    for (const auto& operand : call->operands) bytes += *CheckedByteCount(operand.spec);
    if (bytes > kMostOperandBytes) return nullptr;
    return std::unique_ptr<Upload>(new Upload(std::move(call->operands), bytes));
  }

  // False when the stream has failed.
  bool OnFrame(const v1::ContractRequest& frame) {
    const UploadState before = upload_->state();
    const MemoryCheck memory;
    const absl::Status status = upload_->OnFrame(frame);
    memory.Check(kErrorBytes);
    if (!status.ok()) {
      CheckError(status);
      return false;
    }
    FUZZ_CHECK(before == UploadState::kReading || before == UploadState::kBetweenSets);
    if (before == UploadState::kBetweenSets) NextSet();
    if (frame.has_chunk()) {
      FUZZ_CHECK(frame.chunk().set() == set_);
      const v1::TensorChunk& chunk = frame.chunk();
      Of(chunk.operand()).Append(chunk.offset_bytes(), chunk.data(), varying_[chunk.operand()]);
    } else {
      FUZZ_CHECK(frame.has_operand_set() && frame.operand_set().set() == set_);
      for (const auto& data : frame.operand_set().operands()) {
        ShadowTensor& shadow = Of(data.operand());
        if (!shadow.complete()) shadow.Append(0, data.data());
        FUZZ_CHECK(shadow.size() == static_cast<int64_t>(data.data().size()));
      }
    }
    Advance();
    return true;
  }

  void OnHalfClose() {
    const bool complete = CompleteSet();
    bool varying_began = false, fixed_complete = true, varies = false;
    for (size_t k = 0; k < shadows_.size(); ++k) {
      if (shadows_[k] == nullptr) continue;
      varies |= varying_[k];
      if (varying_[k]) varying_began |= shadows_[k]->received() > 0;
      if (!varying_[k]) fixed_complete &= shadows_[k]->complete();
    }
    const bool between = upload_->state() == UploadState::kBetweenSets;
    const bool legal = complete || between || (varies && fixed_complete && !varying_began);
    const absl::Status status = upload_->OnHalfClose();
    FUZZ_CHECK(status.ok() == legal);
    if (!status.ok()) return CheckError(status);
    FUZZ_CHECK(upload_->state() == UploadState::kClosed);
    FUZZ_CHECK(!upload_->OnFrame(v1::ContractRequest()).ok());  // after the end nothing is taken
  }

 private:
  Upload(std::vector<server::OperandSource> operands, int64_t bytes)
      : admitted_bytes_(bytes + kBytesPerOperand * (1 + static_cast<int64_t>(operands.size()))) {
    for (const auto& operand : operands) {
      varying_.push_back(operand.varying);
      shadows_.push_back(operand.stored != nullptr
                             ? nullptr
                             : std::make_unique<ShadowTensor>(*CheckedByteCount(operand.spec)));
      if (operand.inline_bytes.has_value()) shadows_.back()->Append(0, *operand.inline_bytes);
    }
    const MemoryCheck memory;  // the model's own bytes are held already
    auto upload = server::ContractUpload::Create(&operands, State().limits, {});
    FUZZ_CHECK(upload.ok());
    upload_ = *std::move(upload);
    memory.Check(admitted_bytes_);
    Advance();
  }

  ShadowTensor& Of(int64_t operand) {
    FUZZ_CHECK(operand >= 0 && operand < static_cast<int64_t>(shadows_.size()));
    FUZZ_CHECK(shadows_[operand] != nullptr && (set_ == 0 || varying_[operand]));
    return *shadows_[operand];
  }

  bool CompleteSet() const {
    for (const auto& shadow : shadows_) {
      if (shadow != nullptr && !shadow->complete()) return false;
    }
    return true;
  }

  void NextSet() {
    ++set_;
    for (size_t k = 0; k < shadows_.size(); ++k) {
      if (varying_[k]) shadows_[k]->Restart();
    }
  }

  // As the stream does after each frame: takes what is complete, gives buffers for the next set.
  void Advance() {
    const bool complete = CompleteSet();
    FUZZ_CHECK(upload_->set_ready() == complete);
    FUZZ_CHECK((upload_->state() == UploadState::kReading) == !complete);
    if (!complete) return;
    if (set_ == 0) CheckFixed(upload_->TakeFixed());
    auto inputs = upload_->TakeSet();
    FUZZ_CHECK(inputs->set == set_);
    size_t next = 0;
    for (size_t k = 0; k < shadows_.size(); ++k) {
      if (varying_[k]) shadows_[k]->CheckSame(inputs->operands[next++].tensor());
    }
    FUZZ_CHECK(next == inputs->operands.size());
    FUZZ_CHECK((next > 0) == (upload_->state() == UploadState::kBetweenSets));
    if (next == 0) return;
    if (set_ % 2 == 0) {
      const MemoryCheck memory;
      auto fresh = upload_->NewInputs();
      FUZZ_CHECK(fresh.ok());
      memory.Check(admitted_bytes_);
      inputs = *std::move(fresh);
    }
    upload_->Provide(std::move(inputs));
  }

  void CheckFixed(const std::vector<Tensor>& tensors) const {
    FUZZ_CHECK(tensors.size() == shadows_.size());
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (!varying_[k] && shadows_[k] != nullptr) shadows_[k]->CheckSame(tensors[k]);
    }
  }

  const int64_t admitted_bytes_;
  std::vector<bool> varying_;
  std::vector<std::unique_ptr<ShadowTensor>> shadows_;  // null: from the store
  std::unique_ptr<server::ContractUpload> upload_;
  int64_t set_ = 0;
};

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
      upload = Upload::Begin(frame.mutable_header());
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
