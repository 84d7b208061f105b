// Counters and timings of the server, as Prometheus families with the prefix tenon_ and for the
// statistics call.

#ifndef TENON_SERVER_METRICS_H_
#define TENON_SERVER_METRICS_H_

#include <prometheus/registry.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/priority.h"

namespace tenon::server {

// Closed label sets: nothing of a request ever becomes a label.
enum class Method {
  kContract,
  kPlanContraction,
  kEstimate,
  kMeasure,
  kDataset,
  kJob,
  kProvider,
  kAdmin,
  kCount
};
enum class Phase { kQueue, kReceive, kPrepare, kSetup, kExecute, kSend, kTotal, kCount };
enum class Direction { kReceived, kSent };

// "tenon.v1.ContractionService/Contract"; a method that stands for a whole service has the
// service's name only. The label `method`, and the name in statistics and logs.
std::string_view MethodName(Method method);
// The field of tenon.v1.Timing without "_seconds": the label `phase`.
std::string_view PhaseName(Phase phase);

// One method's calls and the seconds of each phase, since start.
struct MethodStatistics {
  std::string method;
  int64_t succeeded = 0, failed = 0, in_flight = 0;
  std::vector<std::pair<std::string, int64_t>> failures;  // by reason, those that occurred
  struct PhaseSeconds {
    std::string phase;
    int64_t count = 0;
    double seconds = 0;
    double max_seconds = 0;
  };
  std::vector<PhaseSeconds> phases;  // those that occurred
};

// Why a call was not admitted: the label `reason` of tenon_admission_rejections_total.
enum class Rejection {
  kQueueFull,
  kBytesFull,
  kTooLarge,
  kDeadlineInfeasible,
  kDraining,
  kNoDevice,
  kUnauthorized,
  kExpired,  // it waited too long
  kCount
};
// Absent: the call was admitted, or its request was wrong.
std::optional<Rejection> RejectionOf(const absl::Status& status);

// One class of requests since the start.
struct QueueWaits {
  int64_t admitted = 0;
  double seconds = 0;  // that those waited, summed
};

// Thread-safe; recording costs an atomic or two.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Counts a call as in flight until it ends.
  void CallBegan(Method method);
  // The reason (or OK) becomes a label.
  void CallEnded(Method method, const absl::Status& status, double total_seconds);
  void Observe(Method method, Phase phase, double seconds);
  void AddPayloadBytes(Direction direction, int64_t bytes);
  void AddSlices(int64_t slices);
  void AddFlops(double flops);
  void AddProjections(int64_t scored, int64_t failed);

  // A request has left the queues for good.
  void ObserveQueueWait(Priority priority, double seconds);
  QueueWaits Waits(Priority priority) const;

  // Calls that have begun and not ended, of all methods.
  int64_t in_flight() const;
  std::vector<MethodStatistics> Statistics() const;
  // The registry that /metrics serves; gauges read from other parts may be added to it.
  prometheus::Registry& registry();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_METRICS_H_
