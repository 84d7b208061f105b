#include "backends/plugin/provider_health.h"

#include <utility>

#include "backends/core/error.h"

namespace tenon::plugin {
namespace {

// The classification of all faults; reasons that are not listed say nothing of the device.
constexpr struct {
  Reason reason;
  Fault fault;
} kFaultTable[] = {
    {Reason::kDeviceFault, Fault::kSticky},         {Reason::kNoDevice, Fault::kSticky},
    {Reason::kDeviceMemory, Fault::kOutOfMemory},   {Reason::kInternal, Fault::kTransient},
    {Reason::kChecksumMismatch, Fault::kTransient},  // DATA_LOSS
};

// Long enough for a request that holds memory to end, short enough not to be noticed.
constexpr int kMemoryRetrySeconds = 1;

}  // namespace

std::string_view FaultName(Fault fault) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "transient", "out_of_memory",
                                                      "sticky"};
  return kNames[static_cast<size_t>(fault)];
}

Fault ClassifyFault(const absl::Status& status) {
  if (status.ok()) return Fault::kNone;
  const Reason reason = GetErrorDetails(status).reason;
  for (const auto& entry : kFaultTable) {
    if (entry.reason == reason) return entry.fault;
  }
  return Fault::kNone;
}

absl::Status ProviderHealth::Check() const {
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  std::lock_guard lock(mutex_);
  return failure_;
}

absl::Status ProviderHealth::Observe(absl::Status result) {
  const Fault fault = ClassifyFault(result);
  if (fault == Fault::kNone) return result;
  counts_[static_cast<size_t>(fault)].fetch_add(1);
  const ErrorDetails details = GetErrorDetails(result);
  Error error(details.reason, std::string(result.message()));
  // Builders return themselves: nothing is moved yet.
  for (const auto& [field, what] : details.fields) std::move(error).Field(field, what);  // NOLINT
  for (const auto& [key, value] : details.metadata) std::move(error).Meta(key, value);   // NOLINT
  std::move(error).Meta("provider", name_);                                              // NOLINT
  if (fault == Fault::kOutOfMemory) {
    std::move(error).Meta("retry_delay_seconds", kMemoryRetrySeconds);  // NOLINT
  }
  result = error.Build();
  if (fault == Fault::kSticky) Fail(result);
  return result;
}

void ProviderHealth::Fail(const absl::Status& fault) {
  std::function<void()> listener;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;  // the first one is told
    failure_ = PrefixMessage(fault, StrCat("provider '", name_, "' has failed: "));
    failed_.store(true, std::memory_order_release);
    listener = listener_;
  }
  if (listener) listener();
}

void ProviderHealth::OnFailure(std::function<void()> listener) {
  bool failed;
  {
    std::lock_guard lock(mutex_);
    listener_ = listener;
    failed = !failure_.ok();
  }
  if (failed && listener) listener();
}

}  // namespace tenon::plugin
