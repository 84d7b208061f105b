#include "backends/plugin/provider.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/escaping.h"
#include "backends/core/error.h"
#include "backends/core/memory.h"
#include "backends/core/utf8.h"
#include "backends/plugin/calibration.h"

namespace tenon::plugin {
namespace {

// Bytes of the table up to and with its last mandatory entry.
constexpr size_t kMandatoryBytes = offsetof(tenon_provider_api, can_batch);

tenon_status EmptyStatus() {
  tenon_status status{};
  status.struct_size = sizeof(status);
  return status;
}

// A call that says it succeeded but did not do what the interface asks.
Error BrokenPromise(std::string_view call, std::string_view what) {
  return Error(Reason::kInternal, StrCat("the provider's ", call, " succeeded but ", what))
      .Meta("call", std::string(call));
}

// The reason for an error whose provider names none that fits: what the code means of a device.
Reason ReasonForProviderCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kResourceExhausted:
      return Reason::kDeviceMemory;
    case absl::StatusCode::kUnavailable:
      return Reason::kDeviceFault;
    case absl::StatusCode::kUnimplemented:
      return Reason::kUnsupportedByProvider;
    default:
      return GetErrorDetails(absl::Status(code, "")).reason;
  }
}

// The text in a fixed array that may lack its NUL or hold ill-formed UTF-8.
std::string TextOf(std::span<const char> array) {
  return ReplaceInvalidUtf8({array.data(), strnlen(array.data(), array.size())});
}

void SetText(std::string_view text, std::span<char> array) {
  const std::string_view fitting = Utf8Prefix(text, array.size() - 1);
  if (!fitting.empty()) fitting.copy(array.data(), fitting.size());  // an empty one may be null
  array[fitting.size()] = '\0';
}

void LogToStderr(void*, int32_t level, const char* text) {
  constexpr int32_t kWarning = 2;
  if (level >= kWarning && text != nullptr) std::fprintf(stderr, "provider: %s\n", text);
}

// The name of the first mandatory entry that is missing, or null.
const char* MissingEntry(const tenon_provider_api& api) {
#define TENON_CHECK_ENTRY(entry) \
  if (api.entry == nullptr) return #entry
  TENON_CHECK_ENTRY(create);
  TENON_CHECK_ENTRY(destroy);
  TENON_CHECK_ENTRY(describe);
  TENON_CHECK_ENTRY(warm_up);
  TENON_CHECK_ENTRY(compile);
  TENON_CHECK_ENTRY(compiled_info);
  TENON_CHECK_ENTRY(release_compiled);
  TENON_CHECK_ENTRY(begin);
  TENON_CHECK_ENTRY(bind_set);
  TENON_CHECK_ENTRY(run_group);
  TENON_CHECK_ENTRY(execution_statistics);
  TENON_CHECK_ENTRY(end);
  TENON_CHECK_ENTRY(working_memory);
  TENON_CHECK_ENTRY(build_resources);
#undef TENON_CHECK_ENTRY
  return nullptr;
}

absl::Status CheckTable(const tenon_provider_api* api) {
  if (api == nullptr) {
    return Error(Reason::kBadParameter, "the provider has no interface table").Field("api");
  }
  // The version is read first, because it says how to read the rest.
  if (api->struct_size >= offsetof(tenon_provider_api, create) &&
      api->abi_version != TENON_ABI_VERSION) {
    return Error(Reason::kUnsupportedByProvider,
                 StrCat("the provider was built for interface version ", api->abi_version,
                        ", the host speaks version ", TENON_ABI_VERSION))
        .Field("api.abi_version")
        .Meta("provider_abi_version", api->abi_version)
        .Meta("host_abi_version", TENON_ABI_VERSION);
  }
  if (api->struct_size < kMandatoryBytes) {
    return Error(Reason::kBadParameter,
                 StrCat("the provider's interface table has ", api->struct_size,
                        " bytes, expected at least ", kMandatoryBytes))
        .Field("api.struct_size")
        .Meta("struct_size_bytes", api->struct_size)
        .Meta("expected_bytes", kMandatoryBytes);
  }
  if (const char* missing = MissingEntry(*api); missing != nullptr) {
    return Error(Reason::kBadParameter, StrCat("the provider has no entry '", missing, "'"))
        .Field(StrCat("api.", missing));
  }
  return absl::OkStatus();
}

