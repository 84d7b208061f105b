// Data sets and tensors kept by content, so that a repeated request sends nothing.

#ifndef TENON_SERVER_CONTENT_STORE_H_
#define TENON_SERVER_CONTENT_STORE_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "backends/core/tensor.h"
#include "backends/measurement/original_side.h"
#include "server/admission.h"
#include "server/quota.h"

namespace tenon::server {

// Immutable once stored; shared with the requests that use it.
struct StoredContent {
  std::string owner;   // the principal that uploaded it
  std::string handle;  // "datasets/<sha256>" or "tensors/<sha256>"
  std::string display_name;
  Tensor tensor;
  std::chrono::system_clock::time_point created;
  Reservation reservation;  // its bytes and those of its place, out of the server's budget
  // What measurements built from a data set, for further ones; accounts for its own bytes. Null
  // for tensors.
  std::shared_ptr<measurement::OriginalSide> original_side;
};

// The content hash of dataset.proto, 64 hexadecimal digits in lower case.
std::string ContentSha256(const Tensor& tensor);

// Each owner has a store of its own, as far as anybody can tell: equal content of two owners is
// kept twice, since anything that is shared (bytes, times, warm resources) would tell one of the
// other.
//
// Thread-safe. Content expires when it has not been used for its time to live; expired entries are
// dropped when the store is next used. What is in use stays: it neither expires, nor is it evicted
// or deleted.
class ContentStore {
 public:
  using TimePoint = std::chrono::system_clock::time_point;
  // What an entry takes beside its content: names, places in indices, a shape of kEntryRank axes.
  // Reserved for each, so that the budget bounds the number of tiny ones too.
  static constexpr int64_t kEntryBytes = 2048;
  static constexpr int64_t kEntryRank = 64;
  // What content of so many bytes and axes takes in all.
  static constexpr int64_t EntryBytes(int64_t content_bytes, int64_t rank = 2) {
    const int64_t beside =
        kEntryBytes + std::max<int64_t>(rank - kEntryRank, 0) * int64_t{sizeof(int64_t)};
    return std::min(content_bytes, std::numeric_limits<int64_t>::max() - beside) + beside;
  }
  // A longer time to live is cut to this one.
  static constexpr std::chrono::seconds kMaxTtl = std::chrono::hours(24 * 30);

  // `budget` outlives the store and what it gave out; `now` is the clock.
  ContentStore(MemoryBudget* budget, std::chrono::seconds default_ttl,
               std::function<TimePoint()> now = std::chrono::system_clock::now)
      : budget_(budget), now_(std::move(now)), default_ttl_(default_ttl) {}

  enum class Kind { kDataset, kTensor };

  struct PutOptions {
    std::string display_name{};
    std::optional<std::chrono::duration<double>> ttl{};  // the store's default when absent
    std::string expected_sha256{};                       // checked unless empty
    // Of EntryBytes of the tensor's, if there is one already.
    Reservation reservation{};
    const CancelToken* cancel = nullptr;  // ends the hashing
    // Built from this data set already, by MakeOriginalSide. New content keeps it.
    std::shared_ptr<measurement::OriginalSide> original_side{};
  };
  // A stored thing as it is now; holds no share of it.
  struct Description {
    std::string owner, handle, display_name;
    TensorSpec spec;
    int64_t size_bytes = 0;
    TimePoint created, last_used, expires;
    int64_t active_uses = 0;     // calls of Put and Get whose shares still live
    int64_t resource_bytes = 0;  // of what was built from it
    // The same one by one; holds a share of it. Only from Describe.
    std::vector<std::shared_ptr<const measurement::OriginalSide::Kept>> resources{};
  };

