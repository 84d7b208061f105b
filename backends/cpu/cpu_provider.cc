#include <vector>

#include "backends/core/strings.h"
#include "backends/cpu/blas.h"
#include "backends/cpu/calibration.h"
#include "backends/cpu/dot.h"
#include "backends/cpu/gate.h"
#include "backends/cpu/gett.h"
#include "backends/cpu/host_provider.h"
#include "backends/cpu/interpreter.h"
#include "backends/cpu/library_gemm.h"
#include "backends/cpu/nest_kernels.h"
#include "backends/cpu/provider.h"
#include "backends/cpu/resources.h"
#include "backends/cpu/scalar.h"
#include "backends/cpu/threads.h"

namespace tenon::cpu {
namespace {

// The instruction set of the clones in backends/core/clones.h that this machine runs.
std::string InstructionSet() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  if (__builtin_cpu_supports("x86-64-v4")) return "avx512";
  if (__builtin_cpu_supports("x86-64-v3")) return "avx2";
  return "sse2";
#else
  return "generic";
#endif
}

template <typename T>
void WarmProduct() {
  constexpr int64_t kSide = 64;
  const std::vector<T> a(kSide * kSide), b(kSide * kSide);
  std::vector<T> c(kSide * kSide);
  const MatrixLayout layout = {false, kSide};
  MatrixProduct<T>(kSide, kSide, kSide, a.data(), layout, b.data(), layout, false, c.data(),
                   layout);
}

// Starts the threads and has each of them pay for the library's buffers.
absl::Status WarmUpCpu() {
  const int threads = UsableCores();
  ThreadTeam team(threads, nullptr, 0);
  team.For(threads, 1, [](int64_t, int64_t, Scratch) {
    WarmProduct<float>();
    WarmProduct<double>();
    WarmProduct<Complex<float>>();
    WarmProduct<Complex<double>>();
  });
  return absl::OkStatus();
}

HostProviderTraits CpuTraits() {
  InitializeBlas();
  HostProviderTraits traits;
  traits.name = "cpu";
  traits.isa = InstructionSet();
  traits.description = StrCat(ProcessorModel(), ", ", BlasDescription());
  traits.environment =
      StrCat("cpu ", kCalibrationVersion, ", ", traits.isa, ", ", BlasDescription());
  traits.max_workers = 1024;  // as many as the caller has threads for, whose number it knows best
  traits.lists = CpuImplementations();
  traits.warm_up = WarmUpCpu;
  traits.measure = MeasureMachine;
  traits.build_resources = BuildResources;
  return traits;
}

int32_t Create(const tenon_host*, const char* options, tenon_provider** provider,
               tenon_status* status) {
  return CreateHostProvider(CpuTraits, options, provider, status);
}

}  // namespace

ImplementationLists CpuImplementations() {
  return {{{"empty", PrepareEmpty},
           {"elementwise", PrepareElementwise},
           {"small", PrepareSmall},
           {"double sums", PrepareDouble},
           {"dot", PrepareDot},
           {"gate", PrepareGate},
           {"gett", PrepareGett},
           {"gemm", PrepareGemm},
           {"reference", PrepareInterpreter}},
          {{"empty", PrepareEmpty},
           {"reduce", PrepareReduce},
           {"copy", PrepareCopy},
           {"reference", PrepareInterpreter}}};
}

const tenon_provider_api* CpuProviderApi() {
  static const tenon_provider_api api = [] {
    tenon_provider_api table = HostProviderApi(/*has_times=*/true);
    table.create = Create;
    return table;
  }();
  return &api;
}

}  // namespace tenon::cpu
