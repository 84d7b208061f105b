#include "server/measurement_report.h"

#include <algorithm>

#include "server/measurement_codec.h"
#include "server/version.h"

namespace tenon::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxTimelineEvents = 10'000;

double Seconds(Clock::duration duration) {
  return std::max(0.0, std::chrono::duration<double>(duration).count());
}

void WriteMeasureSeconds(const MeasureCall& call, const std::vector<double>& seconds,
                         google::protobuf::RepeatedPtrField<v1::MeasureSeconds>* out) {
  for (size_t i = 0; i < seconds.size(); ++i) {
    v1::MeasureSeconds* entry = out->Add();
    entry->set_spec(static_cast<int32_t>(i));
    entry->set_id(call.session->specs()[i].info->id);
    entry->set_seconds(seconds[i]);
    entry->set_workers(1);
  }
}

}  // namespace

void WriteRunInfo(const MeasureCall& call, const ProjectionItem& item, v1::RunInfo* out) {
  const measurement::RunInfo& info = item.result->info;
  v1::Timing* timing = out->mutable_timing();
  timing->set_queue_seconds(Seconds(item.begun - item.complete));
  timing->set_dispatch_seconds(info.total_seconds);
  timing->set_execution_seconds(info.total_seconds);
  timing->set_total_host_seconds(info.total_seconds);
  timing->set_request_seconds(Seconds(item.ended - item.complete));
  timing->set_timing_scope(v1::TIMING_SCOPE_SYNCHRONOUS_HOST);
  timing->set_received_bytes(item.bytes);
  WriteResources(info, std::string(call.provider->name()), call.options.compute_dtype,
                 out->mutable_resources());
  WriteMeasureSeconds(call, info.spec_seconds, out->mutable_measures());
  out->set_resource_seconds(info.resource_seconds);
  out->set_metric_seconds(info.metric_seconds);
  out->set_batch_size(1);
  out->set_batch_limit(v1::BATCH_LIMIT_NO_BATCHABLE_RESOURCE);
  out->set_in_flight(item.in_flight);
}

void MeasureTally::Accepted() {
  std::lock_guard lock(mutex_);
  accepted_ = Clock::now();
}

void MeasureTally::Started() {
  {
    std::lock_guard lock(mutex_);
    started_ = Clock::now();
    is_started_ = true;
  }
  metrics_->Observe(Method::kMeasure, Phase::kQueue, queue_seconds());
}

void MeasureTally::InputComplete() {
  double seconds = 0;
  {
    std::lock_guard lock(mutex_);
    input_complete_ = Clock::now();
    is_input_complete_ = true;
    seconds = Seconds(input_complete_ - accepted_);
  }
  metrics_->Observe(Method::kMeasure, Phase::kReceive, seconds);
}

void MeasureTally::BindBegan() {
  std::lock_guard lock(mutex_);
  bind_began_ = Clock::now();
  bind_begun_ = true;
}

void MeasureTally::BindEnded(const measurement::RunInfo& original) {
  {
    std::lock_guard lock(mutex_);
    bound_ = true;
    original_ = original;
  }
  metrics_->Observe(Method::kMeasure, Phase::kSetup, original.total_seconds);
}

void MeasureTally::BytesReceived(int64_t bytes) {
  metrics_->AddPayloadBytes(Direction::kReceived, bytes);
  std::lock_guard lock(mutex_);
  bytes_received_ += bytes;
}

void MeasureTally::BytesSent(int64_t bytes) {
  metrics_->AddPayloadBytes(Direction::kSent, bytes);
  std::lock_guard lock(mutex_);
  bytes_sent_ += bytes;
}

void MeasureTally::Consumed() {
  std::lock_guard lock(mutex_);
  ++consumed_;
}

void MeasureTally::Scored(const MeasureCall& call, const ProjectionItem& item) {
  const measurement::RunInfo& info = item.result->info;
  metrics_->AddProjections(1, 0);
  metrics_->Observe(Method::kMeasure, Phase::kExecute, info.total_seconds);
  std::lock_guard lock(mutex_);
  const double seconds = Seconds(item.ended - item.complete);
  (scored_ == 0 ? first_seconds_ : further_seconds_) += seconds;
  ++scored_;
  resource_seconds_ += info.resource_seconds;
  metric_seconds_ += info.metric_seconds;
  scoring_seconds_ += info.total_seconds;
  spec_seconds_.resize(info.spec_seconds.size());
  for (size_t i = 0; i < spec_seconds_.size(); ++i) spec_seconds_[i] += info.spec_seconds[i];
  if (call.header.result().report_detail() != v1::REPORT_DETAIL_TIMELINE ||
      timeline_.size() >= kMaxTimelineEvents) {
    return;
  }
  v1::TimelineEvent event;
  event.set_item(item.index);
  event.set_provider(std::string(call.provider->name()));
  event.set_begin_seconds(Seconds(item.begun - bind_began_));
  event.set_end_seconds(Seconds(item.ended - bind_began_));
  timeline_.push_back(std::move(event));
}

void MeasureTally::Refused(const v1::ErrorDetail& error) {
  metrics_->AddProjections(0, 1);
  std::lock_guard lock(mutex_);
  ++refused_;
  for (v1::ErrorCount& count : errors_) {
    if (count.reason() != error.reason()) continue;
    count.set_count(count.count() + 1);
    return;
  }
  v1::ErrorCount count;
  count.set_reason(error.reason());
  count.set_count(1);
  *count.mutable_first() = error;
  errors_.push_back(std::move(count));
}

