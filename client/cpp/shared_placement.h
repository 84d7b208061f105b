// Where the tensors of one call lie in a pool of shared memory.

#ifndef TENON_CLIENT_CPP_SHARED_PLACEMENT_H_
#define TENON_CLIENT_CPP_SHARED_PLACEMENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tenon/shared_memory.h"
#include "tenon/v1/tensor.pb.h"

namespace tenon::client {

// Whether the status says that the server does not (or no longer) share this pool, so that the same
// call without it will do.
bool IsPoolRefused(const absl::Status& status);

// Finds regions for tensors and keeps them until they are not used any more. Used by the thread
// that writes and the one that reads. Nothing here is an error: what has no region is sent.
class SharedPlacement {
 public:
  // Set of tensors that stay for the whole call.
  static constexpr int64_t kWholeCall = -1;

  // `token` is the pool's; `result_bytes` those of one result, 0: results are sent.
  SharedPlacement(std::shared_ptr<SharedPool> pool, std::string token, int64_t result_bytes)
      : pool_(std::move(pool)), token_(std::move(token)), result_bytes_(result_bytes) {}
  // Gives back the copies. Places for results that the server may still write to are retired.
  ~SharedPlacement();

  const std::string& token() const { return token_; }

  // Where the bytes lie in the pool already, or a copy of them there; nullopt when they are too
  // few to be worth it, or there is no room.
  std::optional<v1::SharedRegion> Place(int64_t set, std::span<const std::byte> bytes);
  // A place for the result of a set.
  std::optional<v1::SharedRegion> PlaceResult(int64_t set);
  // The place, once the server has written it; null when `region` is none that was asked for.
  std::shared_ptr<const SharedBlock> TakeResult(int64_t set, const v1::SharedRegion& region);
  // The copies of this set, and its place if it was not used, serve others.
  void Release(int64_t set);
  // Nothing will be written to the places for results any more.
  void ReleaseResults();

 private:
  const std::shared_ptr<SharedPool> pool_;
  const std::string token_;
  const int64_t result_bytes_;
  std::mutex mutex_;
  std::map<int64_t, std::vector<SharedBlock>> copies_;
  std::map<int64_t, SharedBlock> results_;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_SHARED_PLACEMENT_H_
