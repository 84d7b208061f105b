// What a session builds, who builds it, and the memory it needs, known before anything is
// allocated.

#ifndef TENON_BACKENDS_MEASUREMENT_SESSION_PLAN_H_
#define TENON_BACKENDS_MEASUREMENT_SESSION_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/measurement/original_side.h"
#include "backends/measurement/registry.h"
#include "backends/measurement/resource.h"
#include "backends/measurement/session.h"
#include "backends/plugin/provider.h"

namespace tenon::measurement {

// The provider that was asked for, and what builds the kinds that it does not build (may be null).
struct SessionProviders {
  std::shared_ptr<plugin::Provider> asked, fallback;

  // Who builds a kind; null: nobody.
  plugin::Provider* For(int32_t kind) const;
  // Why it is not the one that was asked for; empty if it is.
  std::string FallbackReason(int32_t kind) const;
};

// All sizes in bytes.
struct SessionPlan {
  // Of the original space: built once from the data set alone; with the first projection; and those
  // that an earlier session left.
  std::vector<ResourceKey> original_keys, late_keys;
  std::vector<std::shared_ptr<const OriginalSide::Kept>> warm;
  std::vector<ResourceKey> projection_keys;  // built per projection
  bool is_external = false;                  // orders of pairs are made in files
  bool needs_points = false;                 // whether projections need the original points
  int64_t points = 0;                        // the widened copy of the data set, if it is needed
  int64_t precomputed = 0;                   // widened copies of given distances
  int64_t original_resources = 0;
  int64_t original_working = 0;      // scratch while the original side is built
  int64_t projection_fixed = 0;      // one projection: its copy, its resources, its local scores
  int64_t projection_working = 0;    // scratch while its resources are built
  int64_t metric_working = 0;        // scratch of the measures' last steps, after that
  int64_t projection_temporary = 0;  // files of one projection
  int64_t labels = 0;
  int threads = 1;
  int in_flight = 1;
  std::string in_flight_limit;
  int batch = 1;  // projections built together
  std::string batch_limit;

  int64_t Original() const { return points + precomputed + original_resources + labels; }
  int64_t Projection() const {
    return projection_fixed + std::max(projection_working, metric_working);
  }
  int64_t Peak() const { return Original() + std::max(original_working, in_flight * Projection()); }
};

// Errors: UNSUPPORTED_BY_PROVIDER, EXCEEDS_MEMORY_BUDGET and EXCEEDS_TEMPORARY_BUDGET (metadata
// budget_bytes and smallest_budget_bytes), those of ResourceBytes and of the providers' planning.
absl::StatusOr<SessionPlan> PlanSession(const std::vector<MeasureSpec>& specs,
                                        const SessionOptions& options,
                                        const SessionProviders& providers);

// How the resources of an original space that these options ask for were computed.
OriginalSide::Variant VariantOf(const SessionOptions& options, const SessionProviders& providers,
                                int32_t kind);

// Which specifications are scored from which resources. Immutable.
class Consumers {
 public:
  Consumers() = default;
  explicit Consumers(const std::vector<MeasureSpec>& specs);
  // Positions of those that are scored from a resource, or from what is built with it; ascending.
  std::vector<int> Of(const ResourceKey& key) const;

 private:
  // Kind, space and parameter; resources with a k serve all that want at most as many.
  using Key = std::tuple<int32_t, int32_t, double>;
  std::map<Key, std::set<int>> by_key_;
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_SESSION_PLAN_H_
