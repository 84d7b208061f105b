#include "server/provider_setup.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "backends/core/error.h"
#include "backends/cpu/provider.h"
#include "backends/plugin/provider.h"
#include "server/logging.h"
#include "server/version.h"

namespace tenon::server {
namespace {

constexpr char kCudaPrefix[] = "cuda:";
constexpr char kFirstCuda[] = "cuda:0";

// Why there is no CUDA device to use.
absl::Status CudaAbsence(const std::string& name) {
  std::error_code error;
  const bool driver = std::filesystem::exists("/proc/driver/nvidia/version", error);
  std::string why = Build().cuda ? "" : "this tenond has no CUDA provider";
  if (!driver) why += StrCat(why.empty() ? "" : ", and ", "no NVIDIA driver is loaded");
  return Error(Reason::kNoDevice, StrCat("provider '", name, "' is absent: ", why))
      .Meta("provider", name)
      .Meta("cuda_built", Build().cuda ? "true" : "false")
      .Meta("driver_loaded", driver ? "true" : "false");
}

const ProviderSource* FindSource(const std::vector<ProviderSource>& sources,
                                 const std::string& name) {
  const auto found =
      std::find_if(sources.begin(), sources.end(),
                   [&](const ProviderSource& source) { return source.name == name; });
  return found == sources.end() ? nullptr : &*found;
}

absl::StatusOr<std::shared_ptr<plugin::Provider>> StartProvider(const ProviderSource& source) {
  TENON_ASSIGN_OR_RETURN(std::shared_ptr<plugin::Provider> provider,
                         plugin::Provider::Create(source.api, source.options));
  TENON_RETURN_IF_ERROR(provider->WarmUp());
  return provider;
}

// From now on, a fault that the provider can't recover from is logged and told.
void WatchHealth(plugin::Provider* provider, const std::string& name,
                 const std::function<void()>& changed) {
  provider->health().OnFailure([provider, name, changed] {
    Log(LogLevel::kError, "provider failed",
        {{"provider", name}, {"message", std::string(provider->health().Check().message())}});
    changed();
  });
}

void WarmOne(const ProviderSource& source, const CalibrationStore& calibrations,
             ProviderRegistry* registry, const std::function<void()>& changed) {
  ProviderRegistry::Entry entry{source.name, nullptr, absl::OkStatus()};
  absl::StatusOr<std::shared_ptr<plugin::Provider>> provider = StartProvider(source);
  if (provider.ok()) {
    entry.provider = *std::move(provider);
    calibrations.Calibrate(*entry.provider);
    Log(LogLevel::kInfo, "provider ready",
        {{"provider", source.name},
         {"description", std::string(entry.provider->info().description)},
         {"isa", std::string(entry.provider->info().isa)},
         {"cold_seconds", entry.provider->info().cold_seconds}});
  } else {
    // The device is at fault, not the request that asks for it.
    entry.absence =
        Error(Reason::kDeviceFault,
              StrCat("provider '", source.name, "' did not start: ", provider.status().message()))
            .Meta("provider", source.name);
    Log(LogLevel::kError, "provider failed",
        {{"provider", source.name}, {"message", std::string(provider.status().message())}});
  }
  const std::shared_ptr<plugin::Provider> started = entry.provider;
  registry->Set(std::move(entry));
  changed();
  if (started != nullptr) WatchHealth(started.get(), source.name, changed);
}

}  // namespace

std::vector<ProviderSource> InTreeProviders() {
  return {{"cpu", cpu::CpuProviderApi(), ""}, {"reference", cpu::ReferenceProviderApi(), ""}};
}

absl::Status DeclareProviders(const std::vector<std::string>& names,
                              const std::vector<ProviderSource>& sources,
                              ProviderRegistry* registry) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) {
      return Error(Reason::kBadParameter, StrCat("--providers: '", name, "' is named twice"))
          .Field("providers");
    }
    const bool cuda = absl::StartsWith(name, kCudaPrefix);
    if (FindSource(sources, name) == nullptr && !cuda) {
      const std::string known = absl::StrJoin(
          sources, ", ", [](std::string* out, const auto& source) { *out += source.name; });
      return Error(Reason::kBadParameter, StrCat("--providers: there is no provider '", name,
                                                 "'; this build has: ", known))
          .Field("providers")
          .Meta("available", known);
    }
    registry->Set({name, nullptr,
                   FindSource(sources, name) == nullptr
                       ? CudaAbsence(name)
                       : Error(Reason::kStarting, StrCat("provider '", name, "' is warming up"))
                             .Meta("retry_delay_seconds", 1)
                             .Build()});
  }
  if (seen.count(kFirstCuda) == 0) {
    registry->Set({kFirstCuda, nullptr, CudaAbsence(kFirstCuda)});
  }
  return absl::OkStatus();
}

void WarmProviders(const std::vector<ProviderSource>& sources, const CalibrationStore& calibrations,
                   ProviderRegistry* registry, const std::function<void()>& changed) {
  std::vector<std::thread> threads;
  for (const ProviderRegistry::Entry& entry : registry->entries()) {
    const ProviderSource* source = FindSource(sources, entry.name);
    if (source == nullptr) continue;
    threads.emplace_back([source, registry, &calibrations, &changed] {
      WarmOne(*source, calibrations, registry, changed);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

ProviderCondition ConditionOf(const ProviderRegistry::Entry& entry) {
  if (entry.usable()) return ProviderCondition::kReady;
  if (entry.provider != nullptr) return ProviderCondition::kFailed;
  switch (GetErrorDetails(entry.absence).reason) {
    case Reason::kStarting:
      return ProviderCondition::kStarting;
    case Reason::kNoDevice:
      return ProviderCondition::kAbsent;
    default:
      return ProviderCondition::kFailed;
  }
}

ProviderCondition ConditionOf(const ProviderRegistry::Entry& entry, ServerPhase phase) {
  const ProviderCondition condition = ConditionOf(entry);
  const bool draining = phase == ServerPhase::kDraining || phase == ServerPhase::kStopped;
  return draining && condition == ProviderCondition::kReady ? ProviderCondition::kDraining
                                                            : condition;
}

std::string_view ConditionName(ProviderCondition condition) {
  constexpr std::array<std::string_view, kProviderConditions.size()> kNames = {
      "absent", "starting", "ready", "failed", "draining"};
  return kNames[static_cast<size_t>(condition)];
}

}  // namespace tenon::server
