#include "server/content_store.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "backends/core/error.h"
#include "backends/core/sha256.h"

namespace tenon::server {
namespace {

constexpr char kHashFormat[] = "tenon-tensor-v1";

std::string_view Prefix(ContentStore::Kind kind) {
  return kind == ContentStore::Kind::kDataset ? "datasets/" : "tensors/";
}

std::chrono::system_clock::duration TimeToLive(std::optional<std::chrono::duration<double>> wanted,
                                               std::chrono::seconds fallback) {
  using Duration = std::chrono::system_clock::duration;
  if (!wanted.has_value()) return fallback;
  if (*wanted >= ContentStore::kMaxTtl) return ContentStore::kMaxTtl;
  return std::chrono::duration_cast<Duration>(*wanted);
}

absl::Status CheckExpected(const std::string& expected, const std::string& actual) {
  if (expected.empty() || absl::AsciiStrToLower(expected) == actual) return absl::OkStatus();
  return Error(Reason::kChecksumMismatch,
               StrCat("the content has the SHA-256 ", actual, ", but ", expected, " was expected"))
      .Field("expected_sha256")
      .Meta("expected_sha256", expected)
      .Meta("actual_sha256", actual);
}

}  // namespace

std::string ContentSha256(const Tensor& tensor) {
  Sha256Hasher hasher;
  hasher.Update(StrCat(kHashFormat, "\n", DTypeName(tensor.spec.dtype), "\n",
                       absl::StrJoin(tensor.spec.shape, ","), "\n"));
  hasher.Update({tensor.buffer.as<char>(), static_cast<size_t>(tensor.buffer.size_bytes())});
  const auto digest = hasher.Finish();
  return HexDigits(digest.data(), digest.size());
}

absl::StatusOr<std::shared_ptr<const StoredContent>> ContentStore::Put(Kind kind, Tensor tensor,
                                                                       PutOptions options,
                                                                       bool* created) {
  const std::string sha256 = ContentSha256(tensor);
  TENON_RETURN_IF_ERROR(CheckExpected(options.expected_sha256, sha256));
  auto content = std::make_shared<StoredContent>();
  content->handle = StrCat(Prefix(kind), sha256);
  content->display_name = std::move(options.display_name);
  content->tensor = std::move(tensor);
  content->reservation = std::move(options.reservation);
  if (content->reservation.bytes() == 0) {  // before the lock: it may evict from this store
    TENON_ASSIGN_OR_RETURN(content->reservation,
                           budget_->Reserve(content->tensor.buffer.size_bytes()));
  }

  std::lock_guard lock(mutex_);
  DropExpired();
  const TimePoint now = now_();
  auto entry = entries_.find(content->handle);
  *created = entry == entries_.end();
  if (*created) {
    content->created = now;
    if (kind == Kind::kDataset) {
      content->original_side =
          options.original_side != nullptr ? std::move(options.original_side) : MakeOriginalSide();
    }
    const std::string handle = content->handle;
    entry =
        entries_.emplace(handle, Entry{.content = std::move(content), .ttl = {}, .last_used = now})
            .first;
  }
  entry->second.ttl = TimeToLive(options.ttl, default_ttl_);
  entry->second.last_used = now;
  return entry->second.content;
}

absl::StatusOr<std::shared_ptr<const StoredContent>> ContentStore::Get(Kind kind,
                                                                       const std::string& handle) {
  std::lock_guard lock(mutex_);
  TENON_ASSIGN_OR_RETURN(const auto entry, Find(kind, handle));
  entry->second.last_used = now_();
  return entry->second.content;
}

absl::StatusOr<ContentStore::Description> ContentStore::Describe(Kind kind,
                                                                 const std::string& handle) {
  std::lock_guard lock(mutex_);
  TENON_ASSIGN_OR_RETURN(const auto entry, Find(kind, handle));
  Description description = Describe(entry->second);
  const auto& side = entry->second.content->original_side;
  if (side != nullptr) description.resources = side->List();
  return description;
}

absl::Status ContentStore::Delete(Kind kind, const std::string& handle) {
  Entry last;  // released after the lock: freeing a large tensor takes its time
  std::lock_guard lock(mutex_);
  TENON_ASSIGN_OR_RETURN(const auto entry, Find(kind, handle));
  last = std::move(entry->second);
  entries_.erase(entry);
  return absl::OkStatus();
}

std::vector<ContentStore::Description> ContentStore::List(Kind kind) {
  std::vector<Description> list;
  {
    std::lock_guard lock(mutex_);
    DropExpired();
    for (const auto& [handle, entry] : entries_) {
      if (handle.starts_with(Prefix(kind))) list.push_back(Describe(entry));
    }
  }
  std::sort(list.begin(), list.end(), [](const Description& a, const Description& b) {
    return std::tie(b.last_used, a.handle) < std::tie(a.last_used, b.handle);
  });
  return list;
}

std::shared_ptr<measurement::OriginalSide> ContentStore::MakeOriginalSide() {
  return std::make_shared<measurement::OriginalSide>([this](int64_t bytes) { return Lend(bytes); });
}

std::shared_ptr<void> ContentStore::Lend(int64_t bytes) {
  std::optional<Reservation> lease = budget_->ReserveFree(bytes);
  if (!lease.has_value()) {
    EvictResources(bytes - (budget_->limit_bytes() - budget_->reserved_bytes()));
    lease = budget_->ReserveFree(bytes);
  }
  if (!lease.has_value()) return nullptr;
  return std::make_shared<Reservation>(*std::move(lease));
}

int64_t ContentStore::EvictResources(int64_t bytes) {
  struct Candidate {
    bool in_use;
    TimePoint last_used;
    std::shared_ptr<measurement::OriginalSide> side;
  };
  std::vector<Candidate> candidates;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [handle, entry] : entries_) {
      const auto& side = entry.content->original_side;
      if (side == nullptr || side->bytes() == 0) continue;
      candidates.push_back({entry.content.use_count() > 1, entry.last_used, side});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.in_use, a.last_used) < std::tie(b.in_use, b.last_used);
  });
  int64_t freed = 0;
  for (const Candidate& candidate : candidates) {
    if (freed >= bytes) break;
    freed += candidate.side->Drop();
  }
  return freed;
}