absl::StatusOr<tenon_provider_info> Describe(const tenon_provider_api& api,
                                             tenon_provider* provider) {
  tenon_provider_info info{};
  info.struct_size = sizeof(info);
  tenon_status status = EmptyStatus();
  TENON_RETURN_IF_ERROR(FromAbiStatus(api.describe(provider, &info, &status), status));
  if (info.name == nullptr || info.name[0] == '\0') {
    return Error(Reason::kBadParameter, "the provider has no name").Field("info.name");
  }
  if (info.exact != 1) {
    return Error(Reason::kUnsupportedByProvider,
                 StrCat("provider '", info.name, "' does not promise exact results"))
        .Field("info.exact")
        .Meta("exact", info.exact);
  }
  if (info.max_workers < 1 || info.memory_bytes < 0) {
    const bool workers = info.max_workers < 1;
    return Error(Reason::kBadParameter, StrCat("provider '", info.name, "' describes itself with ",
                                               workers ? info.max_workers : info.memory_bytes,
                                               workers ? " workers" : " bytes of memory"))
        .Field(workers ? "info.max_workers" : "info.memory_bytes");
  }
  for (const char** text : {&info.kind, &info.description, &info.isa}) {
    if (*text == nullptr) *text = "";
  }
  return info;
}

// Whether a table holds an entry that may lie beyond its end.
#define TENON_HAS_ENTRY(api, entry)                                                  \
  ((api).struct_size >= offsetof(tenon_provider_api, entry) + sizeof((api).entry) && \
   (api).entry != nullptr)

bool IsDuration(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

bool IsPossible(const tenon_calibration& calibration) {
  for (const tenon_step_times& times : calibration.times) {
    for (const double seconds : {times.step, times.multiply_add, times.near_read, times.far_read,
                                 times.near_write, times.far_write}) {
      if (!IsDuration(seconds)) return false;
    }
    if (!(times.step + times.multiply_add > 0 && times.near_elements >= 0)) return false;
  }
  const auto is_speedup = [](double value) { return std::isfinite(value) && value > 0; };
  return calibration.threads >= 1 && calibration.n_factors >= 0 &&
         calibration.n_factors <= TENON_CALIBRATION_FACTORS &&
         is_speedup(calibration.arithmetic_speedup) && is_speedup(calibration.traffic_speedup);
}

bool HasBit(uint32_t bits, int32_t position) {
  return position >= 0 && position < 32 && (bits >> position & 1u) != 0;
}

// A call that reaches the device: `call` gets the status to fill and returns the code.
template <typename Call>
absl::Status CallDevice(ProviderHealth& health, const Call& call) {
  TENON_RETURN_IF_ERROR(health.Check());
  tenon_status status = EmptyStatus();
  const int32_t code = call(&status);
  return code == 0 ? absl::OkStatus() : health.Observe(FromAbiStatus(code, status));
}

absl::Status CheckOperandCount(size_t count, int32_t expected) {
  if (count == static_cast<size_t>(expected)) return absl::OkStatus();
  return Error(Reason::kBadParameter,
               StrCat("the program has ", expected, " operands, but ", count, " were given"))
      .Field("operands")
      .Meta("operands", count)
      .Meta("expected_operands", expected);
}

}  // namespace

HostMemory::HostMemory(int64_t limit_bytes) : limit_bytes_(std::max<int64_t>(limit_bytes, 0)) {
  host_.struct_size = sizeof(host_);
  host_.abi_version = TENON_ABI_VERSION;
  host_.context = this;
  host_.allocate = [](void* context, int64_t bytes, int64_t alignment) {
    return static_cast<HostMemory*>(context)->Allocate(bytes, alignment);
  };
  host_.release = [](void* context, void* memory, int64_t bytes) {
    static_cast<HostMemory*>(context)->Release(memory, bytes);
  };
  host_.log = LogToStderr;
}

