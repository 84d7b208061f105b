#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <atomic>

#include "backends/core/error.h"

namespace tenon::server {
namespace {

constexpr size_t kMethods = static_cast<size_t>(Method::kCount);
constexpr size_t kPhases = static_cast<size_t>(Phase::kCount);

#define TENON_COUNT_REASON(id, name, code) +1
constexpr size_t kReasons = 0 TENON_REASONS(TENON_COUNT_REASON);
#undef TENON_COUNT_REASON
// Outcomes of a call: OK, then the reasons in their order.
constexpr size_t kOutcomes = kReasons + 1;

std::string OutcomeName(size_t outcome) {
  return outcome == 0 ? "OK" : std::string(ReasonName(static_cast<Reason>(outcome - 1)));
}

// One list of limits for all seconds: 0.5 ms to 131 s in steps of 4, so that all methods and
// phases together stay below a thousand series.
prometheus::Histogram::BucketBoundaries SecondsBuckets() {
  prometheus::Histogram::BucketBoundaries limits;
  for (double limit = 0.0005; limit < 200; limit *= 4) limits.push_back(limit);
  return limits;
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
      "queue", "input_receive", "input_prepare", "setup", "execution", "result_send", "request"};
  return kNames[static_cast<size_t>(phase)];
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
  template <typename Type>
  using PerMethod = std::array<Type, kMethods>;