void ContentStore::Evict(int64_t bytes) {
  bytes -= EvictResources(bytes);
  if (bytes <= 0) return;
  std::vector<Entry> evicted;  // released after the lock
  std::lock_guard lock(mutex_);
  DropExpired();
  std::vector<Entries::iterator> unused;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->second.content.use_count() == 1) unused.push_back(entry);
  }
  std::sort(unused.begin(), unused.end(),
            [](const auto& a, const auto& b) { return a->second.last_used < b->second.last_used; });
  for (const Entries::iterator entry : unused) {
    if (bytes <= 0) return;
    bytes -= entry->second.content->reservation.bytes();
    evicted.push_back(std::move(entry->second));
    entries_.erase(entry);
  }
}

int64_t ContentStore::bytes() {
  std::lock_guard lock(mutex_);
  DropExpired();
  int64_t bytes = 0;
  for (const auto& [handle, entry] : entries_) bytes += entry.content->tensor.buffer.size_bytes();
  return bytes;
}

int64_t ContentStore::resource_bytes() {
  std::lock_guard lock(mutex_);
  DropExpired();
  int64_t bytes = 0;
  for (const auto& [handle, entry] : entries_) {
    if (entry.content->original_side != nullptr) bytes += entry.content->original_side->bytes();
  }
  return bytes;
}

ContentStore::Description ContentStore::Describe(const Entry& entry) {
  const StoredContent& content = *entry.content;
  return {.handle = content.handle,
          .display_name = content.display_name,
          .spec = content.tensor.spec,
          .size_bytes = content.tensor.buffer.size_bytes(),
          .created = content.created,
          .last_used = entry.last_used,
          .expires = entry.last_used + entry.ttl,
          .active_uses = entry.content.use_count() - 1,
          .resource_bytes = content.original_side == nullptr ? 0 : content.original_side->bytes()};
}

void ContentStore::DropExpired() {
  const TimePoint now = now_();
  std::erase_if(entries_,
                [now](const auto& item) { return item.second.last_used + item.second.ttl <= now; });
}

absl::StatusOr<ContentStore::Entries::iterator> ContentStore::Find(Kind kind,
                                                                   const std::string& handle) {
  DropExpired();
  const auto entry = entries_.find(handle);
  if (entry != entries_.end() && handle.starts_with(Prefix(kind))) return entry;
  return Error(Reason::kNotFound,
               StrCat("nothing is stored as '", handle, "'; expected is ", Prefix(kind),
                      " and the SHA-256 of something uploaded here"))
      .Field("handle");
}

}  // namespace tenon::server
