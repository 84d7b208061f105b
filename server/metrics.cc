#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <atomic>

#include "backends/plugin/provider_health.h"
#include "server/provider_metrics.h"

namespace tenon::server {
namespace {

constexpr auto kMethods = static_cast<size_t>(Method::kCount);
constexpr auto kPhases = static_cast<size_t>(Phase::kCount);
constexpr size_t kCodes = 17;  // the canonical ones, OK first

#define TENON_COUNT_REASON(id, name, code) +1
constexpr size_t kReasons = 0 TENON_REASONS(TENON_COUNT_REASON);
#undef TENON_COUNT_REASON

// The phases of a method that are observed beside the whole. A method that lacks one has no series
// for it.
bool HasPhase(Method method, Phase phase) {
  switch (method) {
    case Method::kContract:
    case Method::kMeasure:
      return phase != Phase::kTotal;
    case Method::kPlanContraction:
    case Method::kEstimate:
      return phase == Phase::kQueue || phase == Phase::kSetup;
    default:
      return false;
  }
}

void RaiseTo(std::atomic<double>& maximum, double value) {
  double current = maximum.load(std::memory_order_relaxed);
  while (value > current && !maximum.compare_exchange_weak(current, value)) {
  }
}

}  // namespace

std::string_view MethodName(Method method) {
  switch (method) {
    case Method::kContract:
      return "tenon.v1.ContractionService/Contract";
    case Method::kPlanContraction:
      return "tenon.v1.ContractionService/PlanContraction";
    case Method::kEstimate:
      return "tenon.v1.ContractionService/Estimate";
    case Method::kMeasure:
      return "tenon.v1.MeasurementService/Measure";
    case Method::kDataset:
      return "tenon.v1.DatasetService";
    case Method::kJob:
      return "tenon.v1.JobService";
    case Method::kProvider:
      return "tenon.v1.ProviderService";
    case Method::kAdmin:
      return "tenon.v1.AdminService";
    case Method::kCount:
      break;
  }
  return "";
}

std::string_view PhaseName(Phase phase) {
  constexpr std::array<std::string_view, kPhases> kNames = {
      "queue",    "input_receive", "input_prepare", "setup",
      "dispatch", "execution",     "result_send",   "request"};
  return kNames[static_cast<size_t>(phase)];
}

std::optional<FaultKind> FaultKindOf(const absl::Status& error) {
  switch (plugin::ClassifyFault(error)) {
    case plugin::Fault::kOutOfMemory:
      return FaultKind::kOutOfMemory;
    case plugin::Fault::kSticky:
      return FaultKind::kSticky;
    case plugin::Fault::kTransient:
      return FaultKind::kOther;
    case plugin::Fault::kNone:
      break;
  }
  return std::nullopt;
}

SliceOutcome SliceOutcomeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return SliceOutcome::kOk;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
      return SliceOutcome::kCancelled;
    default:
      return SliceOutcome::kFailed;
  }
}

std::optional<Rejection> RejectionOf(const absl::Status& status) {
  if (status.ok()) return std::nullopt;
  const ErrorDetails details = GetErrorDetails(status);
  const auto tells = [&](const char* key) { return details.metadata.count(key) > 0; };
  switch (details.reason) {
    case Reason::kOverloaded:
      return tells("queued_requests") ? Rejection::kQueueFull : Rejection::kBytesFull;
    case Reason::kExceedsServerLimit:
      return Rejection::kTooLarge;
    case Reason::kDeadlineInfeasible:
      return Rejection::kDeadlineInfeasible;
    case Reason::kDeadline:  // while it waited, not while it ran
      if (tells("queue_seconds")) return Rejection::kExpired;
      return std::nullopt;
    case Reason::kDraining:
    case Reason::kStarting:
      return Rejection::kDraining;
    case Reason::kNoDevice:
      return Rejection::kNoDevice;
    case Reason::kUnauthenticated:
    case Reason::kPermissionDenied:
      return Rejection::kUnauthorized;
    default:
      return std::nullopt;
  }
}

struct Metrics::Impl {
  // One method's series, and what statistics tell beside them.
  struct PerMethod {
    std::array<prometheus::Counter*, kCodes> codes{};
    prometheus::Gauge* in_flight = nullptr;
    prometheus::Histogram* total = nullptr;
    std::array<prometheus::Histogram*, kPhases> phases{};  // null where the method lacks it
    std::array<prometheus::Counter*, 2> payload{};
    std::array<std::atomic<double>, kPhases> max_seconds{};
    std::array<std::atomic<int64_t>, kReasons> failures{};
    std::atomic<int64_t> succeeded{0}, items{0};

    prometheus::Histogram* Seconds(size_t phase) const {
      return phase == static_cast<size_t>(Phase::kTotal) ? total : phases[phase];
    }
  };

  Impl();
  PerMethod& Of(Method method) { return methods[static_cast<size_t>(method)]; }

