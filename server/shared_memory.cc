#include "server/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <set>
#include <system_error>

#include "backends/core/error.h"
#include "backends/core/memory.h"

namespace tenon::server {
namespace {

constexpr size_t kTokenBytes = 16;

std::string ErrorText() { return std::generic_category().message(errno); }

Error BadDescriptor(const std::string& what) {
  return Error(
      Reason::kBadParameter,
      StrCat("the pool must be a memfd sealed with F_SEAL_SHRINK and F_SEAL_GROW; ", what));
}

absl::StatusOr<std::string> NewToken() {
  std::string token(kTokenBytes, '\0');
  if (getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size())) return token;
  return Error(Reason::kInternal, StrCat("the system gave no random bytes: ", ErrorText()));
}

}  // namespace

struct SharedPool::Totals {
  void Forget(const MemoryId& memory, int64_t size_bytes) {
    std::lock_guard lock(mutex);
    mapped.erase(memory);
    bytes -= size_bytes;
  }

  std::mutex mutex;
  std::set<MemoryId> mapped;
  int64_t bytes = 0;
};

SharedPool::~SharedPool() {
  munmap(data_, static_cast<size_t>(size_bytes_));
  totals_->Forget(memory_, size_bytes_);
}

absl::StatusOr<SharedSpan> SharedPool::Region(const v1::SharedRegion& region) const {
  const int64_t offset = region.offset_bytes(), size = region.size_bytes();
  if (offset < 0 || offset % kCacheLineBytes != 0) {
    return Error(Reason::kBadParameter, StrCat("the region begins at byte ", offset,
                                               "; expected a multiple of ", kCacheLineBytes))
        .Field("offset_bytes")
        .Meta("alignment_bytes", kCacheLineBytes)
        .Meta("actual_offset_bytes", offset);
  }
  // The sum of both may not fit in 63 bits.
  if (size < 0 || offset > size_bytes_ || size > size_bytes_ - offset) {
    return Error(Reason::kBadParameter,
                 StrCat("the region of ", size, " bytes at byte ", offset,
                        " does not lie inside the pool of ", size_bytes_, " bytes"))
        .Field("size_bytes")
        .Meta("pool_bytes", size_bytes_)
        .Meta("actual_offset_bytes", offset)
        .Meta("actual_bytes", size);
  }
  return SharedSpan{data_ + offset, offset, size};
}

absl::StatusOr<SharedSpan> SharedPool::TensorRegion(const v1::SharedRegion& region,
                                                    int64_t bytes) const {
  TENON_ASSIGN_OR_RETURN(SharedSpan span, Region(region));
  if (span.size_bytes == bytes) return span;
  return Error(Reason::kShapeMismatch,
               StrCat("the tensor has ", bytes, " bytes by its type and shape, but its region has ",
                      span.size_bytes))
      .Field("size_bytes")
      .Meta("expected_bytes", bytes)
      .Meta("actual_bytes", span.size_bytes);
}

absl::StatusOr<SharedSpan> SharedPool::ResultRegion(const v1::SharedRegion& region,
                                                    int64_t bytes) const {
  TENON_ASSIGN_OR_RETURN(SharedSpan span, Region(region));
  if (span.size_bytes >= bytes) {
    span.size_bytes = bytes;
    return span;
  }
  return Error(Reason::kBadParameter, StrCat("the result has ", bytes,
                                             " bytes, but the region for it has ", span.size_bytes))
      .Field("size_bytes")
      .Meta("needed_bytes", bytes)
      .Meta("actual_bytes", span.size_bytes);
}

SharedMemory::SharedMemory(MemoryBudget* budget, Options options)
    : budget_(budget),
      options_(std::move(options)),
      totals_(std::make_shared<SharedPool::Totals>()) {}

// What makes a pool harmless: its pages can't be taken away (no SIGBUS), and it is memory, no file
// that would have to be read from somewhere. Huge-page pools are not: they may run dry at a touch.
absl::Status SharedMemory::CheckDescriptor(int descriptor, MemoryId* memory,
                                           int64_t* size_bytes) const {
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0) return BadDescriptor("the descriptor can't be sealed");
  if ((seals & F_SEAL_SHRINK) == 0) return BadDescriptor("F_SEAL_SHRINK is missing");
  if ((seals & F_SEAL_GROW) == 0) return BadDescriptor("F_SEAL_GROW is missing");
  struct stat file {};
  struct statfs system {};
  if (fstat(descriptor, &file) != 0 || fstatfs(descriptor, &system) != 0) {
    return BadDescriptor(ErrorText());
  }
  if (system.f_type != TMPFS_MAGIC) return BadDescriptor("it has pages of another kind");
  if (file.st_size <= 0) return BadDescriptor("it is empty");
  *memory = {file.st_dev, file.st_ino};
  *size_bytes = file.st_size;
  if (*size_bytes <= options_.pool_bytes) return absl::OkStatus();
  return Error(Reason::kExceedsServerLimit,
               StrCat("the pool has ", *size_bytes, " bytes; this server takes pools of at most ",
                      options_.pool_bytes))
      .Meta("limit_bytes", options_.pool_bytes)
      .Meta("actual_bytes", *size_bytes);
}