  prometheus::Registry registry;
  PerMethod<std::array<prometheus::Counter*, kOutcomes>> requests;
  PerMethod<prometheus::Gauge*> in_flight;
  PerMethod<std::array<prometheus::Histogram*, kPhases>> phases;
  PerMethod<std::array<std::atomic<double>, kPhases>> max_seconds{};
  std::atomic<int64_t> all_in_flight{0};
  std::array<prometheus::Counter*, 2> payload;
  prometheus::Counter* slices;
  prometheus::Counter* flops;
  std::array<prometheus::Counter*, static_cast<size_t>(Rejection::kCount)> rejections;
  std::array<prometheus::Histogram*, kPriorities> queue_waits;
  prometheus::Counter* scored;
  prometheus::Counter* failed;
};

// Every child of every family exists from the start: rates are known before the first failure, and
// no request can add a series.
Metrics::Metrics() : impl_(std::make_unique<Impl>()) {
  prometheus::Registry& registry = impl_->registry;
  auto& requests = prometheus::BuildCounter()
                       .Name("tenon_requests_total")
                       .Help("Calls ended, by method and by reason (OK or an error reason).")
                       .Register(registry);
  auto& in_flight = prometheus::BuildGauge()
                        .Name("tenon_requests_in_flight")
                        .Help("Calls begun and not ended.")
                        .Register(registry);
  auto& phases = prometheus::BuildHistogram()
                     .Name("tenon_phase_seconds")
                     .Help("Seconds that calls spent in each phase.")
                     .Register(registry);
  for (size_t m = 0; m < kMethods; ++m) {
    const std::string method(MethodName(static_cast<Method>(m)));
    for (size_t o = 0; o < kOutcomes; ++o) {
      impl_->requests[m][o] = &requests.Add({{"method", method}, {"reason", OutcomeName(o)}});
    }
    impl_->in_flight[m] = &in_flight.Add({{"method", method}});
    for (size_t p = 0; p < kPhases; ++p) {
      impl_->phases[m][p] = &phases.Add(
          {{"method", method}, {"phase", std::string(PhaseName(static_cast<Phase>(p)))}},
          SecondsBuckets());
    }
  }
  const auto counter = [&](const char* name, const char* help) -> auto& {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  };
  auto& payload = counter("tenon_payload_bytes_total", "Payload bytes of tensors and data sets.");
  impl_->payload = {&payload.Add({{"direction", "received"}}),
                    &payload.Add({{"direction", "sent"}})};
  impl_->slices = &counter("tenon_slices_total", "Slices contracted.").Add({});
  impl_->flops =
      &counter("tenon_flops_total", "Floating-point operations done by contractions.").Add({});
  constexpr std::array<const char*, static_cast<size_t>(Rejection::kCount)> kRejections = {
      "queue_full", "bytes_full", "too_large",    "deadline_infeasible",
      "draining",   "no_device",  "unauthorized", "expired"};
  auto& rejections = counter("tenon_admission_rejections_total", "Calls that were not admitted.");
  for (size_t r = 0; r < kRejections.size(); ++r) {
    impl_->rejections[r] = &rejections.Add({{"reason", kRejections[r]}});
  }
  auto& waits = prometheus::BuildHistogram()
                    .Name("tenon_queue_wait_seconds")
                    .Help("Seconds that admitted requests waited for a slot or for memory.")
                    .Register(registry);
  for (const Priority priority : kAllPriorities) {
    impl_->queue_waits[static_cast<size_t>(priority)] =
        &waits.Add({{"class", std::string(PriorityName(priority))}}, SecondsBuckets());
  }
  auto& projections = counter("tenon_projections_total", "Projections answered.");
  impl_->scored = &projections.Add({{"outcome", "scored"}});
  impl_->failed = &projections.Add({{"outcome", "failed"}});
}

Metrics::~Metrics() = default;

void Metrics::CallBegan(Method method) {
  impl_->in_flight[static_cast<size_t>(method)]->Increment();
  impl_->all_in_flight.fetch_add(1);
}

void Metrics::CallEnded(Method method, const absl::Status& status, double total_seconds) {
  const size_t outcome = status.ok() ? 0 : static_cast<size_t>(GetErrorDetails(status).reason) + 1;
  Observe(method, Phase::kTotal, total_seconds);
  if (const auto rejection = RejectionOf(status)) {
    impl_->rejections[static_cast<size_t>(*rejection)]->Increment();
  }
  impl_->requests[static_cast<size_t>(method)][outcome]->Increment();
  impl_->in_flight[static_cast<size_t>(method)]->Decrement();
  impl_->all_in_flight.fetch_sub(1);
}

void Metrics::Observe(Method method, Phase phase, double seconds) {
  const auto m = static_cast<size_t>(method), p = static_cast<size_t>(phase);
  impl_->phases[m][p]->Observe(seconds);
  RaiseTo(impl_->max_seconds[m][p], seconds);
}

void Metrics::AddPayloadBytes(Direction direction, int64_t bytes) {
  impl_->payload[static_cast<size_t>(direction)]->Increment(static_cast<double>(bytes));
}
void Metrics::AddSlices(int64_t slices) { impl_->slices->Increment(static_cast<double>(slices)); }
void Metrics::AddFlops(double flops) { impl_->flops->Increment(flops); }
void Metrics::AddProjections(int64_t scored, int64_t failed) {
  impl_->scored->Increment(static_cast<double>(scored));
  impl_->failed->Increment(static_cast<double>(failed));
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
    MethodStatistics statistics;
    statistics.method = MethodName(static_cast<Method>(m));
    statistics.in_flight = static_cast<int64_t>(impl_->in_flight[m]->Value());
    statistics.succeeded = static_cast<int64_t>(impl_->requests[m][0]->Value());
    for (size_t o = 1; o < kOutcomes; ++o) {
      const auto count = static_cast<int64_t>(impl_->requests[m][o]->Value());
      if (count == 0) continue;
      statistics.failed += count;
      statistics.failures.emplace_back(OutcomeName(o), count);
    }
    for (size_t p = 0; p < kPhases; ++p) {
      const prometheus::ClientMetric::Histogram seen = impl_->phases[m][p]->Collect().histogram;
      if (seen.sample_count == 0) continue;
      statistics.phases.push_back({std::string(PhaseName(static_cast<Phase>(p))),
                                   static_cast<int64_t>(seen.sample_count), seen.sample_sum,
                                   impl_->max_seconds[m][p].load()});
    }
    all.push_back(std::move(statistics));
  }
  return all;
}

prometheus::Registry& Metrics::registry() { return impl_->registry; }

}  // namespace tenon::server