  prometheus::Registry registry;
  std::array<PerMethod, kMethods> methods;
  std::array<prometheus::Counter*, kReasons> failures{};
  std::atomic<int64_t> all_in_flight{0};
  std::array<prometheus::Counter*, static_cast<size_t>(Rejection::kCount)> rejections{};
  std::array<prometheus::Histogram*, kPriorities> queue_waits{};
  prometheus::Counter* scored = nullptr;
  prometheus::Counter* failed = nullptr;
  prometheus::Histogram* cancellation = nullptr;
  ProviderMetrics providers{&registry};
};

// Every child of every family exists from the start: rates are known before the first failure, and
// no request can add a series.
Metrics::Impl::Impl() {
  const auto counter = [this](const char* name, const char* help) -> auto& {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  };
  const auto histogram = [this](const char* name, const char* help) -> auto& {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
  };
  auto& requests = counter("tenon_requests_total", "Calls ended, by method and status code.");
  auto& in_flight = prometheus::BuildGauge()
                        .Name("tenon_requests_in_flight")
                        .Help("Calls begun and not ended.")
                        .Register(registry);
  auto& seconds = histogram("tenon_request_seconds", "Seconds from a call's begin to its end.");
  auto& phase_seconds = histogram("tenon_phase_seconds", "Seconds that calls spent in each phase.");
  auto& received =
      counter("tenon_received_bytes_total", "Payload bytes of tensors and data sets that came in.");
  auto& sent = counter("tenon_sent_bytes_total", "Payload bytes of results that went out.");
  for (size_t m = 0; m < kMethods; ++m) {
    const auto id = static_cast<Method>(m);
    const std::string method(MethodName(id));
    PerMethod& one = methods[m];
    for (size_t c = 0; c < kCodes; ++c) {
      const auto code = absl::StatusCodeToString(static_cast<absl::StatusCode>(c));
      one.codes[c] = &requests.Add({{"method", method}, {"code", code}});
    }
    one.in_flight = &in_flight.Add({{"method", method}});
    one.total = &seconds.Add({{"method", method}}, SecondsBuckets());
    one.payload = {&received.Add({{"method", method}}), &sent.Add({{"method", method}})};
    for (size_t p = 0; p < kPhases; ++p) {
      const auto phase = static_cast<Phase>(p);
      if (!HasPhase(id, phase)) continue;
      one.phases[p] = &phase_seconds.Add(
          {{"method", method}, {"phase", std::string(PhaseName(phase))}}, SecondsBuckets());
    }
  }
  auto& reasons = counter("tenon_request_failures_total",
                          "Calls that did not end with OK, by the reason in their details.");
  for (size_t r = 0; r < kReasons; ++r) {
    failures[r] = &reasons.Add({{"reason", std::string(ReasonName(static_cast<Reason>(r)))}});
  }
  constexpr std::array<const char*, static_cast<size_t>(Rejection::kCount)> kRejections = {
      "queue_full", "bytes_full", "too_large",    "deadline_infeasible",
      "draining",   "no_device",  "unauthorized", "expired"};
  auto& rejected = counter("tenon_admission_rejections_total", "Calls that were not admitted.");
  for (size_t r = 0; r < kRejections.size(); ++r) {
    rejections[r] = &rejected.Add({{"reason", kRejections[r]}});
  }
  auto& waits = histogram("tenon_queue_wait_seconds",
                          "Seconds that admitted requests waited for a slot or for memory.");
  for (const Priority priority : kAllPriorities) {
    queue_waits[static_cast<size_t>(priority)] =
        &waits.Add({{"class", std::string(PriorityName(priority))}}, SecondsBuckets());
  }
  auto& projections = counter("tenon_projections_total", "Projections answered.");
  scored = &projections.Add({{"outcome", "scored"}});
  failed = &projections.Add({{"outcome", "failed"}});
  cancellation = &histogram("tenon_cancel_latency_seconds",
                            "Seconds from telling work to stop until its worker was idle.")
                      .Add({}, SecondsBuckets());
}

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::CallBegan(Method method) {
  impl_->Of(method).in_flight->Increment();
  impl_->all_in_flight.fetch_add(1);
}

void Metrics::CallEnded(Method method, const absl::Status& status, double total_seconds) {
  Impl::PerMethod& one = impl_->Of(method);
  Observe(method, Phase::kTotal, total_seconds);
  if (const auto rejection = RejectionOf(status)) {
    impl_->rejections[static_cast<size_t>(*rejection)]->Increment();
  }
  const auto code = static_cast<size_t>(status.code());
  one.codes[code < kCodes ? code : static_cast<size_t>(absl::StatusCode::kUnknown)]->Increment();
  if (status.ok()) {
    one.succeeded.fetch_add(1);
  } else {
    const auto reason = static_cast<size_t>(GetErrorDetails(status).reason);
    one.failures[reason].fetch_add(1);
    impl_->failures[reason]->Increment();
  }
  one.in_flight->Decrement();
  impl_->all_in_flight.fetch_sub(1);
}

