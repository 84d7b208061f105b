#include "server/content_store.h"

#include <algorithm>
#include <iterator>
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

absl::StatusOr<std::string> HashContent(const Tensor& tensor, const CancelToken* cancel) {
  constexpr size_t kPieceBytes = size_t{4} << 20;
  Sha256Hasher hasher;
  hasher.Update(StrCat(kHashFormat, "\n", DTypeName(tensor.spec.dtype), "\n",
                       absl::StrJoin(tensor.spec.shape, ","), "\n"));
  std::string_view left = {tensor.buffer.as<char>(),
                           static_cast<size_t>(tensor.buffer.size_bytes())};
  while (!left.empty()) {
    if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
    hasher.Update(left.substr(0, kPieceBytes));
    left.remove_prefix(std::min(left.size(), kPieceBytes));
  }
  const auto digest = hasher.Finish();
  return HexDigits(digest.data(), digest.size());
}

}  // namespace

std::string ContentSha256(const Tensor& tensor) { return *HashContent(tensor, nullptr); }

int64_t ContentStore::Entry::resource_bytes() const {
  return content->original_side == nullptr ? 0 : content->original_side->bytes();
}

absl::StatusOr<std::shared_ptr<const StoredContent>> ContentStore::Put(
    Kind kind, const std::string& owner, Tensor tensor, PutOptions options, bool* created) {
  TENON_ASSIGN_OR_RETURN(const std::string sha256, HashContent(tensor, options.cancel));
  TENON_RETURN_IF_ERROR(CheckExpected(options.expected_sha256, sha256));
  auto content = std::make_shared<StoredContent>();
  content->owner = owner;
  content->handle = StrCat(Prefix(kind), sha256);
  content->display_name = std::move(options.display_name);
  content->tensor = std::move(tensor);
  content->reservation = std::move(options.reservation);
  const int64_t bytes = EntryBytes(content->tensor.buffer.size_bytes(),
                                   static_cast<int64_t>(content->tensor.spec.shape.size()));
  if (content->reservation.bytes() < bytes) {  // before the lock: it may evict from this store
    content->reservation.Release();
    TENON_ASSIGN_OR_RETURN(content->reservation, budget_->Reserve(bytes));
  }

  std::lock_guard lock(mutex_);
  DropExpired();
  const TimePoint now = now_();
  auto entry = entries_.find({owner, content->handle});
  *created = entry == entries_.end();
  Schedule::node_type place;
  if (*created) {
    TENON_RETURN_IF_ERROR(CheckQuotaLocked(owner, bytes));
    Schedule fresh, fresh_use;  // so that nothing is half there if memory runs out
    fresh.emplace(now, entries_.end());
    fresh_use.emplace(now, entries_.end());
    content->created = now;
    if (kind == Kind::kDataset) {
      content->original_side =
          options.original_side != nullptr ? std::move(options.original_side) : MakeOriginalSide();
    }
    auto last_used = std::make_shared<std::atomic<TimePoint>>(now);
    Key key(owner, content->handle);
    int64_t& owned = owned_[owner];
    entry =
        entries_
            .emplace(std::move(key), Entry{std::move(content), std::move(last_used), {}, {}, {}})
            .first;
    bytes_ += entry->second.bytes();
    owned += bytes;
    Schedule::node_type use = fresh_use.extract(fresh_use.begin());
    use.mapped() = entry;
    entry->second.by_use = uses_.insert(std::move(use));
    place = fresh.extract(fresh.begin());
  } else {
    entry->second.last_used->store(now);
    place = schedule_.extract(entry->second.scheduled);
  }
  entry->second.ttl = TimeToLive(options.ttl, default_ttl_);
  SetPlace(std::move(place), now + entry->second.ttl, entry);
  return Share(entry->second);
}

absl::StatusOr<std::shared_ptr<const StoredContent>> ContentStore::Get(Kind kind,
                                                                       const std::string& owner,
                                                                       const std::string& handle) {
  std::lock_guard lock(mutex_);
  const auto entry = Find(kind, owner, handle);
  ++(entry.ok() ? CountersOf(kind).hits : CountersOf(kind).misses);
  TENON_RETURN_IF_ERROR(entry.status());
  (*entry)->second.last_used->store(now_());
  return Share((*entry)->second);
}

std::shared_ptr<const StoredContent> ContentStore::Share(const Entry& entry) {
  // Without the store, which it may outlive; the content counts as in use until the time is set.
  return {entry.content.get(), [content = entry.content, last_used = entry.last_used,
                                now = now_](const StoredContent*) { last_used->store(now()); }};
}

