// Memory that clients on the same host share with the server, instead of sending tensors in chunks.
// proto/tenon/v1/shared_memory.proto tells how a pool gets here and what is promised about it.

#ifndef TENON_SERVER_SHARED_MEMORY_H_
#define TENON_SERVER_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/admission.h"
#include "tenon/v1/tensor.pb.h"

namespace tenon::server {

// Bytes of a pool, aligned to 64; there for as long as the pool is. The client may change them at
// any time.
struct SharedSpan {
  std::byte* data = nullptr;
  int64_t offset_bytes = 0;  // in the pool
  int64_t size_bytes = 0;

  bool Overlaps(const SharedSpan& other) const {
    return size_bytes > 0 && other.size_bytes > 0 &&
           offset_bytes < other.offset_bytes + other.size_bytes &&
           other.offset_bytes < offset_bytes + size_bytes;
  }
};

// Which memory is behind a descriptor: device and inode.
using MemoryId = std::pair<uint64_t, uint64_t>;

// One mapped pool. Whoever uses it holds a share; the last one unmaps it. Thread-safe.
class SharedPool {
 public:
  ~SharedPool();
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;

  int64_t size_bytes() const { return size_bytes_; }
  // BAD_PARAMETER with the fields "offset_bytes" and "size_bytes" unless all of the region lies
  // inside the pool.
  absl::StatusOr<SharedSpan> Region(const v1::SharedRegion& region) const;
  // The same for a tensor of so many bytes; SHAPE_MISMATCH when the region has not as many.
  absl::StatusOr<SharedSpan> TensorRegion(const v1::SharedRegion& region, int64_t bytes) const;
  // The same for a result that is written there: BAD_PARAMETER when the region has fewer.
  absl::StatusOr<SharedSpan> ResultRegion(const v1::SharedRegion& region, int64_t bytes) const;

 private:
  friend class SharedMemory;
  struct Totals;  // of all pools that are mapped
  SharedPool(std::byte* data, int64_t size_bytes, const MemoryId& memory, Reservation reservation,
             std::shared_ptr<Totals> totals)
      : data_(data),
        size_bytes_(size_bytes),
        memory_(memory),
        reservation_(std::move(reservation)),
        totals_(std::move(totals)) {}

  std::byte* const data_;
  const int64_t size_bytes_;
  const MemoryId memory_;
  const Reservation reservation_;
  const std::shared_ptr<Totals> totals_;
};

// All pools of a server. Thread-safe; the budget outlives it and the pools.
class SharedMemory {
 public:
  struct Options {
    std::string socket;           // path of the socket that introduces pools
    int64_t total_bytes = 0;      // of all pools
    int64_t pool_bytes = 0;       // of one
    int64_t pools = int64_t{64};  // at the same time
  };
  SharedMemory(MemoryBudget* budget, Options options);

  const Options& options() const { return options_; }

  // Maps the memory behind a descriptor, which stays the caller's, and returns the pool's token.
  // The pool's bytes are reserved in the budget until it is unmapped. Errors as in
  // SharedMemoryWelcome.
  absl::StatusOr<std::string> Add(int descriptor);
  // The token is void; the memory goes when nobody uses it any more.
  void Remove(const std::string& token);

  // The pool of a request by `principal`, who owns it from its first request on. NOT_FOUND without
  // field.
  absl::StatusOr<std::shared_ptr<const SharedPool>> Find(const std::string& token,
                                                         std::string_view principal);

  struct Figures {
    int64_t pools = 0, bytes = 0;      // mapped now
    int64_t found = 0, not_found = 0;  // requests that named a pool
  };
  Figures figures() const;

 private:
  struct Entry {
    std::shared_ptr<const SharedPool> pool;
    std::optional<std::string> owner;
  };
  absl::Status CheckDescriptor(int descriptor, MemoryId* memory, int64_t* size_bytes) const;
  absl::Status Count(const MemoryId& memory, int64_t size_bytes);

  MemoryBudget* const budget_;
  const Options options_;
  const std::shared_ptr<SharedPool::Totals> totals_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> pools_;  // by token
  int64_t found_ = 0, not_found_ = 0;
};

// The pool that a header names, for `principal`; null for an empty name. `shared_memory` null: the
// server offers none. NOT_FOUND or NOT_IMPLEMENTED at "header.shared_pool".
absl::StatusOr<std::shared_ptr<const SharedPool>> FindPool(SharedMemory* shared_memory,
                                                           const std::string& token,
                                                           std::string_view principal);
// MISSING_FIELD at "header.shared_pool" unless the call names a pool: some region needs it.
absl::Status CheckHasPool(const SharedPool* pool);

}  // namespace tenon::server

#endif  // TENON_SERVER_SHARED_MEMORY_H_
