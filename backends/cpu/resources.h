// Measurement resources on the CPU: what `build_resources` of both in-tree providers calls.
//
// The layout of each resource's bytes is in backends/measurement/resource.h. All functions are
// thread-safe and check the request (sizes of outputs, missing matrices) before any work.

#ifndef TENON_BACKENDS_CPU_RESOURCES_H_
#define TENON_BACKENDS_CPU_RESOURCES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/plugin/abi.h"

namespace tenon::cpu {

// Bits (1 << tenon_resource_kind) of what the functions below build.
uint32_t ResourceKinds();

// Scratch bytes BuildResources wants for `request`, at most `available_bytes` where it can work in
// smaller blocks; EXCEEDS_MEMORY_BUDGET when not even the smallest fits.
absl::StatusOr<int64_t> ResourceWorkingMemory(const tenon_resource_request& request,
                                              int64_t available_bytes);

// Fills all outputs, in one pass over row blocks where possible.
absl::Status BuildResources(const tenon_resource_request& request,
                            tenon_resource_statistics* statistics);

// The same by definition: sorts and plain loops, one thread, no blocking.
absl::Status BuildResourcesReference(const tenon_resource_request& request,
                                     tenon_resource_statistics* statistics);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_RESOURCES_H_
