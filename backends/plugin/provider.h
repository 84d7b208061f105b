// Providers as the host sees them: the C ABI behind RAII handles and absl::Status.

#ifndef TENON_BACKENDS_PLUGIN_PROVIDER_H_
#define TENON_BACKENDS_PLUGIN_PROVIDER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "backends/plugin/abi.h"
#include "backends/plugin/provider_health.h"
#include "backends/plugin/worker_gate.h"

namespace tenon::plugin {

// The host's allocator for one request: aligned host memory, counted, capped. Blocks of at least
// 2 MiB ask for huge pages. Thread-safe. Outlives what was allocated from it. A provider's warnings
// and errors go to stderr, the rest of its log nowhere.
class HostMemory {
 public:
  explicit HostMemory(int64_t limit_bytes);
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  const tenon_host* host() const { return &host_; }
  int64_t current_bytes() const { return current_.load(); }
  int64_t peak_bytes() const { return peak_.load(); }

  // Null when the limit or the system refuses, or `bytes` or `alignment` is not as abi.h says.
  void* Allocate(int64_t bytes, int64_t alignment);
  void Release(void* memory, int64_t bytes);

 private:
  const int64_t limit_bytes_;
  std::atomic<int64_t> current_{0}, peak_{0};
  tenon_host host_;
};

// An OK status, or the error a provider's call returned. `code` decides: it wins over a status that
// says OK, and over a reason that is unknown or belongs to another code (the error then has the
// reason that fits the code, and what the provider said as metadata). Never reads beyond the
// arrays.
absl::Status FromAbiStatus(int32_t code, const tenon_status& status);
// Fills `status` from `error` and returns its code: what an in-tree provider ends a call with.
// Fields and metadata do not cross; a long text is cut between code points.
int32_t ToAbiStatus(const absl::Status& error, tenon_status* status);

class Compiled;

// A provider ready for use. Thread-safe as abi.h says. Destroyed after everything made from it.
//
// Calls that reach the device, here and of what is made from it, are watched (provider_health.h):
// after a sticky fault all of them fail with it and without asking the provider again.
class Provider {
 public:
  // Checks the table (version, size, mandatory entries), creates and describes the provider. `api`
  // outlives it.
  // UNSUPPORTED_BY_PROVIDER: another interface version (names both), or results that are not exact.
  // BAD_PARAMETER: a table that is short or incomplete, no name, impossible figures. INTERNAL: it
  // succeeded without a result. What the provider takes for itself has no cap (requests have).
  static absl::StatusOr<std::shared_ptr<Provider>> Create(const tenon_provider_api* api,
                                                          const std::string& options);
  ~Provider();
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;

  // Before use; afterwards info().cold_seconds is set. Does nothing once warm.
  absl::Status WarmUp();
  // Once, between WarmUp and the first use: what the device measures, or what was `known` of it
  // (null: nothing), for predictions of seconds. UNSUPPORTED_BY_PROVIDER without a time model;
  // INTERNAL when figures are impossible.
  absl::Status Calibrate(const tenon_calibration* known);
  // Null until calibrated.
  const tenon_calibration* calibration() const { return calibration_.get(); }
  const tenon_provider_info& info() const { return info_; }
  std::string_view name() const { return info_.name; }
  bool warm() const { return warm_.load(); }
  ProviderHealth& health() { return health_; }
  const ProviderHealth& health() const { return health_; }
  // Shares its workers, info().max_workers, among the jobs that run groups on it.
  WorkerGate& gate() { return *gate_; }

  // `program` must outlive the result. INTERNAL when what the provider compiled contradicts it;
  // UNSUPPORTED_BY_PROVIDER when the program normalises and the provider does not.
  absl::StatusOr<std::unique_ptr<Compiled>> Compile(const tenon_program& program,
                                                    const tenon_compile_options& options);

  absl::StatusOr<int64_t> WorkingMemory(const tenon_resource_request& request,
                                        int64_t available_bytes);
  absl::StatusOr<tenon_resource_statistics> BuildResources(const tenon_resource_request& request);

  // `requests` have equal widths. An error names in `failed` the request at fault, or -1.
  absl::StatusOr<std::vector<tenon_resource_statistics>> BuildBatch(
      const std::vector<tenon_resource_request>& requests, int32_t* failed);

  bool CanContract(int32_t dtype) const;
  // Whether it runs programs with tenon_program.normalize.
  bool CanNormalize() const;
  // Whether it has a time model.
  bool CanCalibrate() const;
  bool CanBuild(int32_t resource_kind) const;
  // Whether several requests of equal widths gain from one BuildBatch.
  bool CanBatch(const tenon_resource_key& key) const;

 private:
  explicit Provider(const tenon_provider_api* api) : api_(api), memory_(INT64_MAX) {}

  const tenon_provider_api* const api_;
  HostMemory memory_;
  tenon_provider* provider_ = nullptr;
  tenon_provider_info info_{};
  ProviderHealth health_;
  std::unique_ptr<WorkerGate> gate_;  // made once the number of workers is known
  std::atomic<bool> warm_{false};
  std::shared_ptr<const tenon_calibration> calibration_;
};

// One running contraction on one provider. BAD_PARAMETER, before the provider is called, for a
// wrong number of operands and for a worker, block or slices that do not exist; else the provider's
// errors.
class Execution {
 public:
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  absl::Status BindSet(const std::vector<const void*>& operands);
  // The sum is partial_sum * 2^*exponent; without normalize the exponent is 0. `exponent` may be
  // null then.
  absl::Status RunGroup(int worker, int64_t block, int64_t first_slice, int64_t last_slice,
                        void* partial_sum, int64_t* exponent = nullptr);
  absl::StatusOr<tenon_run_statistics> Statistics() const;

 private:
  friend class Compiled;
  Execution(const tenon_provider_api* api, ProviderHealth* health, tenon_execution* execution,
            const tenon_program* program, int workers)
      : api_(api), health_(health), execution_(execution), program_(program), workers_(workers) {}
  const tenon_provider_api* const api_;
  ProviderHealth* const health_;
  tenon_execution* const execution_;
  const tenon_program* const program_;
  const int workers_;
};

// A program compiled for one provider.
class Compiled {
 public:
  ~Compiled();
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  const tenon_compiled_info& info() const { return info_; }
  std::string FingerprintHex() const;
  // Seconds of a run with so many workers and threads; nothing where the provider can't tell.
  std::optional<tenon_prediction> Predict(int workers, int threads) const;
  // `memory`, what `operands` point to and `options.cancel` outlive the execution.
  absl::StatusOr<std::unique_ptr<Execution>> Begin(HostMemory& memory,
                                                   const std::vector<const void*>& operands,
                                                   const tenon_execution_options& options);

 private:
  friend class Provider;
  Compiled(const tenon_provider_api* api, ProviderHealth* health, tenon_compiled* compiled,
           const tenon_program* program)
      : api_(api), health_(health), compiled_(compiled), program_(program) {}
  const tenon_provider_api* const api_;
  ProviderHealth* const health_;
  tenon_compiled* const compiled_;
  const tenon_program* const program_;
  tenon_compiled_info info_{};
};

}  // namespace tenon::plugin

#endif  // TENON_BACKENDS_PLUGIN_PROVIDER_H_
