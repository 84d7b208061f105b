// What a measurement tells about itself.

#ifndef TENON_SERVER_MEASUREMENT_REPORT_H_
#define TENON_SERVER_MEASUREMENT_REPORT_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backends/measurement/session.h"
#include "server/measurement_request.h"
#include "server/measurement_resources.h"
#include "server/measurement_window.h"
#include "server/metrics.h"
#include "tenon/v1/measurement.pb.h"

namespace tenon::server {

// How one projection was measured.
void WriteRunInfo(const MeasureCall& call, const ProjectionItem& item, v1::RunInfo* out);

// Counts and clocks of one call. Thread-safe.
class MeasureTally {
 public:
  using Clock = std::chrono::steady_clock;

  explicit MeasureTally(Metrics* metrics) : metrics_(metrics) {}

  // The stations of a call, each told once, in this order.
  void Accepted(const MeasureCall& call);
  void Started(double queue_seconds);  // it left the queues, where it waited so long
  void InputComplete();                // data set and labels are there
  void BindBegan();
  void BindEnded(const MeasureCall& call);

  // Checking and laying out the data set or a projection.
  void Prepared(Clock::duration duration);
  // An answer is handed to the transport; it has been written.
  void SendBegan();
  void SendEnded();
  // The call is over: its seconds go to the metrics.
  void Ended();

  void BytesReceived(int64_t bytes);
  void BytesSent(int64_t bytes);
  void Consumed();  // a projection came in full and was not refused before
  void Scored(const MeasureCall& call, const ProjectionItem& item);
  void Refused(const v1::ErrorDetail& error);  // a projection's item_error
  void Skipped(const v1::ErrorDetail& error);  // of a measure that others are answered without

  // Everything up to now.
  void WriteProgress(const MeasureCall& call, v1::MeasureProgress* out) const;
  void WriteSummary(const MeasureCall& call, bool complete, int max_in_flight,
                    const std::string& dataset_handle, v1::MeasureSummary* out) const;
  double elapsed_seconds() const;  // since the header came

 private:
  // With mutex_ held.
  void WriteTiming(const MeasureCall& call, v1::Timing* out) const;
  void CountError(const v1::ErrorDetail& error);
  // What was built or found, and for how long each provider worked. `resources` of `info`.
  void CountWork(const MeasureCall& call, const measurement::RunInfo& info,
                 const std::vector<EngineResource>& resources) const;
  double execution_seconds() const { return original_.total_seconds + scoring_seconds_; }
  void AddResources(const MeasureCall& call, const std::vector<EngineResource>& resources);
  void WriteProviders(const MeasureCall& call, int max_in_flight, v1::MeasureReport* out) const;
  void WriteOriginal(const MeasureCall& call, v1::MeasureReport* out) const;
  void WriteReport(const MeasureCall& call, int max_in_flight, v1::MeasureReport* out) const;

  Metrics* const metrics_;
  const Clock::time_point header_ = Clock::now();
  mutable std::mutex mutex_;
  Clock::time_point accepted_, input_complete_, bind_began_;
  double queue_seconds_ = 0;
  bool is_started_ = false, is_input_complete_ = false, bind_begun_ = false, bound_ = false;
  measurement::RunInfo original_;
  int64_t bytes_received_ = 0, bytes_sent_ = 0;
  int64_t consumed_ = 0, scored_ = 0, refused_ = 0;
  double setup_seconds_ = 0, prepare_seconds_ = 0, send_seconds_ = 0;
  int sending_ = 0;  // answers that are not written yet
  Clock::time_point sending_since_;
  double resource_seconds_ = 0, metric_seconds_ = 0, scoring_seconds_ = 0;
  double first_seconds_ = 0, further_seconds_ = 0;
  int64_t temporary_peak_bytes_ = 0;
  int max_batch_ = 0;
  int64_t widest_ = 0;                               // columns of projections
  std::vector<v1::ProviderChoice> fallbacks_;        // each once
  std::map<std::string, double> seconds_elsewhere_;  // of resources, by who built them instead
  std::vector<double> spec_seconds_;
  std::vector<v1::TimelineEvent> timeline_;
  std::vector<v1::ErrorCount> errors_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_MEASUREMENT_REPORT_H_
