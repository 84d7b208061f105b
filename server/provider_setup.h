// Which providers a server has, and how they get warm.

#ifndef TENON_SERVER_PROVIDER_SETUP_H_
#define TENON_SERVER_PROVIDER_SETUP_H_

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "backends/plugin/abi.h"
#include "server/calibration_store.h"
#include "server/state.h"

namespace tenon::server {

// A provider that can be started: its name, its interface table, and its options.
struct ProviderSource {
  std::string name;
  const tenon_provider_api* api = nullptr;
  std::string options;
};

// "cpu" and "reference".
std::vector<ProviderSource> InTreeProviders();

// Enters every wanted name into the registry, in order, as STARTING, and "cuda:0" as absent, with
// the reason. BAD_PARAMETER, field "providers", for a name that no source has or that comes twice.
absl::Status DeclareProviders(const std::vector<std::string>& names,
                              const std::vector<ProviderSource>& sources,
                              ProviderRegistry* registry);

// Creates, warms and calibrates all declared providers side by side and returns when all are warm
// or have failed; the registry then tells which. `calibrations` keeps what they measure. Calls
// `changed` after each, from the thread that warmed it, and when one fails later, from the thread
// that saw it: a copy of `changed` stays with the provider and must not block.
void WarmProviders(const std::vector<ProviderSource>& sources, const CalibrationStore& calibrations,
                   ProviderRegistry* registry, const std::function<void()>& changed);

// How an entry of the registry stands.
enum class ProviderCondition { kAbsent, kStarting, kReady, kFailed, kDraining };
constexpr std::array<ProviderCondition, 5> kProviderConditions = {
    ProviderCondition::kAbsent, ProviderCondition::kStarting, ProviderCondition::kReady,
    ProviderCondition::kFailed, ProviderCondition::kDraining};
ProviderCondition ConditionOf(const ProviderRegistry::Entry& entry);
// The same in a server that may be on its way out: what is ready then finishes what it has.
ProviderCondition ConditionOf(const ProviderRegistry::Entry& entry, ServerPhase phase);
std::string_view ConditionName(ProviderCondition condition);

}  // namespace tenon::server

#endif  // TENON_SERVER_PROVIDER_SETUP_H_