void* HostMemory::Allocate(int64_t bytes, int64_t alignment) {
  if (bytes < 0) return nullptr;
  int64_t before = current_.load();
  do {
    if (bytes > limit_bytes_ - before) return nullptr;
  } while (!current_.compare_exchange_weak(before, before + bytes));
  void* memory = AllocateMemory(bytes, alignment);
  if (memory == nullptr) {
    current_.fetch_sub(bytes);
    return nullptr;
  }
  int64_t peak = peak_.load();
  while (peak < before + bytes && !peak_.compare_exchange_weak(peak, before + bytes)) {
  }
  return memory;
}

void HostMemory::Release(void* memory, int64_t bytes) {
  if (memory == nullptr) return;
  ReleaseMemory(memory, bytes);
  current_.fetch_sub(bytes);
}

absl::Status FromAbiStatus(int32_t code, const tenon_status& status) {
  if (code == 0) return absl::OkStatus();
  // A number that is no canonical code becomes UNKNOWN.
  const auto canonical = static_cast<absl::StatusCode>(code >= 1 && code <= 16 ? code : 2);
  const std::string name = TextOf(status.reason);
  const absl::StatusOr<Reason> named = ReasonFromName(name);
  // The code decides what callers do (retry, give up); a reason that contradicts it is dropped.
  const bool fits = named.ok() && ReasonCode(*named) == canonical;
  std::string text = TextOf(status.message);
  if (text.empty()) text = StrCat("the provider failed with code ", code, " and no text");
  Error error(fits ? *named : ReasonForProviderCode(canonical), std::move(text));
  if (!fits) std::move(error).Meta("provider_code", code).Meta("provider_reason", name);
  return error;
}

int32_t ToAbiStatus(const absl::Status& error, tenon_status* status) {
  const auto code = static_cast<int32_t>(error.code());
  if (status == nullptr) return code;
  status->code = code;
  SetText(error.ok() ? "" : ReasonName(GetErrorDetails(error).reason), status->reason);
  SetText(ToStd(error.message()), status->message);
  return code;
}

absl::StatusOr<std::shared_ptr<Provider>> Provider::Create(const tenon_provider_api* api,
                                                           const std::string& options) {
  TENON_RETURN_IF_ERROR(CheckTable(api));
  std::shared_ptr<Provider> provider(new Provider(api));
  tenon_provider* handle = nullptr;
  tenon_status status = EmptyStatus();
  TENON_RETURN_IF_ERROR(FromAbiStatus(
      api->create(provider->memory_.host(), options.c_str(), &handle, &status), status));
  if (handle == nullptr) return BrokenPromise("create", "gave no provider");
  provider->provider_ = handle;
  TENON_ASSIGN_OR_RETURN(provider->info_, Describe(*api, provider->provider_));
  provider->health_.SetName(provider->info_.name);
  provider->gate_ = std::make_unique<WorkerGate>(provider->info_.max_workers);
  return provider;
}

Provider::~Provider() {
  if (provider_ != nullptr) api_->destroy(provider_);
}

absl::Status Provider::WarmUp() {
  if (warm()) return absl::OkStatus();
  tenon_status status = EmptyStatus();
  TENON_RETURN_IF_ERROR(FromAbiStatus(api_->warm_up(provider_, &status), status));
  TENON_ASSIGN_OR_RETURN(const tenon_provider_info info, Describe(*api_, provider_));
  info_.cold_seconds = std::max(info.cold_seconds, 0.0);
  warm_.store(true);
  return absl::OkStatus();
}

