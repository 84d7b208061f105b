// Whether a provider still works: what its calls report is judged in one place, and a fault that it
// can't recover from is remembered for everybody.

#ifndef TENON_BACKENDS_PLUGIN_PROVIDER_HEALTH_H_
#define TENON_BACKENDS_PLUGIN_PROVIDER_HEALTH_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tenon::plugin {

// What an error says of the device it came from.
enum class Fault {
  kNone,         // nothing: the request is at fault, or was told to stop
  kTransient,    // this call failed; another may succeed
  kOutOfMemory,  // the device had no room; it may have some when other work ends
  kSticky,       // the device is lost for this process; no call will succeed
};
inline constexpr std::array<Fault, 3> kFaults = {Fault::kTransient, Fault::kOutOfMemory,
                                                 Fault::kSticky};

// "none", "transient", "out_of_memory", "sticky".
std::string_view FaultName(Fault fault);

// By the reason, as "Faults" in abi.h says.
Fault ClassifyFault(const absl::Status& status);

// The latch of one provider. Thread-safe.
class ProviderHealth {
 public:
  // Before use.
  void SetName(std::string name) { name_ = std::move(name); }

  // OK, or from its first sticky fault on that fault: DEVICE_FAULT or NO_DEVICE.
  absl::Status Check() const;
  // Takes the result of a call to the provider and returns it. Faults are counted and get the
  // provider's name, and when it ran out of memory a delay for the next try, as metadata; a sticky
  // one fails the provider.
  absl::Status Observe(absl::Status result);
  int64_t faults(Fault fault) const { return counts_[static_cast<size_t>(fault)].load(); }

  // Calls `listener` once the provider has failed, from the thread that saw it: at once when it has
  // already. It must not block, and stays callable as long as the provider is used. One listener.
  void OnFailure(std::function<void()> listener);

 private:
  void Fail(const absl::Status& fault);

  std::string name_;
  std::array<std::atomic<int64_t>, 4> counts_{};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  absl::Status failure_;  // OK until failed_
  std::function<void()> listener_;
};

}  // namespace tenon::plugin

#endif  // TENON_BACKENDS_PLUGIN_PROVIDER_HEALTH_H_