absl::StatusOr<ContentStore::Description> ContentStore::Describe(Kind kind,
                                                                 const std::string& owner,
                                                                 const std::string& handle) {
  std::lock_guard lock(mutex_);
  TENON_ASSIGN_OR_RETURN(const auto entry, Find(kind, owner, handle));
  Description description = Describe(entry->second);
  const auto& side = entry->second.content->original_side;
  if (side != nullptr) description.resources = side->List();
  return description;
}

absl::StatusOr<int64_t> ContentStore::Delete(Kind kind, const std::string& owner,
                                             const std::string& handle) {
  std::shared_ptr<const StoredContent> last;
  std::lock_guard lock(mutex_);
  TENON_ASSIGN_OR_RETURN(const auto entry, Find(kind, owner, handle));
  if (entry->second.in_use()) {
    const int64_t uses = Describe(entry->second).active_uses;
    return Error(Reason::kInUse, StrCat(handle, " is in use by ", uses, " calls"))
        .Field("handle")
        .Meta("active_calls", uses);
  }
  const int64_t freed = entry->second.bytes() + entry->second.resource_bytes();
  last = Remove(entry);
  return freed;
}

std::shared_ptr<const StoredContent> ContentStore::Remove(Entries::iterator entry) {
  const auto owned = owned_.find(entry->first.first);
  owned->second -= entry->second.entry_bytes();
  if (owned->second == 0) owned_.erase(owned);
  auto content = std::move(entry->second.content);
  bytes_ -= content->tensor.buffer.size_bytes();
  schedule_.erase(entry->second.scheduled);
  uses_.erase(entry->second.by_use);
  entries_.erase(entry);
  return content;
}

void ContentStore::SetOwnerLimit(int64_t bytes) {
  std::lock_guard lock(mutex_);
  owner_limit_ = bytes;
}

absl::Status ContentStore::CheckQuota(const std::string& owner, int64_t entry_bytes) {
  std::lock_guard lock(mutex_);
  DropExpired();
  return CheckQuotaLocked(owner, entry_bytes);
}

Quota ContentStore::QuotaOf(const std::string& owner) {
  std::lock_guard lock(mutex_);
  DropExpired();
  return {owner_limit_, OwnedBytes(owner)};
}

int64_t ContentStore::OwnedBytes(const std::string& owner) const {
  const auto owned = owned_.find(owner);
  return owned == owned_.end() ? 0 : owned->second;
}

absl::Status ContentStore::CheckQuotaLocked(const std::string& owner, int64_t entry_bytes) const {
  if (owner_limit_ == 0) return absl::OkStatus();
  const int64_t stored = OwnedBytes(owner);
  if (entry_bytes <= owner_limit_ - stored) return absl::OkStatus();
  return QuotaError(
             owner, "stored_bytes", owner_limit_,
             StrCat("the caller's data sets and tensors take ", stored, " bytes; ", entry_bytes,
                    " more exceed the limit of ", owner_limit_, " for one caller"))
      .Meta("limit_bytes", owner_limit_)
      .Meta("stored_bytes", stored)
      .Meta("requested_bytes", entry_bytes);
}

void ContentStore::SetDefaultTtl(std::chrono::seconds ttl) {
  std::lock_guard lock(mutex_);
  default_ttl_ = ttl;
}