void MeasureTally::WriteProgress(const MeasureCall& call, v1::MeasureProgress* out) const {
  std::lock_guard lock(mutex_);
  out->set_phase(!is_started_          ? v1::MEASURE_PHASE_QUEUED
                 : !is_input_complete_ ? v1::MEASURE_PHASE_RECEIVING
                 : !bound_             ? v1::MEASURE_PHASE_ORIGINAL
                                       : v1::MEASURE_PHASE_SCORING);
  out->set_projections_read(consumed_);
  out->set_projections_done(scored_ + refused_);
  if (call.header.has_inline_projections()) {
    out->set_projections_total(call.header.inline_projections().projections_size());
  } else if (call.header.client_stream().has_expected_projections()) {
    out->set_projections_total(call.header.client_stream().expected_projections());
  }
  if (!is_input_complete_ && call.dataset.size_bytes() > 0) {
    out->set_fraction(static_cast<double>(call.dataset.received_bytes()) /
                      static_cast<double>(call.dataset.size_bytes()));
  }
  out->set_elapsed_seconds(elapsed_seconds());
}

void MeasureTally::WriteSummary(const MeasureCall& call, bool complete, int max_in_flight,
                                const std::string& dataset_handle, v1::MeasureSummary* out) const {
  std::lock_guard lock(mutex_);
  out->set_request_id(call.request_id);
  out->set_input_consumed_count(consumed_);
  out->set_scored_count(scored_);
  out->set_error_count(refused_);
  out->set_stream_complete(complete);
  out->set_dataset_handle(dataset_handle);
  WriteReport(call, max_in_flight, out->mutable_report());
}

double MeasureTally::elapsed_seconds() const { return Seconds(Clock::now() - header_); }

double MeasureTally::queue_seconds() const {
  std::lock_guard lock(mutex_);
  return is_started_ ? Seconds(started_ - accepted_) : 0;
}

void MeasureTally::WriteTiming(const MeasureCall& call, v1::Timing* out) const {
  const double execution = original_.total_seconds + scoring_seconds_;
  if (is_started_) out->set_queue_seconds(Seconds(started_ - accepted_));
  if (is_input_complete_) out->set_input_receive_seconds(Seconds(input_complete_ - accepted_));
  out->set_setup_seconds(call.setup_seconds);
  out->set_planning_seconds(call.setup_seconds);
  out->set_dispatch_seconds(execution);
  if (bound_) {
    out->set_execution_seconds(execution);
    out->set_timing_scope(v1::TIMING_SCOPE_SYNCHRONOUS_HOST);
  }
  out->set_total_host_seconds(call.setup_seconds + execution);
  out->set_request_seconds(elapsed_seconds());
  out->set_received_bytes(bytes_received_);
  out->set_sent_bytes(bytes_sent_);
}

void MeasureTally::WriteReport(const MeasureCall& call, int max_in_flight,
                               v1::MeasureReport* out) const {
  const std::string provider(call.provider->name());
  WriteTiming(call, out->mutable_timing());
  out->mutable_memory()->set_planned_peak_bytes(call.memory.total_bytes());
  out->mutable_memory()->set_memory_budget_bytes(call.granted.memory_budget_bytes());
  *out->mutable_memory_plan() = call.memory;
  for (const auto& resource : original_.resources) {
    out->set_original_resource_bytes(out->original_resource_bytes() + resource.bytes);
    if (resource.provider == provider) continue;
    v1::ProviderChoice* fallback = out->add_fallbacks();
    fallback->set_requested(provider);
    fallback->set_actual(resource.provider);
    fallback->set_fallback_reason(resource.fallback_reason);
  }
  if (!call.brief()) {
    WriteResources(original_, provider, call.options.compute_dtype,
                   out->mutable_original_resources());
  }
  out->set_original_resource_seconds(original_.resource_seconds);
  out->set_resource_seconds(resource_seconds_);
  out->set_metric_seconds(metric_seconds_);
  WriteMeasureSeconds(call, spec_seconds_, out->mutable_measures());
  if (scored_ > 0) out->set_first_projection_seconds(first_seconds_);
  if (scored_ > 1) {
    out->set_further_projection_seconds(further_seconds_ / static_cast<double>(scored_ - 1));
  }
  v1::ProviderReport* report = out->add_providers();
  report->set_provider(provider);
  report->set_workers(max_in_flight);
  report->set_planned_peak_bytes(call.session->planned_peak_bytes());
  v1::Timing* timing = report->mutable_timing();
  timing->set_dispatch_seconds(out->timing().dispatch_seconds());
  if (bound_) timing->set_execution_seconds(out->timing().execution_seconds());
  timing->set_timing_scope(out->timing().timing_scope());
  out->set_max_in_flight_observed(max_in_flight);
  out->set_max_batch_observed(scored_ > 0 ? 1 : 0);
  out->mutable_timeline()->Assign(timeline_.begin(), timeline_.end());
  out->mutable_errors()->Assign(errors_.begin(), errors_.end());
  out->set_server_version(Build().version);
}

}  // namespace tenon::server
