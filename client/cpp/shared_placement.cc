#include "client/cpp/shared_placement.h"

#include <algorithm>

#include "backends/core/error.h"
#include "client/cpp/wire.h"

namespace tenon::client {
namespace {

v1::SharedRegion Region(int64_t offset_bytes, size_t size_bytes) {
  v1::SharedRegion region;
  region.set_offset_bytes(offset_bytes);
  region.set_size_bytes(static_cast<int64_t>(size_bytes));
  return region;
}

v1::SharedRegion RegionOf(const SharedBlock& block) {
  return Region(block.offset_bytes(), block.bytes().size());
}

}  // namespace

bool IsPoolRefused(const absl::Status& status) {
  const ErrorDetails details = GetErrorDetails(status);
  return !status.ok() && !details.fields.empty() &&
         details.fields.front().first == "header.shared_pool" &&
         (details.reason == Reason::kNotFound || details.reason == Reason::kNotImplemented);
}

SharedPlacement::~SharedPlacement() {
  std::vector<SharedBlock> retired;
  for (auto& [set, block] : results_) retired.push_back(std::move(block));
  if (!retired.empty()) pool_->Retire(std::move(retired));
}

std::optional<v1::SharedRegion> SharedPlacement::Place(int64_t set,
                                                       std::span<const std::byte> bytes) {
  if (static_cast<int64_t>(bytes.size()) < kInlineLimitBytes) return std::nullopt;
  if (const auto offset = pool_->OffsetOf(bytes)) return Region(*offset, bytes.size());
  absl::StatusOr<SharedBlock> copy = pool_->Allocate(static_cast<int64_t>(bytes.size()));
  if (!copy.ok()) return std::nullopt;
  std::copy(bytes.begin(), bytes.end(), copy->bytes().begin());
  const v1::SharedRegion region = RegionOf(*copy);
  std::lock_guard lock(mutex_);
  copies_[set].push_back(*std::move(copy));
  return region;
}

std::optional<v1::SharedRegion> SharedPlacement::PlaceResult(int64_t set) {
  if (result_bytes_ < kInlineLimitBytes) return std::nullopt;
  absl::StatusOr<SharedBlock> block = pool_->Allocate(result_bytes_);
  if (!block.ok()) return std::nullopt;
  const v1::SharedRegion region = RegionOf(*block);
  std::lock_guard lock(mutex_);
  results_.emplace(set, *std::move(block));
  return region;
}

std::shared_ptr<const SharedBlock> SharedPlacement::TakeResult(int64_t set,
                                                               const v1::SharedRegion& region) {
  std::lock_guard lock(mutex_);
  const auto found = results_.find(set);
  if (found == results_.end() || found->second.offset_bytes() != region.offset_bytes() ||
      result_bytes_ != region.size_bytes()) {
    return nullptr;
  }
  auto block = std::make_shared<const SharedBlock>(std::move(found->second));
  results_.erase(found);
  return block;
}

void SharedPlacement::Release(int64_t set) {
  std::lock_guard lock(mutex_);
  copies_.erase(set);
  results_.erase(set);
}

void SharedPlacement::ReleaseResults() {
  std::lock_guard lock(mutex_);
  results_.clear();
}

}  // namespace tenon::client
