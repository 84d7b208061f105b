// Frames of CreateDataset and CreateTensor: the states, the reservation, and what is stored. The
// first byte of the input tells which of the two; the frames follow.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "backends/core/cancel.h"
#include "backends/core/error.h"
#include "server/content_store.h"
#include "server/dataset_upload.h"
#include "server/state.h"
#include "server/tensor_codec.h"
#include "tests/fuzz/frame_input.h"
#include "tests/fuzz/frame_target.h"

namespace tenon::fuzz {
namespace {

using server::ContentStore;
using Kind = server::ContentStore::Kind;

constexpr int64_t kBudgetBytes = int64_t{256} << 10;
constexpr int64_t kFixedBytes = 4096;  // of an upload beside what it reserves

server::ServerState& State() {
  static server::ServerState* const state = [] {
    auto* made = new server::ServerState(kBudgetBytes, 1, 16, std::chrono::seconds(30));
    made->store = std::make_shared<ContentStore>(&made->budget, std::chrono::seconds(60));
    made->lifecycle.MoveTo(server::ServerPhase::kReady);
    return made;
  }();
  return *state;
}

template <typename Request>
class Upload {
 public:
  explicit Upload(Kind kind) : kind_(kind), upload_(&State(), kind) {}

  // False when the stream has failed.
  bool OnFrame(const Request& frame) {
    absl::Status status;
    if (frame.has_header()) {
      status = OnHeader(frame.header());
    } else if (frame.has_chunk()) {
      status = upload_.OnChunk(frame.chunk());
      if (status.ok()) {
        FUZZ_CHECK(shadow_ != nullptr && frame.chunk().set() == 0 && frame.chunk().operand() == 0);
        shadow_->Append(frame.chunk().offset_bytes(), frame.chunk().data());
      }
    } else {
      return false;
    }
    const int64_t reserved = State().budget.reserved_bytes();
    FUZZ_CHECK(reserved <= kBudgetBytes);
    if (!status.ok()) CheckError(status);
    return status.ok();
  }

  void OnHalfClose() {
    const bool complete = shadow_ != nullptr && shadow_->complete();
    const absl::Status status = upload_.OnHalfClose();
    FUZZ_CHECK(status.ok() == complete);
    if (!status.ok()) return CheckError(status);
    bool created = false;
    const CancelToken cancel;
    const auto stored = upload_.Store(&cancel, &created);
    if (!stored.ok()) return CheckError(stored.status());
    FUZZ_CHECK(created && stored->spec == spec_ && stored->size_bytes == shadow_->size());
    FUZZ_CHECK(stored->active_uses == 0);
    CheckStored(stored->handle);
  }

 private:
  template <typename Header>
  absl::Status OnHeader(const Header& header) {
    server::UploadState::Header fields;
    fields.request_id = header.request_id();
    fields.display_name = header.display_name();
    fields.expected_sha256 = header.expected_sha256();
    fields.spec = &header.spec();
    if (header.has_inline_data()) fields.inline_data = &header.inline_data();
    if (header.has_ttl_seconds()) fields.ttl_seconds = header.ttl_seconds();
    const MemoryCheck memory;
    TENON_ASSIGN_OR_RETURN(const int64_t needed, upload_.OnHeader(fields));
    TENON_ASSIGN_OR_RETURN(server::Reservation reservation, State().budget.Reserve(needed));
    TENON_RETURN_IF_ERROR(upload_.Admit(std::move(reservation), fields.inline_data));
    FUZZ_CHECK(shadow_ == nullptr);  // one header only
    const int64_t reserved = State().budget.reserved_bytes();
    memory.Check(reserved + kFixedBytes);
    spec_ = *server::ReadTensorSpec(header.spec(), "spec", State().limits);
    const int64_t bytes = *CheckedByteCount(spec_);
    const auto rank = static_cast<int64_t>(spec_.shape.size());
    FUZZ_CHECK(reserved == ContentStore::EntryBytes(bytes, rank));
    shadow_ = std::make_unique<ShadowTensor>(bytes);
    if (header.has_inline_data()) shadow_->Append(0, header.inline_data());
    brief_ = header.has_ttl_seconds() && header.ttl_seconds() < 10;
    return absl::OkStatus();
  }

  void CheckStored(const std::string& handle) const {
    ContentStore& store = *State().store;
    {
      const auto found = store.Get(kind_, "", handle);
      FUZZ_CHECK(found.ok() || brief_);
      if (found.ok()) {
        shadow_->CheckSame((*found)->tensor);
        FUZZ_CHECK(handle.ends_with(server::ContentSha256((*found)->tensor)));
      }
    }
    const Kind other = kind_ == Kind::kTensor ? Kind::kDataset : Kind::kTensor;
    FUZZ_CHECK(!store.Get(other, "", handle).ok());
    const auto freed = store.Delete(kind_, "", handle);
    FUZZ_CHECK(freed.ok() || brief_);
    FUZZ_CHECK(store.List(kind_, std::nullopt).empty() && store.bytes() == 0);
  }

  const Kind kind_;
  server::UploadState upload_;
  TensorSpec spec_;
  std::unique_ptr<ShadowTensor> shadow_;  // null before the header
  bool brief_ = false;                    // may expire while it is looked at
};

template <typename Request>
void CheckFrames(Kind kind, std::string_view input) {
  Upload<Request> upload(kind);
  Request frame;
  for (const std::string& bytes : SplitFrames(input)) {
    CheckSplit(frame, {Request::kChunkFieldNumber}, bytes);
    if (!frame.ParseFromString(bytes) || !upload.OnFrame(frame)) return;
  }
  upload.OnHalfClose();
}

void CheckOne(std::string_view input) {
  if (input.empty()) return;
  if (input[0] % 2 == 0) {
    CheckFrames<v1::CreateDatasetRequest>(Kind::kDataset, input.substr(1));
  } else {
    CheckFrames<v1::CreateTensorRequest>(Kind::kTensor, input.substr(1));
  }
  FUZZ_CHECK(State().budget.reserved_bytes() == 0);  // however it ended
}

}  // namespace
}  // namespace tenon::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenon::fuzz::CheckOne({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  if (size == 0 || max_size <= 1) return 0;
  // Both requests have the same fields.
  return 1 + tenon::fuzz::MutateInput(tenon::v1::CreateTensorRequest::default_instance(), data + 1,
                                      size - 1, max_size - 1, seed);
}
