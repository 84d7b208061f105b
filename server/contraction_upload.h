// The operands of a contraction as they arrive: the table of states of the client's frames.

#ifndef TENON_SERVER_CONTRACTION_UPLOAD_H_
#define TENON_SERVER_CONTRACTION_UPLOAD_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/chunk_view.h"
#include "server/contraction_codec.h"
#include "server/tensor_receiver.h"
#include "tenon/v1/contraction.pb.h"

namespace tenon::server {

// The varying operands of one set, in operand order. Without varying operands there is one set with
// none.
struct SetInputs {
  int64_t set = 0;
  std::vector<TensorReceiver> operands;
  std::optional<SharedSpan> result;  // where its result shall lie; absent: where the server likes
  std::chrono::steady_clock::time_point complete_time;
};

// As in the table of ContractionService; START is the caller's, who has the header then.
enum class UploadState { kStart, kReading, kBetweenSets, kComplete, kClosed };
std::string_view UploadStateName(UploadState state);

// `Frame` is ContractRequest or SubmitContractionRequest, here and below.
// "header", "chunk", "operand_set", or "" for an empty frame.
template <typename Frame>
std::string_view FrameName(const Frame& frame);
// FRAME_ORDER, or MISSING_FIELD for an empty frame. `state` is the name of the table.
template <typename Frame>
absl::Status IllegalFrame(std::string_view state, const Frame& frame);

// Checks the frames after the header and copies their bytes into buffers that are taken once. Used
// by one thread at a time. After an error nothing more may be given to it.
class ContractUpload {
 public:
  // What frames may name of shared memory.
  struct Shared {
    const SharedPool* pool = nullptr;  // outlives the upload; null: nothing
    int64_t result_bytes = 0;          // of one set
    std::optional<SharedSpan> result;  // for set 0, from the header
  };
  // Takes the memory of the operands that come neither from the store nor from shared memory, and
  // of one set of varying ones; moves the inline bytes out of `operands`. `limits` outlives it. In
  // errors the state kReading has the name `reading`, a literal. Errors as Tensor::Allocate.
  static absl::StatusOr<std::unique_ptr<ContractUpload>> Create(
      std::vector<OperandSource>* operands, const Limits& limits, const Shared& shared,
      std::string_view reading = UploadStateName(UploadState::kReading));

  UploadState state() const { return state_; }
  // Errors' fields start with the frame's name.
  template <typename Frame>
  absl::Status OnFrame(const Frame& frame);
  // The same for a frame that is this chunk.
  absl::Status OnChunk(const ChunkView& chunk);
  // TRUNCATED_UPLOAD where the stream may not end yet; else the state is kClosed.
  absl::Status OnHalfClose();

  // Whether a set has all its bytes and was not taken yet.
  bool set_ready() const { return set_ready_; }
  std::unique_ptr<SetInputs> TakeSet();
  // The buffers of the next set: new ones, or those of a set that was taken and is done with.
  // Between sets, before the next frame.
  absl::StatusOr<std::unique_ptr<SetInputs>> NewInputs() const;
  void Provide(std::unique_ptr<SetInputs> inputs);

  // The operands that do not vary, by operand; those that vary or are stored are without memory.
  // Once, when the first set is ready.
  std::vector<Tensor> TakeFixed();
  // Over the wire.
  int64_t received_bytes() const { return received_bytes_; }

 private:
  ContractUpload(const Limits& limits, const Shared& shared, std::string_view reading)
      : limits_(limits), shared_(shared), reading_(reading) {}

  bool readable() const {
    return state_ == UploadState::kReading || state_ == UploadState::kBetweenSets;
  }
  absl::Status Accept(const ChunkView& chunk);
  absl::Status OnOperandSet(const v1::OperandSet& frame);
  absl::Status OnData(const v1::OperandData& data);
  absl::Status OnShared(const v1::OperandData& data, TensorReceiver* receiver);
  absl::Status OnResultRegion(const v1::SharedRegion& region);
  void BeginSet();
  absl::Status CheckSet(int64_t set) const;
  absl::StatusOr<TensorReceiver*> Find(int64_t operand);
  // The operand has grown by `bytes`, over the wire or not; it was not complete before.
  void Received(size_t operand, const TensorReceiver& receiver, int64_t bytes, bool wire = true);
  void CompleteSetIfReady();
  absl::Status Truncated() const;
  std::string_view StateName() const;

  const Limits& limits_;
  const Shared shared_;
  const std::string_view reading_;
  UploadState state_ = UploadState::kReading;
  int64_t set_ = 0;
  std::vector<bool> stored_;  // per operand: its bytes are there, and not in fixed_
  std::vector<int> varying_;  // per operand: its place in a set's inputs, -1 if fixed
  std::vector<TensorSpec> varying_specs_;
  std::vector<TensorReceiver> fixed_;                // per operand
  std::unique_ptr<SetInputs> inputs_;                // of the current set
  int64_t fixed_missing_ = 0, varying_missing_ = 0;  // operands that lack bytes
  int64_t set_bytes_ = 0;  // received of the varying operands of the current set
  int64_t received_bytes_ = 0;
  bool set_ready_ = false;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_CONTRACTION_UPLOAD_H_
