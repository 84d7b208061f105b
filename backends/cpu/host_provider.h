// What the in-tree providers share: everything behind the plug-in interface but their names, their
// lists of implementations and their way of building resources.

#ifndef TENON_BACKENDS_CPU_HOST_PROVIDER_H_
#define TENON_BACKENDS_CPU_HOST_PROVIDER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "backends/cpu/compiled_program.h"
#include "backends/cpu/machine_times.h"
#include "backends/plugin/abi.h"

namespace tenon::cpu {

// How one in-tree provider differs from another.
struct HostProviderTraits {
  std::string name;  // also its kind
  std::string description;
  std::string isa;
  std::string environment;  // what decides bits beside the program and its kernels
  int max_workers = 1;
  ImplementationLists lists;
  absl::Status (*warm_up)() = nullptr;  // null: nothing to warm
  MachineTimes (*measure)() = nullptr;  // null: no time model
  absl::Status (*build_resources)(const tenon_resource_request& request,
                                  tenon_resource_statistics* statistics) = nullptr;
};

// The model name of this machine's processor.
std::string ProcessorModel();

// The `create` of a provider: `make` gives its traits, `options` is "" or "kernels=NAME,NAME",
// which keeps only these implementations and the reference. A call that throws fails with a status.
int32_t CreateHostProvider(HostProviderTraits (*make)(), const char* options,
                           tenon_provider** provider, tenon_status* status);

// The table with all entries but `create`, for traits with or without a time model.
tenon_provider_api HostProviderApi(bool has_times);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_HOST_PROVIDER_H_
