// Data sets and tensors kept by content, so that a repeated request sends nothing.

#ifndef TENON_SERVER_CONTENT_STORE_H_
#define TENON_SERVER_CONTENT_STORE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/tensor.h"
#include "backends/measurement/original_side.h"
#include "server/admission.h"

namespace tenon::server {

// Immutable once stored; shared with the requests that use it, which may outlive its place in the
// store.
struct StoredContent {
  std::string handle;  // "datasets/<sha256>" or "tensors/<sha256>"
  std::string display_name;
  Tensor tensor;
  std::chrono::system_clock::time_point created;
  Reservation reservation;  // its bytes, out of the server's budget
  // What measurements built from a data set, for further ones; accounts for its own bytes. Null
  // for tensors.
  std::shared_ptr<measurement::OriginalSide> original_side;
};

// The content hash of dataset.proto, 64 hexadecimal digits in lower case.
std::string ContentSha256(const Tensor& tensor);

// Thread-safe. Content expires; expired entries are dropped when the store is next used.
class ContentStore {
 public:
  using TimePoint = std::chrono::system_clock::time_point;
  // A longer time to live is cut to this one.
  static constexpr std::chrono::seconds kMaxTtl = std::chrono::hours(24 * 30);

  // `budget` outlives the store and what it gave out; `now` is the clock.
  ContentStore(MemoryBudget* budget, std::chrono::seconds default_ttl,
               std::function<TimePoint()> now = std::chrono::system_clock::now)
      : budget_(budget), default_ttl_(default_ttl), now_(std::move(now)) {}

  enum class Kind { kDataset, kTensor };

  struct PutOptions {
    std::string display_name{};
    std::optional<std::chrono::duration<double>> ttl{};  // the store's default when absent
    std::string expected_sha256{};                       // checked unless empty
    Reservation reservation{};  // of the tensor's bytes, if there is one already
    // Built from this data set already, by MakeOriginalSide. New content keeps it.
    std::shared_ptr<measurement::OriginalSide> original_side{};
  };
  // A stored thing as it is now; holds no share of it.
  struct Description {
    std::string handle, display_name;
    TensorSpec spec;
    int64_t size_bytes = 0;
    TimePoint created, last_used, expires;
    int64_t active_uses = 0;     // shares that Put and Get gave out and that still live
    int64_t resource_bytes = 0;  // of what was built from it
    // The same one by one; holds a share of it. Only from Describe.
    std::vector<std::shared_ptr<const measurement::OriginalSide::Kept>> resources{};
  };

  // Stores the tensor without a copy. The same content again returns the entry there is, with its
  // time to live started anew; `*created` tells which. Hashes all bytes: not for gRPC's threads.
  // CHECKSUM_MISMATCH with field "expected_sha256"; without a reservation also the errors of
  // MemoryBudget::Reserve.
  absl::StatusOr<std::shared_ptr<const StoredContent>> Put(Kind kind, Tensor tensor,
                                                           PutOptions options, bool* created);
  // Starts the time to live anew. NOT_FOUND with field "handle" when it is unknown, expired, or of
  // another kind.
  absl::StatusOr<std::shared_ptr<const StoredContent>> Get(Kind kind, const std::string& handle);
  // Without using it; errors as Get.
  absl::StatusOr<Description> Describe(Kind kind, const std::string& handle);
  // Errors as Get. Requests that use the content keep it, and its bytes reserved, until they end.
  absl::Status Delete(Kind kind, const std::string& handle);
  // All of a kind: the most recently used first, equally recent ones by handle.
  std::vector<Description> List(Kind kind);
  // Drops what was built from data sets (those that no call works on first), then content that
  // nobody uses, each the least recently used first, until `bytes` are free or none is left.
  void Evict(int64_t bytes);
  // Of everything stored.
  int64_t bytes();
  // Of what was built from data sets.
  int64_t resource_bytes();
  // For a data set that is not stored yet. What is kept there is reserved from the server's budget;
  // older resources of other data sets make room for it, contents don't.
  std::shared_ptr<measurement::OriginalSide> MakeOriginalSide();

 private:
  struct Entry {
    std::shared_ptr<const StoredContent> content;
    std::chrono::system_clock::duration ttl;
    TimePoint last_used;
  };
  using Entries = std::map<std::string, Entry>;

  static Description Describe(const Entry& entry);
  // Drops what was built from data sets; the bytes that became free, `bytes` or fewer.
  int64_t EvictResources(int64_t bytes);
  std::shared_ptr<void> Lend(int64_t bytes);
  // The rest with mutex_ held.
  void DropExpired();
  absl::StatusOr<Entries::iterator> Find(Kind kind, const std::string& handle);

  MemoryBudget* const budget_;
  const std::chrono::seconds default_ttl_;
  const std::function<TimePoint()> now_;
  std::mutex mutex_;
  Entries entries_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_CONTENT_STORE_H_
