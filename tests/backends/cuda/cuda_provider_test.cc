#include "backends/cuda/cuda_provider.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "backends/core/error.h"
#include "backends/plugin/provider.h"

namespace tenon::cuda {
namespace {

// The same on a machine with a GPU and on one without: a device, described, or the reason.
TEST(CudaProvider, FindsTheDeviceOrSaysWhyThereIsNone) {
  const auto provider = plugin::Provider::Create(CudaProviderApi(), "");
  if (!provider.ok()) {
    EXPECT_EQ(GetErrorDetails(provider.status()).reason, Reason::kNoDevice) << provider.status();
    EXPECT_NE(provider.status().message().find("CUDA"), absl::string_view::npos);
    return;
  }
  EXPECT_EQ((*provider)->name(), "cuda:0");
  EXPECT_GT((*provider)->info().memory_bytes, 0);
  EXPECT_EQ((*provider)->info().step_kinds, 0u);
  EXPECT_TRUE((*provider)->WarmUp().ok());
}

TEST(CudaProvider, RefusesOptionsThatAreNoDeviceNumber) {
  for (const char* options : {"x", "-1", "0x", "99999"}) {
    const auto provider = plugin::Provider::Create(CudaProviderApi(), options);
    ASSERT_FALSE(provider.ok()) << options;
    EXPECT_EQ(GetErrorDetails(provider.status()).reason, Reason::kBadParameter) << options;
  }
}

TEST(CudaPlugin, ExportsTheEntryOfThisInterface) {
  void* plugin = dlopen(TENON_CUDA_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(plugin, nullptr) << dlerror();
  const auto entry = reinterpret_cast<tenon_provider_entry_fn>(dlsym(plugin, TENON_PROVIDER_ENTRY));
  ASSERT_NE(entry, nullptr) << dlerror();
  EXPECT_EQ(entry()->abi_version, TENON_ABI_VERSION);
  EXPECT_EQ(entry()->struct_size, sizeof(tenon_provider_api));
  dlclose(plugin);
}

}  // namespace
}  // namespace tenon::cuda
