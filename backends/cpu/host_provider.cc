#include "backends/cpu/host_provider.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "backends/core/error.h"
#include "backends/core/strings.h"
#include "backends/cpu/execution.h"
#include "backends/cpu/resources.h"
#include "backends/plugin/provider.h"

namespace tenon::cpu {
namespace {

struct HostProvider {
  HostProviderTraits traits;
  double cold_seconds = 0;  // 0 until warm
  double create_seconds = 0;
  std::shared_ptr<const MachineTimes> times;  // null until calibrated
};

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The opaque types of the interface are never completed here, because a process may hold several
// providers with their own completions.
HostProvider* Unwrap(tenon_provider* provider) { return reinterpret_cast<HostProvider*>(provider); }
const CompiledProgram* Unwrap(const tenon_compiled* compiled) {
  return reinterpret_cast<const CompiledProgram*>(compiled);
}
Execution* Unwrap(tenon_execution* execution) { return reinterpret_cast<Execution*>(execution); }
const Execution* Unwrap(const tenon_execution* execution) {
  return reinterpret_cast<const Execution*>(execution);
}

// Runs one call of the interface; nothing that is thrown leaves it.
template <typename Call>
int32_t Guarded(tenon_status* status, Call&& call) noexcept {
  try {
    absl::Status result;
    try {
      result = call();
    } catch (const std::bad_alloc&) {
      result = Error(Reason::kExceedsMemoryBudget, "the system has no memory left for this call");
    } catch (const std::exception& error) {
      result = Error(Reason::kInternal, StrCat("a library failed: ", error.what()));
    }
    return plugin::ToAbiStatus(result, status);
  } catch (...) {
    // Not even the text of the error found room.
    return static_cast<int32_t>(absl::StatusCode::kResourceExhausted);
  }
}

// Writes as much of `value` as the caller's struct holds, and keeps its size.
template <typename T>
absl::Status Fill(const T& value, T* out) {
  const uint32_t size = out->struct_size;
  if (size < sizeof(size)) {
    return Error(Reason::kBadParameter, "struct_size of an output is not set").Field("struct_size");
  }
  std::memcpy(out, &value, std::min<size_t>(size, sizeof(T)));
  out->struct_size = size;
  return absl::OkStatus();
}

void Destroy(tenon_provider* provider) { delete Unwrap(provider); }

int32_t Describe(tenon_provider* provider, tenon_provider_info* info, tenon_status* status) {
  return Guarded(status, [&] {
    const HostProvider& self = *Unwrap(provider);
    tenon_provider_info value{};
    value.exact = 1;
    value.name = self.traits.name.c_str();
    value.kind = self.traits.name.c_str();
    value.description = self.traits.description.c_str();
    value.isa = self.traits.isa.c_str();
    value.max_workers = self.traits.max_workers;
    value.contraction_dtypes = 1u << TENON_DTYPE_FLOAT32 | 1u << TENON_DTYPE_FLOAT64 |
                               1u << TENON_DTYPE_COMPLEX64 | 1u << TENON_DTYPE_COMPLEX128;
    value.step_kinds = 1u << TENON_STEP_CONTRACT | 1u << TENON_STEP_UNARY;
    value.resource_kinds = ResourceKinds();
    value.resource_dtypes = 1u << TENON_DTYPE_FLOAT32 | 1u << TENON_DTYPE_FLOAT64;
    value.cold_seconds = self.cold_seconds;
    return Fill(value, info);
  });
}

int32_t WarmUp(tenon_provider* provider, tenon_status* status) {
  return Guarded(status, [&]() -> absl::Status {
    HostProvider& self = *Unwrap(provider);
    const Clock::time_point start = Clock::now();
    if (self.traits.warm_up != nullptr) TENON_RETURN_IF_ERROR(self.traits.warm_up());
    self.cold_seconds = self.create_seconds + SecondsSince(start);
    return absl::OkStatus();
  });
}

int32_t Compile(tenon_provider* provider, const tenon_program* program,
                const tenon_compile_options* options, tenon_compiled** compiled,
                tenon_status* status) {
  return Guarded(status, [&]() -> absl::Status {
    const HostProvider& self = *Unwrap(provider);
    const HostProviderTraits& traits = self.traits;
    TENON_ASSIGN_OR_RETURN(
        std::unique_ptr<CompiledProgram> result,
        CompiledProgram::Compile(*program, *options, traits.lists, traits.environment));
    result->SetTimes(self.times);
    *compiled = reinterpret_cast<tenon_compiled*>(result.release());
    return absl::OkStatus();
  });
}

int32_t Calibrate(tenon_provider* provider, const tenon_calibration* known,
                  tenon_calibration* calibration, tenon_status* status) {
  return Guarded(status, [&] {
    HostProvider& self = *Unwrap(provider);
    std::optional<MachineTimes> times;
    if (known != nullptr) times = FromCalibration(*known);
    if (!times.has_value()) times = self.traits.measure();
    self.times = std::make_shared<const MachineTimes>(*times);
    return Fill(ToCalibration(*times), calibration);
  });
}

int32_t Predict(const tenon_compiled* compiled, const tenon_execution_options* options,
                tenon_prediction* prediction, tenon_status* status) {
  return Guarded(status, [&]() -> absl::Status {
    const CompiledProgram& program = *Unwrap(compiled);
    if (!program.has_times()) {
      return Error(Reason::kUnsupportedByProvider, "the provider was not calibrated");
    }
    const int workers = std::max(1, options->workers);
    const int threads = std::max(options->threads, workers * options->threads_per_worker);
    return Fill(program.Predict(workers, threads), prediction);
  });
}

int32_t CompiledInfo(const tenon_compiled* compiled, tenon_compiled_info* info,
                     tenon_status* status) {
  return Guarded(status, [&] { return Fill(Unwrap(compiled)->Info(), info); });
}

void ReleaseCompiled(tenon_compiled* compiled) { delete Unwrap(compiled); }

int32_t Begin(tenon_compiled* compiled, const tenon_host* memory, const void* const* operands,
              const tenon_execution_options* options, tenon_execution** execution,
              tenon_status* status) {
  return Guarded(status, [&]() -> absl::Status {
    TENON_ASSIGN_OR_RETURN(std::unique_ptr<Execution> result,
                           Execution::Begin(*Unwrap(compiled), *memory, operands, *options));
    *execution = reinterpret_cast<tenon_execution*>(result.release());
    return absl::OkStatus();
  });
}

int32_t BindSet(tenon_execution* execution, const void* const* operands, tenon_status* status) {
  return Guarded(status, [&] { return Unwrap(execution)->BindSet(operands); });
}

int32_t RunGroup(tenon_execution* execution, int32_t worker, int64_t block, int64_t first_slice,
                 int64_t last_slice, void* partial_sum, tenon_status* status) {
  return Guarded(status, [&] {
    return Unwrap(execution)->RunGroup(worker, block, first_slice, last_slice, partial_sum,
                                       nullptr);
  });
}

int32_t RunScaledGroup(tenon_execution* execution, int32_t worker, int64_t block,
                       int64_t first_slice, int64_t last_slice, void* partial_sum,
                       int64_t* exponent, tenon_status* status) {
  return Guarded(status, [&] {
    return Unwrap(execution)->RunGroup(worker, block, first_slice, last_slice, partial_sum,
                                       exponent);
  });
}

int32_t ExecutionStatistics(const tenon_execution* execution, tenon_run_statistics* statistics,
                            tenon_status* status) {
  return Guarded(status, [&] { return Fill(Unwrap(execution)->Statistics(), statistics); });
}

void End(tenon_execution* execution) { delete Unwrap(execution); }

int32_t WorkingMemory(tenon_provider*, const tenon_resource_request* request,
                      int64_t available_bytes, int64_t* bytes, tenon_status* status) {
  return Guarded(status, [&]() -> absl::Status {
    TENON_ASSIGN_OR_RETURN(*bytes, ResourceWorkingMemory(*request, available_bytes));
    return absl::OkStatus();
  });
}

int32_t BuildAllResources(tenon_provider* provider, const tenon_resource_request* request,
                          tenon_resource_statistics* statistics, tenon_status* status) {
  return Guarded(status,
                 [&] { return Unwrap(provider)->traits.build_resources(*request, statistics); });
}

int32_t CanBatch(tenon_provider*, const tenon_resource_key*) { return 0; }

absl::Status ApplyOptions(std::string_view options, HostProviderTraits& traits) {
  if (options.empty()) return absl::OkStatus();
  constexpr std::string_view kPrefix = "kernels=";
  if (!options.starts_with(kPrefix)) {
    return Error(Reason::kBadParameter,
                 StrCat("provider options are '", options, "'; expected kernels=NAME,..."))
        .Field("options");
  }
  TENON_ASSIGN_OR_RETURN(traits.lists,
                         OnlyImplementations(traits.lists, options.substr(kPrefix.size())));
  return absl::OkStatus();
}

}  // namespace

std::string ProcessorModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

int32_t CreateHostProvider(HostProviderTraits (*make)(), const char* options,
                           tenon_provider** provider, tenon_status* status) {
  return Guarded(status, [&]() -> absl::Status {
    const Clock::time_point start = Clock::now();
    auto self = std::make_unique<HostProvider>();
    self->traits = make();
    TENON_RETURN_IF_ERROR(ApplyOptions(options == nullptr ? "" : options, self->traits));
    self->create_seconds = SecondsSince(start);
    *provider = reinterpret_cast<tenon_provider*>(self.release());
    return absl::OkStatus();
  });
}

tenon_provider_api HostProviderApi(bool has_times) {
  tenon_provider_api api{};
  api.struct_size = sizeof(api);
  api.abi_version = TENON_ABI_VERSION;
  api.destroy = Destroy;
  api.describe = Describe;
  api.warm_up = WarmUp;
  api.compile = Compile;
  api.compiled_info = CompiledInfo;
  api.release_compiled = ReleaseCompiled;
  api.begin = Begin;
  api.bind_set = BindSet;
  api.run_group = RunGroup;
  api.execution_statistics = ExecutionStatistics;
  api.end = End;
  api.working_memory = WorkingMemory;
  api.build_resources = BuildAllResources;
  api.can_batch = CanBatch;
  api.run_scaled_group = RunScaledGroup;
  if (has_times) {
    api.calibrate = Calibrate;
    api.predict = Predict;
  }
  return api;
}

}  // namespace tenon::cpu
