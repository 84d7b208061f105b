// What was built from a data set and is kept with it, for all sessions that measure it.

#ifndef TENON_BACKENDS_MEASUREMENT_ORIGINAL_SIDE_H_
#define TENON_BACKENDS_MEASUREMENT_ORIGINAL_SIDE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/core/dtype.h"
#include "backends/core/tensor.h"
#include "backends/measurement/resource.h"

namespace tenon::measurement {

// Thread-safe. Sessions hold what they use, so dropping it here never takes it from them.
class OriginalSide {
 public:
  // Resources of one key differ by how they were computed.
  struct Variant {
    std::string provider;
    DType dtype = DType::kFloat64;
    bool geodesic = false;
    bool operator==(const Variant&) const = default;
  };
  struct Kept {
    Variant variant;
    tenon_resource resource = {};  // its data points into `memory`
    Buffer memory;
    std::shared_ptr<void> lease;  // gives the bytes back to whoever accounts for them
    double build_seconds = 0;
  };
  // Of them all; the oldest makes room. Tiny ones have more about them than the lender knows.
  static constexpr size_t kMaxKept = 2000;
  // Asked before `bytes` bytes are kept: a lease on them, or null to refuse.
  using Lend = std::function<std::shared_ptr<void>(int64_t bytes)>;

  explicit OriginalSide(Lend lend) : lend_(std::move(lend)) {}

  // One that serves `key`: equal but for a k that is at least as large. Null: there is none.
  std::shared_ptr<const Kept> Find(const Variant& variant, const ResourceKey& key) const;

  // Keeps a resource, in the place of one that it serves as well as, if the lender agrees. The
  // caller goes on using what is returned.
  std::shared_ptr<const Kept> Keep(const Variant& variant, const ResourceKey& key, Buffer memory,
                                   double build_seconds);

  // All values of the data set were found finite by a session.
  bool is_checked() const;
  void SetChecked();

  std::vector<std::shared_ptr<const Kept>> List() const;
  int64_t bytes() const;
  // Drops everything; returns the bytes of what no session uses.
  int64_t Drop();

 private:
  const Lend lend_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const Kept>> kept_;
  bool checked_ = false;
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_ORIGINAL_SIDE_H_