  // Stores the tensor without a copy. The same content again returns the entry there is, with its
  // time to live started anew; `*created` tells which. Hashes all bytes: not for gRPC's threads.
  // CHECKSUM_MISMATCH with field "expected_sha256"; the token's; those of CheckQuota; without a
  // reservation also the errors of MemoryBudget::Reserve.
  absl::StatusOr<std::shared_ptr<const StoredContent>> Put(Kind kind, const std::string& owner,
                                                           Tensor tensor, PutOptions options,
                                                           bool* created);
  // The time to live starts anew now, and again when the last copy of the share goes. NOT_FOUND
  // with field "handle" when it is unknown, expired, of another kind, or another's.
  absl::StatusOr<std::shared_ptr<const StoredContent>> Get(Kind kind, const std::string& owner,
                                                           const std::string& handle);
  // Without using it; errors as Get.
  absl::StatusOr<Description> Describe(Kind kind, const std::string& owner,
                                       const std::string& handle);
  // The bytes of the content and of what was built from it. Errors as Get; IN_USE with field
  // "handle" and metadata active_calls.
  absl::StatusOr<int64_t> Delete(Kind kind, const std::string& owner, const std::string& handle);
  // All of a kind, of one owner or (absent) of all: the most recently used first, equally recent
  // ones by handle, then by owner.
  std::vector<Description> List(Kind kind, const std::optional<std::string>& owner);
  // Contents that one owner may have, each counted as EntryBytes. 0: no limit, as at first. What is
  // beyond a lower one stays.
  void SetOwnerLimit(int64_t bytes);
  // QUOTA (limit_bytes, stored_bytes, requested_bytes) when content of so many EntryBytes would
  // exceed the owner's limit.
  absl::Status CheckQuota(const std::string& owner, int64_t entry_bytes);
  // Bytes, counted like that.
  Quota QuotaOf(const std::string& owner);
  // For uploads that name no time to live.
  void SetDefaultTtl(std::chrono::seconds ttl);
  // Drops what was built from data sets (those that no call works on first), then content that
  // nobody uses, each the least recently used first, until `bytes` are free or none is left.
  void Evict(int64_t bytes);
  // Drops all that was built from data sets and is not in use; the bytes that became free.
  int64_t DropResources() { return EvictResources(std::numeric_limits<int64_t>::max()); }
  struct Counters {
    int64_t hits = 0, misses = 0;    // of Get
    int64_t evictions = 0;           // for room; expired and deleted ones are not counted
    int64_t entries = 0, bytes = 0;  // now
  };
  struct AllCounters {
    Counters datasets, tensors;
    Counters resources;  // what was built from data sets; hits and misses are not known here
  };
  AllCounters counters();
  // Of all contents.
  int64_t bytes();
  // The same as EntryBytes.
  int64_t reserved_bytes();
  // Of what was built from data sets.
  int64_t resource_bytes();
  // For a data set that is not stored yet. What is kept there is reserved from the server's budget;
  // older resources of other data sets make room for it, contents don't.
  std::shared_ptr<measurement::OriginalSide> MakeOriginalSide();

 private:
  struct Entry;
  using Key = std::pair<std::string, std::string>;  // owner, handle
  using Entries = std::map<Key, Entry>;
  // By a time at which the entry can't have expired yet: it may have been used since.
  using Schedule = std::multimap<TimePoint, Entries::iterator>;
  struct Entry {
    std::shared_ptr<const StoredContent> content;
    std::shared_ptr<std::atomic<TimePoint>> last_used;  // shares outlive the entry
    std::chrono::system_clock::duration ttl;
    Schedule::iterator scheduled;
    Schedule::iterator by_use;

    bool in_use() const { return content.use_count() > 1; }
    int64_t bytes() const { return content->tensor.buffer.size_bytes(); }
    int64_t entry_bytes() const {
      return EntryBytes(bytes(), static_cast<int64_t>(content->tensor.spec.shape.size()));
    }
    int64_t resource_bytes() const;
  };

  static Description Describe(const Entry& entry);
  // Drops what was built from data sets; the bytes that became free, `bytes` or fewer.
  int64_t EvictResources(int64_t bytes);
  std::shared_ptr<void> Lend(int64_t bytes);
  // The rest with mutex_ held.
  std::shared_ptr<const StoredContent> Share(const Entry& entry);
  // To be released without the lock: freeing a large tensor takes its time.
  std::shared_ptr<const StoredContent> Remove(Entries::iterator entry);
  void DropExpired();
  void SetPlace(Schedule::node_type place, TimePoint time, Entries::iterator entry);
  // Calls `visit` with every entry, the least recently used first, until it returns false; it may
  // remove the entry.
  template <typename Visit>
  void ForEachByUse(const Visit& visit);
  absl::StatusOr<Entries::iterator> Find(Kind kind, const std::string& owner,
                                         const std::string& handle);
  absl::Status CheckQuotaLocked(const std::string& owner, int64_t entry_bytes) const;
  int64_t OwnedBytes(const std::string& owner) const;  // with mutex_ held
  Counters& CountersOf(Kind kind) {
    return kind == Kind::kDataset ? counters_.datasets : counters_.tensors;
  }

  MemoryBudget* const budget_;
  const std::function<TimePoint()> now_;
  std::mutex mutex_;
  std::chrono::seconds default_ttl_;
  int64_t owner_limit_ = 0;
  std::map<std::string, int64_t> owned_;  // EntryBytes by owner, those above 0
  Entries entries_;
  Schedule schedule_;  // one for each entry
  // One for each entry, by a time at which it was last used, or before: uses are noted here when
  // the order is next asked for, which costs no more than once for each use.
  Schedule uses_;
  // Of all resources that were built from data sets, stored or not.
  std::shared_ptr<std::atomic<int64_t>> lent_ = std::make_shared<std::atomic<int64_t>>(0);
  int64_t bytes_ = 0;     // of all contents
  AllCounters counters_;  // without entries and bytes
};

}  // namespace tenon::server

#endif  // TENON_SERVER_CONTENT_STORE_H_
