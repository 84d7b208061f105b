#include "backends/measurement/original_side.h"

#include <algorithm>
#include <utility>

namespace tenon::measurement {
namespace {

bool Serves(const OriginalSide::Kept& kept, const OriginalSide::Variant& variant,
            const ResourceKey& key) {
  ResourceKey same = kept.resource.key;
  if (same.k < key.k) return false;
  same.k = key.k;
  return kept.variant == variant && SameKey(same, key);
}

}  // namespace

std::shared_ptr<const OriginalSide::Kept> OriginalSide::Find(const Variant& variant,
                                                             const ResourceKey& key) const {
  std::lock_guard lock(mutex_);
  for (const auto& kept : kept_) {
    if (Serves(*kept, variant, key)) return kept;
  }
  return nullptr;
}

std::shared_ptr<const OriginalSide::Kept> OriginalSide::Keep(const Variant& variant,
                                                             const ResourceKey& key, Buffer memory,
                                                             double build_seconds) {
  auto kept = std::make_shared<Kept>();
  kept->variant = variant;
  kept->memory = std::move(memory);
  kept->resource = {key, kept->memory.data(), kept->memory.size_bytes()};
  kept->build_seconds = build_seconds;
  if (lend_ == nullptr) return kept;
  // The lender may want something dropped here first, so it is asked without the lock.
  kept->lease = lend_(kept->memory.size_bytes());
  if (kept->lease == nullptr) return kept;
  std::lock_guard lock(mutex_);
  // Two sessions may have built the same.
  const bool there = std::any_of(kept_.begin(), kept_.end(),
                                 [&](const auto& other) { return Serves(*other, variant, key); });
  if (there) return kept;
  std::erase_if(
      kept_, [&](const auto& other) { return Serves(*kept, other->variant, other->resource.key); });
  if (kept_.size() >= kMaxKept) kept_.erase(kept_.begin());
  kept_.push_back(kept);
  return kept;
}

bool OriginalSide::is_checked() const {
  std::lock_guard lock(mutex_);
  return checked_;
}

void OriginalSide::SetChecked() {
  std::lock_guard lock(mutex_);
  checked_ = true;
}

std::vector<std::shared_ptr<const OriginalSide::Kept>> OriginalSide::List() const {
  std::lock_guard lock(mutex_);
  return kept_;
}

int64_t OriginalSide::bytes() const {
  int64_t bytes = 0;
  for (const auto& kept : List()) bytes += kept->resource.bytes;
  return bytes;
}

int64_t OriginalSide::Drop() {
  std::vector<std::shared_ptr<const Kept>> dropped;
  {
    std::lock_guard lock(mutex_);
    dropped.swap(kept_);
  }
  int64_t bytes = 0;
  for (const auto& kept : dropped) {
    if (kept.use_count() == 1) bytes += kept->resource.bytes;
  }
  return bytes;
}

}  // namespace tenon::measurement