void Metrics::Observe(Method method, Phase phase, double seconds) {
  Impl::PerMethod& one = impl_->Of(method);
  const auto p = static_cast<size_t>(phase);
  prometheus::Histogram* const histogram = one.Seconds(p);
  if (histogram == nullptr) return;
  histogram->Observe(seconds);
  RaiseTo(one.max_seconds[p], seconds);
}

void Metrics::AddPayloadBytes(Method method, Direction direction, int64_t bytes) {
  impl_->Of(method).payload[static_cast<size_t>(direction)]->Increment(static_cast<double>(bytes));
}

void Metrics::AddItems(Method method, int64_t items) { impl_->Of(method).items.fetch_add(items); }

void Metrics::AddProjections(int64_t scored, int64_t failed) {
  impl_->scored->Increment(static_cast<double>(scored));
  impl_->failed->Increment(static_cast<double>(failed));
  AddItems(Method::kMeasure, scored + failed);
}

void Metrics::ObserveCancellation(double seconds) { impl_->cancellation->Observe(seconds); }

void Metrics::DeclareProvider(std::string_view provider) { impl_->providers.Of(provider); }

void Metrics::AddWork(std::string_view provider, const ProviderWork& work) {
  ProviderMetrics::Series& series = impl_->providers.Of(provider);
  series.busy_seconds->Increment(work.busy_seconds);
  series.flops[FlopsIndex(work.dtype)]->Increment(work.real_flops);
  series.copied[0]->Increment(static_cast<double>(work.to_device_bytes));
  series.copied[1]->Increment(static_cast<double>(work.from_device_bytes));
  series.resources[0]->Increment(static_cast<double>(work.resources_built));
  series.resources[1]->Increment(static_cast<double>(work.resources_reused));
}

void Metrics::AddGroup(std::string_view provider, SliceOutcome outcome, int64_t slices,
                       double seconds) {
  ProviderMetrics::Series& series = impl_->providers.Of(provider);
  series.slices[static_cast<size_t>(outcome)]->Increment(static_cast<double>(slices));
  if (outcome == SliceOutcome::kOk) {
    series.group_seconds->Observe(seconds);
  } else if (outcome != SliceOutcome::kCancelled) {
    series.failed_groups.fetch_add(1);
  }
}

void Metrics::AddFault(std::string_view provider, FaultKind kind) {
  impl_->providers.Of(provider).faults[static_cast<size_t>(kind)]->Increment();
}

void Metrics::ObserveQueueWait(Priority priority, double seconds) {
  impl_->queue_waits[static_cast<size_t>(priority)]->Observe(seconds);
}

QueueWaits Metrics::Waits(Priority priority) const {
  const prometheus::ClientMetric::Histogram seen =
      impl_->queue_waits[static_cast<size_t>(priority)]->Collect().histogram;
  return {static_cast<int64_t>(seen.sample_count), seen.sample_sum};
}

int64_t Metrics::in_flight() const { return impl_->all_in_flight.load(); }

std::vector<MethodStatistics> Metrics::Statistics() const {
  std::vector<MethodStatistics> all;
  for (size_t m = 0; m < kMethods; ++m) {
    const Impl::PerMethod& one = impl_->methods[m];
    MethodStatistics statistics;
    statistics.method = MethodName(static_cast<Method>(m));
    statistics.in_flight = static_cast<int64_t>(one.in_flight->Value());
    statistics.succeeded = one.succeeded.load();
    statistics.received_bytes = static_cast<int64_t>(one.payload[0]->Value());
    statistics.sent_bytes = static_cast<int64_t>(one.payload[1]->Value());
    statistics.items = one.items.load();
    for (size_t r = 0; r < kReasons; ++r) {
      const int64_t count = one.failures[r].load();
      if (count == 0) continue;
      statistics.failed += count;
      statistics.failures.emplace_back(ReasonName(static_cast<Reason>(r)), count);
    }
    for (size_t p = 0; p < kPhases; ++p) {
      const prometheus::Histogram* const histogram = one.Seconds(p);
      if (histogram == nullptr) continue;
      const prometheus::ClientMetric::Histogram seen = histogram->Collect().histogram;
      if (seen.sample_count == 0) continue;
      statistics.phases.push_back({std::string(PhaseName(static_cast<Phase>(p))),
                                   static_cast<int64_t>(seen.sample_count), seen.sample_sum,
                                   one.max_seconds[p].load()});
    }
    all.push_back(std::move(statistics));
  }
  return all;
}

std::vector<ProviderStatistics> Metrics::Providers() const { return impl_->providers.Statistics(); }

prometheus::Registry& Metrics::registry() { return impl_->registry; }

}  // namespace tenon::server
