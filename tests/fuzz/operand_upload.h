// What the targets share that take the operands of a contraction: the table of states of the frames
// after the header, against a model.

#ifndef TENON_TESTS_FUZZ_OPERAND_UPLOAD_H_
#define TENON_TESTS_FUZZ_OPERAND_UPLOAD_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "server/contraction_codec.h"
#include "server/contraction_upload.h"
#include "tests/fuzz/frame_target.h"

namespace tenon::fuzz {

inline constexpr int64_t kMostOperandBytes = int64_t{1} << 20;  // larger uploads are not begun
inline constexpr int64_t kBytesPerOperand = 1024;               // beside its elements
inline constexpr int64_t kErrorBytes = int64_t{16} << 10;  // a frame brings nothing else to keep

// One upload of the operands of a contraction, beside its model that keeps its own copy of all
// bytes. `Frame` is the request of the stream that they come in.
template <typename Frame>
class OperandUpload {
 public:
  // As the server begins it; `limits` outlives it. In errors the state of reading has this name.
  OperandUpload(std::vector<server::OperandSource> operands, const server::Limits& limits,
                std::string_view reading)
      : admitted_bytes_(BytesOf(operands) +
                        kBytesPerOperand * (1 + static_cast<int64_t>(operands.size()))) {
    for (const auto& operand : operands) {
      varying_.push_back(operand.varying);
      shadows_.push_back(operand.stored != nullptr
                             ? nullptr
                             : std::make_unique<ShadowTensor>(*CheckedByteCount(operand.spec)));
      if (operand.inline_bytes.has_value()) shadows_.back()->Append(0, *operand.inline_bytes);
    }
    const MemoryCheck memory;  // the model's own bytes are held already
    auto upload = server::ContractUpload::Create(&operands, limits, {}, reading);
    FUZZ_CHECK(upload.ok());
    upload_ = *std::move(upload);
    memory.Check(admitted_bytes_);
    Advance();
  }

  // Of all operands, in bytes, as their specs say.
  static int64_t BytesOf(const std::vector<server::OperandSource>& operands) {
    int64_t bytes = 0;
    for (const auto& operand : operands) bytes += *CheckedByteCount(operand.spec);
    return bytes;
  }

  // False when the stream has failed.
  bool OnFrame(const Frame& frame) {
    const server::UploadState before = upload_->state();
    const MemoryCheck memory;
    const absl::Status status = upload_->OnFrame(frame);
    memory.Check(kErrorBytes);
    if (!status.ok()) {
      CheckError(status);
      return false;
    }
    FUZZ_CHECK(before == server::UploadState::kReading ||
               before == server::UploadState::kBetweenSets);
    if (before == server::UploadState::kBetweenSets) NextSet();
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
    const bool between = upload_->state() == server::UploadState::kBetweenSets;
    const bool legal = complete || between || (varies && fixed_complete && !varying_began);
    const absl::Status status = upload_->OnHalfClose();
    FUZZ_CHECK(status.ok() == legal);
    if (!status.ok()) return CheckError(status);
    FUZZ_CHECK(upload_->state() == server::UploadState::kClosed);
    FUZZ_CHECK(!upload_->OnFrame(Frame()).ok());  // after the end nothing is taken
  }

 private:
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
    FUZZ_CHECK((upload_->state() == server::UploadState::kReading) == !complete);
    if (!complete) return;
    if (set_ == 0) CheckFixed(upload_->TakeFixed());
    auto inputs = upload_->TakeSet();
    FUZZ_CHECK(inputs->set == set_);
    size_t next = 0;
    for (size_t k = 0; k < shadows_.size(); ++k) {
      if (varying_[k]) shadows_[k]->CheckSame(inputs->operands[next++].tensor());
    }
    FUZZ_CHECK(next == inputs->operands.size());
    FUZZ_CHECK((next > 0) == (upload_->state() == server::UploadState::kBetweenSets));
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

}  // namespace tenon::fuzz

#endif  // TENON_TESTS_FUZZ_OPERAND_UPLOAD_H_