std::vector<ContentStore::Description> ContentStore::List(Kind kind,
                                                          const std::optional<std::string>& owner) {
  std::vector<Description> list;
  {
    std::lock_guard lock(mutex_);
    DropExpired();
    for (const auto& [key, entry] : entries_) {
      if (owner.has_value() && key.first != *owner) continue;
      if (key.second.starts_with(Prefix(kind))) list.push_back(Describe(entry));
    }
  }
  std::sort(list.begin(), list.end(), [](const Description& a, const Description& b) {
    return std::tie(b.last_used, a.handle, a.owner) < std::tie(a.last_used, b.handle, b.owner);
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
  lent_->fetch_add(bytes);
  return {new Reservation(*std::move(lease)), [lent = lent_, bytes](Reservation* reservation) {
            lent->fetch_sub(bytes);
            delete reservation;
          }};
}

template <typename Visit>
void ContentStore::ForEachByUse(const Visit& visit) {
  for (auto place = uses_.begin(); place != uses_.end();) {
    const Entries::iterator entry = place->second;
    const TimePoint used = *entry->second.last_used;
    auto next = std::next(place);
    if (used > place->first) {
      Schedule::node_type node = uses_.extract(place);
      node.key() = used;
      place = entry->second.by_use = uses_.insert(std::move(node));
      // It comes later, unless nobody is between its places.
      if (next != uses_.end() && next->first <= used) {
        place = next;
        continue;
      }
      next = std::next(place);
    }
    if (!visit(entry)) return;
    place = next;
  }
}

int64_t ContentStore::EvictResources(int64_t bytes) {
  std::vector<std::shared_ptr<measurement::OriginalSide>> sides;
  if (*lent_ > 0) {
    std::lock_guard lock(mutex_);
    int64_t found = 0;
    for (const bool in_use : {false, true}) {
      ForEachByUse([&](Entries::iterator entry) {
        const int64_t built = entry->second.resource_bytes();
        if (found < bytes && built > 0 && entry->second.in_use() == in_use) {
          sides.push_back(entry->second.content->original_side);
          found += built;
        }
        return found < bytes;
      });
    }
  }
  int64_t freed = 0, dropped = 0;
  for (const auto& side : sides) {
    dropped += static_cast<int64_t>(side->List().size());
    freed += side->Drop();
  }
  std::lock_guard lock(mutex_);
  counters_.resources.evictions += dropped;
  return freed;
}

void ContentStore::Evict(int64_t bytes) {
  bytes -= EvictResources(bytes);
  if (bytes <= 0) return;
  std::vector<std::shared_ptr<const StoredContent>> evicted;  // released after the lock
  std::lock_guard lock(mutex_);
  DropExpired();
  ForEachByUse([&](Entries::iterator entry) {
    if (entry->second.in_use()) return true;
    bytes -= entry->second.content->reservation.bytes();
    const bool dataset = entry->first.second.starts_with(Prefix(Kind::kDataset));
    ++CountersOf(dataset ? Kind::kDataset : Kind::kTensor).evictions;
    evicted.push_back(Remove(entry));
    return bytes > 0;
  });
}

ContentStore::AllCounters ContentStore::counters() {
  std::lock_guard lock(mutex_);
  DropExpired();
  AllCounters counters = counters_;
  for (const auto& [key, entry] : entries_) {
    const bool dataset = key.second.starts_with(Prefix(Kind::kDataset));
    Counters& own = dataset ? counters.datasets : counters.tensors;
    ++own.entries;
    own.bytes += entry.bytes();
    const auto& side = entry.content->original_side;
    if (side == nullptr) continue;
    counters.resources.entries += static_cast<int64_t>(side->List().size());
    counters.resources.bytes += side->bytes();
  }
  return counters;
}

int64_t ContentStore::bytes() {
  std::lock_guard lock(mutex_);
  DropExpired();
  return bytes_;
}

int64_t ContentStore::reserved_bytes() {
  std::lock_guard lock(mutex_);
  DropExpired();
  int64_t bytes = 0;
  for (const auto& [owner, owned] : owned_) bytes += owned;
  return bytes;
}

int64_t ContentStore::resource_bytes() {
  std::lock_guard lock(mutex_);
  DropExpired();
  int64_t bytes = 0;
  for (const auto& [key, entry] : entries_) bytes += entry.resource_bytes();
  return bytes;
}

ContentStore::Description ContentStore::Describe(const Entry& entry) {
  const StoredContent& content = *entry.content;
  const TimePoint last_used = *entry.last_used;
  return {.owner = content.owner,
          .handle = content.handle,
          .display_name = content.display_name,
          .spec = content.tensor.spec,
          .size_bytes = entry.bytes(),
          .created = content.created,
          .last_used = last_used,
          .expires = last_used + entry.ttl,
          .active_uses = entry.content.use_count() - 1,
          .resource_bytes = entry.resource_bytes()};
}

void ContentStore::DropExpired() {
  const TimePoint now = now_();
  while (!schedule_.empty() && schedule_.begin()->first <= now) {
    const auto found = schedule_.begin()->second;
    Entry& entry = found->second;
    // In this order: a use that ends between the two has set its time.
    const bool in_use = entry.in_use();
    const TimePoint expires = (in_use ? now : entry.last_used->load()) + entry.ttl;
    if (!in_use && expires <= now) {
      Remove(found);
      continue;
    }
    SetPlace(schedule_.extract(entry.scheduled), std::max(expires, now + TimePoint::duration(1)),
             found);
  }
}

void ContentStore::SetPlace(Schedule::node_type place, TimePoint time, Entries::iterator entry) {
  place.key() = time;
  place.mapped() = entry;
  entry->second.scheduled = schedule_.insert(std::move(place));
}

absl::StatusOr<ContentStore::Entries::iterator> ContentStore::Find(Kind kind,
                                                                   const std::string& owner,
                                                                   const std::string& handle) {
  DropExpired();
  const auto entry = entries_.find({owner, handle});
  if (entry != entries_.end() && handle.starts_with(Prefix(kind))) return entry;
  return Error(Reason::kNotFound,
               StrCat("nothing is stored as '", handle, "'; expected is ", Prefix(kind),
                      " and the SHA-256 of something uploaded here"))
      .Field("handle");
}

}  // namespace tenon::server
