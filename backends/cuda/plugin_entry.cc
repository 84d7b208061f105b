// The symbol by which a host finds the plug-in.

#include "backends/cuda/cuda_provider.h"

extern "C" __attribute__((visibility("default"))) const tenon_provider_api* tenon_provider_entry() {
  return tenon::cuda::CudaProviderApi();
}
