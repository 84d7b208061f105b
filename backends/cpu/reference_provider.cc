#include "backends/cpu/host_provider.h"
#include "backends/cpu/interpreter.h"
#include "backends/cpu/provider.h"
#include "backends/cpu/resources.h"

namespace tenon::cpu {
namespace {

HostProviderTraits ReferenceTraits() {
  HostProviderTraits traits;
  traits.name = "reference";
  traits.description = "nested loops and definitions, one thread";
  traits.environment = "reference 1";
  traits.lists = ReferenceImplementations();
  traits.build_resources = BuildResourcesReference;
  return traits;
}

int32_t Create(const tenon_host*, const char* options, tenon_provider** provider,
               tenon_status* status) {
  return CreateHostProvider(ReferenceTraits, options, provider, status);
}

}  // namespace

ImplementationLists ReferenceImplementations() {
  const Implementation reference = {"reference", PrepareInterpreter};
  return {{reference}, {reference}};
}

const tenon_provider_api* ReferenceProviderApi() {
  static const tenon_provider_api api = [] {
    tenon_provider_api table = HostProviderApi(/*has_times=*/false);
    table.create = Create;
    return table;
  }();
  return &api;
}

}  // namespace tenon::cpu
