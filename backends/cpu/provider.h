// The in-tree providers, behind the plug-in interface.

#ifndef TENON_BACKENDS_CPU_PROVIDER_H_
#define TENON_BACKENDS_CPU_PROVIDER_H_

#include "backends/plugin/abi.h"

namespace tenon::cpu {

// "cpu": all cores of the process, warm kernels. The table is static.
const tenon_provider_api* CpuProviderApi();

// "reference": nested loops over the same programs and the definitions of the same resources,
// single-threaded, deliberately simple: the oracle for every other provider.
const tenon_provider_api* ReferenceProviderApi();

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_PROVIDER_H_