absl::Status Provider::Calibrate(const tenon_calibration* known) {
  if (!CanCalibrate()) {
    return Error(Reason::kUnsupportedByProvider,
                 StrCat("provider '", name(), "' has no time model"))
        .Meta("provider", name());
  }
  auto calibration = std::make_shared<tenon_calibration>();
  calibration->struct_size = sizeof(tenon_calibration);
  TENON_RETURN_IF_ERROR(CallDevice(health_, [&](tenon_status* status) {
    return api_->calibrate(provider_, known, calibration.get(), status);
  }));
  if (!IsPossible(*calibration)) return BrokenPromise("calibrate", "tells impossible times");
  calibration_ = std::move(calibration);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Compiled>> Provider::Compile(const tenon_program& program,
                                                            const tenon_compile_options& options) {
  if (program.normalize != 0 && !CanNormalize()) {
    return Error(Reason::kUnsupportedByProvider,
                 StrCat("provider '", name(), "' does not normalise contractions"))
        .Field("execution.normalize")
        .Meta("provider", name());
  }
  tenon_compiled* handle = nullptr;
  TENON_RETURN_IF_ERROR(CallDevice(health_, [&](tenon_status* status) {
    return api_->compile(provider_, &program, &options, &handle, status);
  }));
  if (handle == nullptr) return BrokenPromise("compile", "gave no compiled program");
  std::unique_ptr<Compiled> compiled(new Compiled(api_, &health_, handle, &program));
  tenon_compiled_info& info = compiled->info_;
  info.struct_size = sizeof(info);
  tenon_status status = EmptyStatus();
  TENON_RETURN_IF_ERROR(FromAbiStatus(api_->compiled_info(handle, &info, &status), status));
  if (info.n_steps != program.n_steps) {
    return BrokenPromise("compiled_info", StrCat("reports ", info.n_steps,
                                                 " steps of a program of ", program.n_steps));
  }
  if (info.n_steps > 0 && (info.kernels == nullptr || info.refusals == nullptr)) {
    return BrokenPromise("compiled_info", "names no kernels or no refusals");
  }
  if (info.worker_bytes < 0 || info.shared_bytes < 0 || info.thread_bytes < 0) {
    return BrokenPromise("compiled_info", "plans a negative number of bytes");
  }
  return compiled;
}

absl::StatusOr<int64_t> Provider::WorkingMemory(const tenon_resource_request& request,
                                                int64_t available_bytes) {
  int64_t bytes = 0;
  TENON_RETURN_IF_ERROR(CallDevice(health_, [&](tenon_status* status) {
    return api_->working_memory(provider_, &request, available_bytes, &bytes, status);
  }));
  if (bytes < 0) return BrokenPromise("working_memory", "wants a negative number of bytes");
  return bytes;
}

absl::StatusOr<tenon_resource_statistics> Provider::BuildResources(
    const tenon_resource_request& request) {
  tenon_resource_statistics statistics{};
  statistics.struct_size = sizeof(statistics);
  TENON_RETURN_IF_ERROR(CallDevice(health_, [&](tenon_status* status) {
    return api_->build_resources(provider_, &request, &statistics, status);
  }));
  return statistics;
}

absl::StatusOr<std::vector<tenon_resource_statistics>> Provider::BuildBatch(
    const std::vector<tenon_resource_request>& requests, int32_t* failed) {
  std::vector<tenon_resource_statistics> statistics(requests.size());
  for (auto& one : statistics) one.struct_size = sizeof(one);
  *failed = -1;
  const auto count = static_cast<int32_t>(requests.size());
  const absl::Status result = CallDevice(health_, [&](tenon_status* status) {
    return api_->build_batch(provider_, requests.data(), count, statistics.data(), failed, status);
  });
  if (*failed >= count) return BrokenPromise("build_batch", "blames a request that there is not");
  TENON_RETURN_IF_ERROR(result);
  return statistics;
}

bool Provider::CanBatch(const tenon_resource_key& key) const {
  const bool has_entries = TENON_HAS_ENTRY(*api_, can_batch) && TENON_HAS_ENTRY(*api_, build_batch);
  return has_entries && api_->can_batch(provider_, &key) != 0;
}

bool Provider::CanContract(int32_t dtype) const {
  return info_.step_kinds != 0 && HasBit(info_.contraction_dtypes, dtype);
}

bool Provider::CanNormalize() const { return TENON_HAS_ENTRY(*api_, run_scaled_group); }

bool Provider::CanCalibrate() const {
  return TENON_HAS_ENTRY(*api_, calibrate) && TENON_HAS_ENTRY(*api_, predict);
}

bool Provider::CanBuild(int32_t resource_kind) const {
  return HasBit(info_.resource_kinds, resource_kind);
}

Execution::~Execution() { api_->end(execution_); }

absl::Status Execution::BindSet(const std::vector<const void*>& operands) {
  TENON_RETURN_IF_ERROR(CheckOperandCount(operands.size(), program_->n_operands));
  return CallDevice(*health_, [&](tenon_status* status) {
    return api_->bind_set(execution_, operands.data(), status);
  });
}

absl::Status Execution::RunGroup(int worker, int64_t block, int64_t first_slice, int64_t last_slice,
                                 void* partial_sum, int64_t* exponent) {
  const bool in_range = worker >= 0 && worker < workers_ && block >= 0 &&
                        block < program_->n_blocks && first_slice >= 0 &&
                        first_slice < last_slice && last_slice <= program_->slices_per_block;
  if (!in_range) {
    return Error(Reason::kBadParameter, StrCat("no group has worker ", worker, ", block ", block,
                                               " and slices [", first_slice, ", ", last_slice, ")"))
        .Field("group");
  }
  if (program_->normalize != 0 && exponent == nullptr) {
    return Error(Reason::kInternal, "a normalised group was run without asking for its exponent");
  }
  return CallDevice(*health_, [&](tenon_status* status) {
    if (program_->normalize != 0) {
      return api_->run_scaled_group(execution_, worker, block, first_slice, last_slice, partial_sum,
                                    exponent, status);
    }
    if (exponent != nullptr) *exponent = 0;
    return api_->run_group(execution_, worker, block, first_slice, last_slice, partial_sum, status);
  });
}

absl::StatusOr<tenon_run_statistics> Execution::Statistics() const {
  tenon_run_statistics statistics{};
  statistics.struct_size = sizeof(statistics);
  tenon_status status = EmptyStatus();
  TENON_RETURN_IF_ERROR(
      FromAbiStatus(api_->execution_statistics(execution_, &statistics, &status), status));
  return statistics;
}

Compiled::~Compiled() { api_->release_compiled(compiled_); }

std::string Compiled::FingerprintHex() const {
  return absl::BytesToHexString(
      {reinterpret_cast<const char*>(info_.fingerprint), sizeof(info_.fingerprint)});
}

std::optional<tenon_prediction> Compiled::Predict(int workers, int threads) const {
  if (!TENON_HAS_ENTRY(*api_, predict)) return std::nullopt;
  tenon_execution_options options{};
  options.struct_size = sizeof(options);
  options.workers = workers;
  options.threads_per_worker = std::max(1, threads / workers);
  options.threads = threads;
  tenon_prediction prediction{};
  prediction.struct_size = sizeof(prediction);
  tenon_status status = EmptyStatus();
  if (api_->predict(compiled_, &options, &prediction, &status) != 0) return std::nullopt;
  if (!IsDuration(prediction.once_seconds) || !IsDuration(prediction.slice_seconds)) {
    return std::nullopt;
  }
  return prediction;
}

absl::StatusOr<std::unique_ptr<Execution>> Compiled::Begin(HostMemory& memory,
                                                           const std::vector<const void*>& operands,
                                                           const tenon_execution_options& options) {
  TENON_RETURN_IF_ERROR(CheckOperandCount(operands.size(), program_->n_operands));
  if (options.workers < 1 || options.threads_per_worker < 1) {
    return Error(Reason::kBadParameter,
                 StrCat("an execution needs workers and threads, not ", options.workers, " and ",
                        options.threads_per_worker))
        .Field(options.workers < 1 ? "options.workers" : "options.threads_per_worker");
  }
  tenon_execution* handle = nullptr;
  TENON_RETURN_IF_ERROR(CallDevice(*health_, [&](tenon_status* status) {
    return api_->begin(compiled_, memory.host(), operands.data(), &options, &handle, status);
  }));
  if (handle == nullptr) return BrokenPromise("begin", "gave no execution");
  return std::unique_ptr<Execution>(
      new Execution(api_, health_, handle, program_, options.workers));
}

}  // namespace tenon::plugin