// Pools that are void but still in use count too. The same memory again waits until nothing uses it
// under its old name: so a client learns that calls that it gave up do not write there any more.
absl::Status SharedMemory::Count(const MemoryId& memory, int64_t size_bytes) {
  std::lock_guard lock(totals_->mutex);
  if (totals_->mapped.count(memory) > 0) {
    return Error(Reason::kInUse, "this memory is a pool already, or still in use by calls as one");
  }
  const auto pools = static_cast<int64_t>(totals_->mapped.size());
  if (pools >= options_.pools) {
    return Error(Reason::kOverloaded, StrCat("there are ", pools,
                                             " shared-memory pools, the most that this server "
                                             "keeps"))
        .Meta("limit", options_.pools)
        .Meta("retry_delay_seconds", 1);
  }
  const int64_t left = options_.total_bytes - totals_->bytes;
  if (size_bytes > left) {
    return Error(Reason::kOverloaded, StrCat("the pool has ", size_bytes, " bytes; ", left, " of ",
                                             options_.total_bytes, " are free for pools now"))
        .Meta("free_bytes", left)
        .Meta("limit_bytes", options_.total_bytes)
        .Meta("actual_bytes", size_bytes)
        .Meta("retry_delay_seconds", 1);
  }
  totals_->mapped.insert(memory);
  totals_->bytes += size_bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::string> SharedMemory::Add(int descriptor) {
  MemoryId memory;
  int64_t size_bytes = 0;
  TENON_RETURN_IF_ERROR(CheckDescriptor(descriptor, &memory, &size_bytes));
  TENON_ASSIGN_OR_RETURN(std::string token, NewToken());
  // Before anything is evicted for it.
  TENON_RETURN_IF_ERROR(Count(memory, size_bytes));
  absl::StatusOr<Reservation> reservation = budget_->Reserve(size_bytes);
  if (!reservation.ok()) {
    totals_->Forget(memory, size_bytes);
    return reservation.status();
  }
  void* data = mmap(nullptr, static_cast<size_t>(size_bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                    descriptor, 0);
  if (data == MAP_FAILED) {
    const std::string why = ErrorText();
    totals_->Forget(memory, size_bytes);
    return BadDescriptor(StrCat("it can't be mapped: ", why));
  }
  std::shared_ptr<const SharedPool> pool(new SharedPool(static_cast<std::byte*>(data), size_bytes,
                                                        memory, *std::move(reservation), totals_));
  std::lock_guard lock(mutex_);
  pools_[token] = {std::move(pool), std::nullopt};
  return token;
}

void SharedMemory::Remove(const std::string& token) {
  std::shared_ptr<const SharedPool> last;  // unmaps without the lock
  std::lock_guard lock(mutex_);
  const auto found = pools_.find(token);
  if (found == pools_.end()) return;
  last = std::move(found->second.pool);
  pools_.erase(found);
}

absl::StatusOr<std::shared_ptr<const SharedPool>> SharedMemory::Find(const std::string& token,
                                                                     std::string_view principal) {
  std::lock_guard lock(mutex_);
  const auto found = pools_.find(token);
  if (found != pools_.end()) {
    std::optional<std::string>& owner = found->second.owner;
    if (!owner.has_value()) owner = std::string(principal);
    if (*owner == principal) {
      ++found_;
      return found->second.pool;
    }
  }
  ++not_found_;
  return Error(Reason::kNotFound,
               "there is no such shared-memory pool; its connection has ended, or it is of another "
               "server or caller");
}

SharedMemory::Figures SharedMemory::figures() const {
  std::scoped_lock lock(mutex_, totals_->mutex);
  return {static_cast<int64_t>(totals_->mapped.size()), totals_->bytes, found_, not_found_};
}

absl::StatusOr<std::shared_ptr<const SharedPool>> FindPool(SharedMemory* shared_memory,
                                                           const std::string& token,
                                                           std::string_view principal) {
  if (token.empty()) return std::shared_ptr<const SharedPool>();
  if (shared_memory == nullptr) {
    return Error(Reason::kNotImplemented,
                 "this server shares no memory; it was started without --shared_memory_socket")
        .Field("header.shared_pool");
  }
  auto pool = shared_memory->Find(token, principal);
  if (pool.ok()) return pool;
  return Error(Reason::kNotFound, std::string(pool.status().message())).Field("header.shared_pool");
}

absl::Status CheckHasPool(const SharedPool* pool) {
  if (pool != nullptr) return absl::OkStatus();
  return Error(Reason::kMissingField, "a region of shared memory needs the pool that it lies in")
      .Field("header.shared_pool");
}

}  // namespace tenon::server
