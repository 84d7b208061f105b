#include "server/work_metrics.h"

#include <algorithm>
#include <optional>

#include "backends/core/error.h"

namespace tenon::server {
namespace {

constexpr int kUnverifiedTiming = 3;  // tenon_run_statistics.timing_scope

}  // namespace

void ObserveGroups(schedule::ContractionJob* job, Metrics* metrics, Timeline* timeline) {
  job->SetGroupObserver([=](const schedule::ContractionJob::GroupEvent& event) {
    const std::chrono::duration<double> seconds = event.end - event.begin;
    metrics->AddGroup(event.provider,
                      event.moves ? SliceOutcome::kRetried : SliceOutcomeOf(event.outcome),
                      event.slices, seconds.count());
    RecordFault(event.provider, event.outcome, metrics);
    if (timeline != nullptr) {
      timeline->Add(event.group, event.provider, event.worker, event.begin, event.end);
    }
  });
}

void RecordContraction(const schedule::ContractionReport& report, DType dtype, Metrics* metrics) {
  for (const auto& provider : report.providers) {
    const tenon_run_statistics& run = provider.statistics;
    const double busy =
        run.timing_scope == kUnverifiedTiming ? run.dispatch_seconds : run.execution_seconds;
    metrics->AddWork(provider.name, {.busy_seconds = std::max(0.0, busy),
                                     .real_flops = run.flops,
                                     .dtype = dtype,
                                     .to_device_bytes = run.transfer_in_bytes,
                                     .from_device_bytes = run.transfer_out_bytes});
  }
}

void RecordFault(std::string_view provider, const absl::Status& error, Metrics* metrics) {
  const std::optional<FaultKind> kind = FaultKindOf(error);
  if (kind.has_value()) metrics->AddFault(provider, *kind);
}

}  // namespace tenon::server
