// The CUDA provider behind the plug-in interface.

#ifndef TENON_BACKENDS_CUDA_CUDA_PROVIDER_H_
#define TENON_BACKENDS_CUDA_CUDA_PROVIDER_H_

#include "backends/plugin/abi.h"

namespace tenon::cuda {

// One device; the options of `create` are its number ("" means 0). Finds and describes the device,
// or says why there is none (NO_DEVICE). It does not compute yet: it declares no step kinds and no
// resource kinds, and those calls answer NOT_IMPLEMENTED. The table is static.
const tenon_provider_api* CudaProviderApi();

}  // namespace tenon::cuda

#endif  // TENON_BACKENDS_CUDA_CUDA_PROVIDER_H_
