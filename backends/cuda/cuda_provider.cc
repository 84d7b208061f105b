#include "backends/cuda/cuda_provider.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

// What the host calls a provider: the descriptor's strings live in it.
struct tenon_provider {
  int device = 0;
  std::string name, description, isa;
  int64_t memory_bytes = 0;
  double cold_seconds = 0;
};

namespace tenon::cuda {
namespace {

// Canonical codes, as the interface carries them.
constexpr int32_t kInvalidArgument = 3, kResourceExhausted = 8, kUnimplemented = 12,
                  kUnavailable = 14;

int32_t Fail(int32_t code, const char* reason, const std::string& message, tenon_status* status) {
  if (status != nullptr) {
    status->code = code;
    std::snprintf(status->reason, sizeof(status->reason), "%s", reason);
    std::snprintf(status->message, sizeof(status->message), "%s", message.c_str());
  }
  return code;
}

int32_t NotImplemented(tenon_status* status) {
  return Fail(kUnimplemented, "NOT_IMPLEMENTED", "the CUDA provider does not compute yet", status);
}

int32_t NoDevice(const std::string& why, tenon_status* status) {
  return Fail(kUnavailable, "NO_DEVICE", why, status);
}

// `count` stays untouched when there is no driver, hence the initial value.
int32_t FindDevice(int device, tenon_status* status) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return NoDevice(std::string("no CUDA device can be used: ") + cudaGetErrorString(error),
                    status);
  }
  if (device < count) return 0;
  return NoDevice("device " + std::to_string(device) + " was asked for; the machine has " +
                      std::to_string(count),
                  status);
}

int32_t DescribeDevice(tenon_provider* provider, tenon_status* status) {
  cudaDeviceProp properties{};
  const cudaError_t error = cudaGetDeviceProperties(&properties, provider->device);
  if (error != cudaSuccess) return NoDevice(cudaGetErrorString(error), status);
  provider->name = "cuda:" + std::to_string(provider->device);
  provider->description = properties.name;
  provider->isa = "sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
  provider->memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  return 0;
}

int32_t Create(const tenon_host*, const char* options, tenon_provider** provider,
               tenon_status* status) {
  char* end = nullptr;
  const long device = options == nullptr ? 0 : std::strtol(options, &end, 10);
  if (device < 0 || device > 1023 || (end != nullptr && *end != '\0')) {
    return Fail(kInvalidArgument, "BAD_PARAMETER",
                "the options of the CUDA provider are the number of a device", status);
  }
  if (const int32_t code = FindDevice(static_cast<int>(device), status)) return code;
  auto* made = new (std::nothrow) tenon_provider;
  if (made == nullptr) {
    return Fail(kResourceExhausted, "EXCEEDS_MEMORY_BUDGET", "out of host memory", status);
  }
  made->device = static_cast<int>(device);
  if (const int32_t code = DescribeDevice(made, status)) {
    delete made;
    return code;
  }
  *provider = made;
  return 0;
}

void Destroy(tenon_provider* provider) { delete provider; }

int32_t Describe(tenon_provider* provider, tenon_provider_info* info, tenon_status*) {
  info->exact = 1;
  info->name = provider->name.c_str();
  info->kind = "cuda";
  info->description = provider->description.c_str();
  info->isa = provider->isa.c_str();
  info->memory_bytes = provider->memory_bytes;
  info->max_workers = 1;
  info->contraction_dtypes = info->step_kinds = info->resource_kinds = info->resource_dtypes = 0;
  info->cold_seconds = provider->cold_seconds;
  return 0;
}

// Makes the context: most of what a first use of the device costs.
int32_t WarmUp(tenon_provider* provider, tenon_status* status) {
  const auto start = std::chrono::steady_clock::now();
  cudaError_t error = cudaSetDevice(provider->device);
  if (error == cudaSuccess) error = cudaFree(nullptr);
  if (error != cudaSuccess) return NoDevice(cudaGetErrorString(error), status);
  provider->cold_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return 0;
}

// The computing entries, all of one kind until they compute.
int32_t Compile(tenon_provider*, const tenon_program*, const tenon_compile_options*,
                tenon_compiled**, tenon_status* status) {
  return NotImplemented(status);
}
int32_t CompiledInfo(const tenon_compiled*, tenon_compiled_info*, tenon_status* status) {
  return NotImplemented(status);
}
void ReleaseCompiled(tenon_compiled*) {}
int32_t Begin(tenon_compiled*, const tenon_host*, const void* const*,
              const tenon_execution_options*, tenon_execution**, tenon_status* status) {
  return NotImplemented(status);
}
int32_t BindSet(tenon_execution*, const void* const*, tenon_status* status) {
  return NotImplemented(status);
}
int32_t RunGroup(tenon_execution*, int32_t, int64_t, int64_t, int64_t, void*,
                 tenon_status* status) {
  return NotImplemented(status);
}
int32_t Statistics(const tenon_execution*, tenon_run_statistics*, tenon_status* status) {
  return NotImplemented(status);
}
void End(tenon_execution*) {}
int32_t WorkingMemory(tenon_provider*, const tenon_resource_request*, int64_t, int64_t*,
                      tenon_status* status) {
  return NotImplemented(status);
}
int32_t BuildResources(tenon_provider*, const tenon_resource_request*, tenon_resource_statistics*,
                       tenon_status* status) {
  return NotImplemented(status);
}

}  // namespace

const tenon_provider_api* CudaProviderApi() {
  static const tenon_provider_api api = [] {
    tenon_provider_api table{};
    table.struct_size = sizeof(table);
    table.abi_version = TENON_ABI_VERSION;
    table.create = Create;
    table.destroy = Destroy;
    table.describe = Describe;
    table.warm_up = WarmUp;
    table.compile = Compile;
    table.compiled_info = CompiledInfo;
    table.release_compiled = ReleaseCompiled;
    table.begin = Begin;
    table.bind_set = BindSet;
    table.run_group = RunGroup;
    table.execution_statistics = Statistics;
    table.end = End;
    table.working_memory = WorkingMemory;
    table.build_resources = BuildResources;
    return table;
  }();
  return &api;
}

}  // namespace tenon::cuda
