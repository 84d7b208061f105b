// Resources with the memory that they lie in.

#ifndef TENON_BACKENDS_MEASUREMENT_RESOURCE_SET_H_
#define TENON_BACKENDS_MEASUREMENT_RESOURCE_SET_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/tensor.h"
#include "backends/measurement/original_side.h"
#include "backends/measurement/resource.h"

namespace tenon::measurement {

struct ResourceSet {
  std::vector<tenon_resource> resources;
  // Whose memory they are: one or the other.
  std::vector<Buffer> memory;
  std::vector<std::shared_ptr<const OriginalSide::Kept>> kept;

  static absl::StatusOr<ResourceSet> Allocate(const std::vector<ResourceKey>& keys, int64_t n) {
    ResourceSet set;
    for (const ResourceKey& key : keys) {
      TENON_ASSIGN_OR_RETURN(const int64_t bytes, ResourceBytes(key, n));
      TENON_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(bytes));
      set.resources.push_back({key, buffer.data(), bytes});
      set.memory.push_back(std::move(buffer));
    }
    return set;
  }

  void Add(const ResourceSet& other) {
    resources.insert(resources.end(), other.resources.begin(), other.resources.end());
  }
  void Add(std::shared_ptr<const OriginalSide::Kept> one) {
    resources.push_back(one->resource);
    kept.push_back(std::move(one));
  }
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_RESOURCE_SET_H_
