#include "server/measurement_report.h"

#include <algorithm>

#include "backends/measurement/metrics.h"
#include "server/timeline.h"
#include "server/version.h"

namespace tenon::server {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) {
  return std::max(0.0, std::chrono::duration<double>(duration).count());
}

// `columns` are those of the widest projection.
void WriteMeasureSeconds(const MeasureCall& call, const std::vector<double>& seconds,
                         int64_t columns,
                         google::protobuf::RepeatedPtrField<v1::MeasureSeconds>* out) {
  const int threads = std::max(1, call.options.threads);
  const measurement::MetricShape shape = {
      .n = call.rows(),
      .original_columns = call.options.original_columns,
      .embedded_columns = std::max(columns, call.options.max_embedded_columns),
      .threads = threads,
      .return_local = call.options.return_local};
  for (size_t i = 0; i < seconds.size(); ++i) {
    v1::MeasureSeconds* entry = out->Add();
    const measurement::MeasureSpec& spec = call.session->specs()[i];
    entry->set_spec(static_cast<int32_t>(i));
    entry->set_id(spec.info->id);
    entry->set_seconds(seconds[i]);
    entry->set_working_bytes(measurement::MetricWorkingBytes(spec, shape));
    const bool own = spec.Has("workers");
    entry->set_workers(
        own ? static_cast<int32_t>(std::min<int64_t>(spec.Integer("workers"), threads)) : threads);
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
  std::vector<EngineResource> own;
  for (const EngineResource& resource : info.resources) {
    if (resource.space != "original") own.push_back(resource);
  }
  WriteResources(own, call.resource_context(false), out->mutable_resources());
  WriteMeasureSeconds(call, info.spec_seconds, item.columns, out->mutable_measures());
  out->set_temporary_peak_bytes(info.temporary_peak_bytes);
  out->set_resource_seconds(info.resource_seconds);
  out->set_metric_seconds(info.metric_seconds);
  out->set_batch_size(info.batch_size);
  out->set_batch_limit(call.memory.batch_limit());
  out->set_in_flight(item.in_flight);
}

void MeasureTally::Accepted(const MeasureCall& call) {
  std::lock_guard lock(mutex_);
  setup_seconds_ = call.setup_seconds;
  accepted_ = Clock::now();
}

void MeasureTally::Started(double queue_seconds) {
  {
    std::lock_guard lock(mutex_);
    queue_seconds_ = queue_seconds;
    is_started_ = true;
  }
  metrics_->Observe(Method::kMeasure, Phase::kQueue, queue_seconds);
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

void MeasureTally::BindEnded(const MeasureCall& call) {
  const measurement::RunInfo& original = call.session->original_info();
  {
    std::lock_guard lock(mutex_);
    bound_ = true;
    original_ = original;
    AddResources(call, original.resources);
    CountWork(call, original, original.resources);
  }
}

void MeasureTally::Prepared(Clock::duration duration) {
  std::lock_guard lock(mutex_);
  prepare_seconds_ += Seconds(duration);
}

void MeasureTally::SendBegan() {
  std::lock_guard lock(mutex_);
  if (sending_++ == 0) sending_since_ = Clock::now();
}

void MeasureTally::SendEnded() {
  std::lock_guard lock(mutex_);
  if (--sending_ == 0) send_seconds_ += Seconds(Clock::now() - sending_since_);
}

void MeasureTally::Ended() {
  std::lock_guard lock(mutex_);
  if (is_started_) metrics_->Observe(Method::kMeasure, Phase::kSetup, setup_seconds_);
  if (!bound_) return;
  metrics_->Observe(Method::kMeasure, Phase::kPrepare, prepare_seconds_);
  metrics_->Observe(Method::kMeasure, Phase::kDispatch, execution_seconds());
  metrics_->Observe(Method::kMeasure, Phase::kExecute, execution_seconds());
  metrics_->Observe(Method::kMeasure, Phase::kSend, send_seconds_);
}

void MeasureTally::CountWork(const MeasureCall& call, const measurement::RunInfo& info,
                             const std::vector<EngineResource>& resources) const {
  const std::string asked(call.provider->name());
  std::map<std::string, ProviderWork> work;
  work[asked].busy_seconds = info.total_seconds;
  for (const EngineResource& resource : resources) {
    const std::string& builder = resource.provider.empty() ? asked : resource.provider;
    ProviderWork& by = work[builder];
    ++(resource.reused ? by.resources_reused : by.resources_built);
    if (resource.reused || builder == asked) continue;
    by.busy_seconds += resource.build_seconds;
    work[asked].busy_seconds -= resource.build_seconds;
  }
  work[asked].busy_seconds = std::max(0.0, work[asked].busy_seconds);
  for (const auto& [provider, done] : work) metrics_->AddWork(provider, done);
}

void MeasureTally::AddResources(const MeasureCall& call,
                                const std::vector<EngineResource>& resources) {
  const std::string requested(call.provider->name());
  for (const EngineResource& resource : resources) {
    if (resource.provider == requested || resource.provider.empty()) continue;
    if (!resource.reused) seconds_elsewhere_[resource.provider] += resource.build_seconds;
    const bool known =
        std::any_of(fallbacks_.begin(), fallbacks_.end(), [&](const v1::ProviderChoice& other) {
          return other.actual() == resource.provider &&
                 other.fallback_reason() == resource.fallback_reason;
        });
    if (!known) fallbacks_.push_back(ChoiceOf(resource, requested));
  }
}

void MeasureTally::BytesReceived(int64_t bytes) {
  metrics_->AddPayloadBytes(Method::kMeasure, Direction::kReceived, bytes);
  std::lock_guard lock(mutex_);
  bytes_received_ += bytes;
}

void MeasureTally::BytesSent(int64_t bytes) {
  metrics_->AddPayloadBytes(Method::kMeasure, Direction::kSent, bytes);
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
  std::lock_guard lock(mutex_);
  const double seconds = Seconds(item.ended - item.complete);
  (scored_ == 0 ? first_seconds_ : further_seconds_) += seconds;
  ++scored_;
  resource_seconds_ += info.resource_seconds;
  metric_seconds_ += info.metric_seconds;
  scoring_seconds_ += info.total_seconds;
  temporary_peak_bytes_ = std::max(temporary_peak_bytes_, info.temporary_peak_bytes);
  max_batch_ = std::max(max_batch_, info.batch_size);
  widest_ = std::max(widest_, item.columns);
  AddResources(call, info.resources);
  std::vector<EngineResource> counted;  // what the projection only shares was counted before
  // Some of the original space come with the first projection.
  for (const EngineResource& resource : info.resources) {
    if (resource.space != "original") {
      counted.push_back(resource);
      continue;
    }
    const bool known =
        std::any_of(original_.resources.begin(), original_.resources.end(),
                    [&](const auto& other) { return SameResource(other, resource); });
    if (known) continue;
    counted.push_back(resource);
    original_.resources.push_back(resource);
    if (!resource.reused) original_.resource_seconds += resource.build_seconds;
  }
  CountWork(call, info, counted);
  spec_seconds_.resize(info.spec_seconds.size());
  for (size_t i = 0; i < spec_seconds_.size(); ++i) spec_seconds_[i] += info.spec_seconds[i];
  if (call.header.result().report_detail() != v1::REPORT_DETAIL_TIMELINE ||
      timeline_.size() >= Timeline::kMaxEvents) {
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
  CountError(error);
}

void MeasureTally::Skipped(const v1::ErrorDetail& error) {
  std::lock_guard lock(mutex_);
  CountError(error);
}

void MeasureTally::CountError(const v1::ErrorDetail& error) {
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
  const auto total = call.projection_count();
  const int64_t done = scored_ + refused_;
  if (total) out->set_projections_total(*total);
  if (bound_ && total && *total > 0) {
    out->set_fraction(std::min(1.0, static_cast<double>(done) / static_cast<double>(*total)));
    const double spent = Seconds(Clock::now() - bind_began_);
    if (done > 0 && done <= *total) {
      out->set_left_seconds(spent / static_cast<double>(done) * static_cast<double>(*total - done));
    }
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

void MeasureTally::WriteTiming(const MeasureCall& call, v1::Timing* out) const {
  const double execution = execution_seconds();
  if (is_started_) out->set_queue_seconds(queue_seconds_);
  if (is_input_complete_) out->set_input_receive_seconds(Seconds(input_complete_ - accepted_));
  out->set_input_prepare_seconds(prepare_seconds_);
  out->set_setup_seconds(call.setup_seconds);
  out->set_planning_seconds(call.setup_seconds);
  out->set_dispatch_seconds(execution);
  if (bound_) {
    out->set_execution_seconds(execution);
    out->set_timing_scope(v1::TIMING_SCOPE_SYNCHRONOUS_HOST);
  }
  out->set_total_host_seconds(prepare_seconds_ + call.setup_seconds + execution);
  out->set_request_seconds(elapsed_seconds());
  out->set_result_send_seconds(send_seconds_);
  out->set_received_bytes(bytes_received_);
  out->set_sent_bytes(bytes_sent_);
}

void MeasureTally::WriteOriginal(const MeasureCall& call, v1::MeasureReport* out) const {
  bool all_reused = !original_.resources.empty();
  for (const EngineResource& resource : original_.resources) {
    out->set_original_resource_bytes(out->original_resource_bytes() + resource.bytes);
    all_reused = all_reused && resource.reused;
  }
  out->set_original_resources_reused(all_reused);
  if (!all_reused) out->set_original_resource_seconds(original_.resource_seconds);
  if (call.brief()) return;
  WriteResources(original_.resources, call.resource_context(false),
                 out->mutable_original_resources());
}

void MeasureTally::WriteProviders(const MeasureCall& call, int max_in_flight,
                                  v1::MeasureReport* out) const {
  double elsewhere = 0;
  for (const auto& [name, seconds] : seconds_elsewhere_) elsewhere += seconds;
  const auto add = [&](const std::string& name, double seconds) {
    v1::ProviderReport* report = out->add_providers();
    report->set_provider(name);
    report->set_workers(max_in_flight);
    v1::Timing* timing = report->mutable_timing();
    timing->set_dispatch_seconds(seconds);
    if (bound_) timing->set_execution_seconds(seconds);
    timing->set_total_host_seconds(seconds);
    timing->set_timing_scope(out->timing().timing_scope());
    return report;
  };
  add(std::string(call.provider->name()),
      std::max(0.0, out->timing().dispatch_seconds() - elsewhere))
      ->set_planned_peak_bytes(call.session->planned_peak_bytes());
  for (const auto& [name, seconds] : seconds_elsewhere_) add(name, seconds);
  out->mutable_fallbacks()->Assign(fallbacks_.begin(), fallbacks_.end());
}

void MeasureTally::WriteReport(const MeasureCall& call, int max_in_flight,
                               v1::MeasureReport* out) const {
  WriteTiming(call, out->mutable_timing());
  v1::MemoryReport* memory = out->mutable_memory();
  memory->set_planned_peak_bytes(call.memory.total_bytes());
  memory->set_memory_budget_bytes(call.granted.memory_budget_bytes());
  memory->set_planned_temporary_bytes(call.memory.temporary_bytes());
  memory->set_temporary_peak_bytes(temporary_peak_bytes_);
  *out->mutable_memory_plan() = call.memory;
  WriteOriginal(call, out);
  out->set_resource_seconds(resource_seconds_);
  out->set_metric_seconds(metric_seconds_);
  WriteMeasureSeconds(call, spec_seconds_, widest_, out->mutable_measures());
  if (scored_ > 0) out->set_first_projection_seconds(first_seconds_);
  if (scored_ > 1) {
    out->set_further_projection_seconds(further_seconds_ / static_cast<double>(scored_ - 1));
  }
  WriteProviders(call, max_in_flight, out);
  out->set_max_in_flight_observed(max_in_flight);
  out->set_max_batch_observed(max_batch_);
  std::vector<v1::TimelineEvent> timeline = timeline_;
  AssignWorkers(&timeline);
  out->mutable_timeline()->Assign(timeline.begin(), timeline.end());
  out->mutable_errors()->Assign(errors_.begin(), errors_.end());
  out->set_server_version(Build().version);
}

}  // namespace tenon::server
