// The same-host transport: memory that is shared with the server, instead of chunks over the wire.
//
//   auto pool = client.OpenSharedPool(int64_t{1} << 30);
//   auto block = (*pool)->Allocate(bytes);        // produce the operand right there
//   request.operands = {tenon::client::TensorView(spec, block->bytes())};
//   request.pool = *pool;
//   request.result_in_pool = true;                // outcome->results[0].view() shows it there
//
// A pool is made once and used again and again: what is given back is given out again first, since
// fresh pages cost more than the wire does. proto/tenon/v1/shared_memory.proto tells what the
// server promises. Everything falls back to chunks by itself where the server does not (or no
// longer) share the pool.

#ifndef TENON_CLIENT_CPP_INCLUDE_TENON_SHARED_MEMORY_H_
#define TENON_CLIENT_CPP_INCLUDE_TENON_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenon::client {

class SharedPool;

// Bytes of a pool, aligned to 64, that belong to whoever holds this; given back when it goes.
// Keeps the pool alive. Movable; what the bytes hold is not synchronised.
class SharedBlock {
 public:
  SharedBlock() = default;
  ~SharedBlock() { Release(); }
  SharedBlock(SharedBlock&& other) noexcept { *this = std::move(other); }
  SharedBlock& operator=(SharedBlock&& other) noexcept;

  std::span<std::byte> bytes() { return {data_, static_cast<size_t>(size_bytes_)}; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_bytes_)}; }
  // Position in the pool.
  int64_t offset_bytes() const { return offset_bytes_; }
  void Release();

 private:
  friend class SharedPool;
  std::shared_ptr<SharedPool> pool_;
  std::byte* data_ = nullptr;
  int64_t offset_bytes_ = 0, size_bytes_ = 0;
};

// Memory of this process that a server has mapped too. Thread-safe.
class SharedPool : public std::enable_shared_from_this<SharedPool> {
 public:
  // Makes the memory and introduces it to the server at `socket`, the path of its shared-memory
  // socket. `populate`: provides all pages now, so that no call pays for them. UNAVAILABLE when
  // nobody listens there; EXCEEDS_MEMORY_BUDGET when the system refuses the memory; else what the
  // server answered.
  static absl::StatusOr<std::shared_ptr<SharedPool>> Connect(const std::string& socket,
                                                             int64_t size_bytes,
                                                             bool populate = true);
  // Ends the connection; the server gives up the memory when no call uses it any more.
  ~SharedPool();
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;

  // Free bytes, which hold anything. EXCEEDS_MEMORY_BUDGET when there is no such piece now. Prefers
  // the lowest place, which has been used before.
  absl::StatusOr<SharedBlock> Allocate(int64_t bytes);

  int64_t size_bytes() const { return size_bytes_; }
  int64_t free_bytes() const;
  // Where `bytes` begin in the pool; nullopt when they do not lie in it as a whole, or not at a
  // multiple of 64.
  std::optional<int64_t> OffsetOf(std::span<const std::byte> bytes) const;

  // The token of the pool at the server. Introduces the pool anew, to whoever listens at the socket
  // now, when the connection has ended; empty when that fails.
  std::string EnsureConnected();
  bool connected() const;

  // Used by the library: blocks that the server may still write to, since their call has ended
  // without an answer. Ends the connection; the blocks are free again once the server has taken the
  // pool anew, which it does when no call uses it any more.
  void Retire(std::vector<SharedBlock> blocks);

 private:
  friend class SharedBlock;
  struct Impl;
  SharedPool(std::unique_ptr<Impl> impl, std::byte* data, int64_t size_bytes);
  void GiveBack(int64_t offset, int64_t bytes);
  void Drop();

  const std::unique_ptr<Impl> impl_;
  std::byte* const data_;
  const int64_t size_bytes_;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_INCLUDE_TENON_SHARED_MEMORY_H_
