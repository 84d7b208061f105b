// Runs the conformance suite on one provider; see conformance.h.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "backends/cpu/provider.h"
#include "tests/backends/conformance/conformance.h"

namespace tenon::testing {
namespace {

// Exits, saying why, when `provider` cannot be loaded. A plug-in stays loaded.
const tenon_provider_api* LoadProvider(const std::string& provider) {
  if (provider == "cpu") return cpu::CpuProviderApi();
  if (provider == "reference") return cpu::ReferenceProviderApi();
  void* plugin = dlopen(provider.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* entry = plugin == nullptr ? nullptr : dlsym(plugin, TENON_PROVIDER_ENTRY);
  if (entry == nullptr) {
    std::cerr << "provider_conformance: " << dlerror() << "\n";
    std::exit(2);
  }
  return reinterpret_cast<tenon_provider_entry_fn>(entry)();
}

}  // namespace
}  // namespace tenon::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::string provider = "cpu", options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--provider=")) {
      provider = argument.substr(11);
    } else if (argument.starts_with("--options=")) {
      options = argument.substr(10);
    } else {
      std::cerr << "usage: provider_conformance [--provider=NAME|PATH] [--options=TEXT]\n";
      return 2;
    }
  }
  tenon::testing::Subject() = {tenon::testing::LoadProvider(provider), options};
  return RUN_ALL_TESTS();
}
