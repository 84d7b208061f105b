// The reference provider as a plug-in, to run the suite through a loaded one.

#include "backends/cpu/provider.h"

extern "C" __attribute__((visibility("default"))) const tenon_provider_api* tenon_provider_entry() {
  return tenon::cpu::ReferenceProviderApi();
}
