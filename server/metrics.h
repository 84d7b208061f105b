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
#include "backends/core/dtype.h"
#include "backends/core/error.h"
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
enum class Phase { kQueue, kReceive, kPrepare, kSetup, kDispatch, kExecute, kSend, kTotal, kCount };
enum class Direction { kReceived, kSent };
// How a run of a slice group ended on a provider. kRetried: it failed there and was given to
// another provider.
enum class SliceOutcome { kOk, kRetried, kFailed, kCancelled, kCount };
enum class FaultKind { kOutOfMemory, kSticky, kTimeout, kOther, kCount };

// "tenon.v1.ContractionService/Contract"; a method that stands for a whole service has the
// service's name only. The label `method`, and the name in statistics and logs.
std::string_view MethodName(Method method);
// The field of tenon.v1.Timing without "_seconds": the label `phase`.
std::string_view PhaseName(Phase phase);
// What an error that a provider returned is counted as; nothing for one that the request is to
// blame for.
std::optional<FaultKind> FaultKindOf(const absl::Status& error);
// How a run that returned `status` is counted when no other provider takes it over.
SliceOutcome SliceOutcomeOf(const absl::Status& status);

// One method's calls and the seconds of each phase, since start.
struct MethodStatistics {
  std::string method;
  int64_t succeeded = 0, failed = 0, in_flight = 0;
  int64_t received_bytes = 0, sent_bytes = 0;             // payload
  int64_t items = 0;                                      // operand sets or projections answered
  std::vector<std::pair<std::string, int64_t>> failures;  // by reason, those that occurred
  struct PhaseSeconds {
    std::string phase;
    int64_t count = 0;
    double seconds = 0;
    double max_seconds = 0;
  };
  std::vector<PhaseSeconds> phases;  // those that occurred
};

// What a provider did for one call.
struct ProviderWork {
  double busy_seconds = 0;        // of execution
  double real_flops = 0;          // floating-point operations of contractions
  DType dtype = DType::kFloat64;  // of them; a contraction type
  int64_t to_device_bytes = 0, from_device_bytes = 0;
  int64_t resources_built = 0, resources_reused = 0;
};

// One provider's work since start.
struct ProviderStatistics {
  std::string provider;
  int64_t groups = 0;         // of slices, done
  int64_t failed_groups = 0;  // those retried elsewhere included
  int64_t resources_built = 0, resources_reused = 0;
  double multiply_adds = 0;  // of elements
  double busy_seconds = 0;
  int64_t to_device_bytes = 0, from_device_bytes = 0;
  int64_t faults = 0;
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

// Thread-safe; recording costs an atomic or two, what concerns a provider a short lock besides.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Counts a call as in flight until it ends.
  void CallBegan(Method method);
  // The code and the reason (or OK) become labels.
  void CallEnded(Method method, const absl::Status& status, double total_seconds);
  // Once per call and phase. Which phases a method has is fixed (see metrics.cc); others are
  // dropped.
  void Observe(Method method, Phase phase, double seconds);
  void AddPayloadBytes(Method method, Direction direction, int64_t bytes);
  // Operand sets of Contract; projections are counted by AddProjections.
  void AddItems(Method method, int64_t items);
  void AddProjections(int64_t scored, int64_t failed);
  // From the moment when work was told to stop to that when its worker was idle.
  void ObserveCancellation(double seconds);

  // Makes the series of a provider. Names are those of the configuration, never a request's. The
  // functions below do it for a name that is new.
  void DeclareProvider(std::string_view provider);
  void AddWork(std::string_view provider, const ProviderWork& work);
  // One run of a slice group. Seconds are those of groups that are done.
  void AddGroup(std::string_view provider, SliceOutcome outcome, int64_t slices, double seconds);
  void AddFault(std::string_view provider, FaultKind kind);

  // A request has left the queues for good.
  void ObserveQueueWait(Priority priority, double seconds);
  QueueWaits Waits(Priority priority) const;

  // Calls that have begun and not ended, of all methods.
  int64_t in_flight() const;
  std::vector<MethodStatistics> Statistics() const;
  // By name.
  std::vector<ProviderStatistics> Providers() const;
  // The registry that /metrics serves; gauges read from other parts may be added to it.
  prometheus::Registry& registry();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_METRICS_H_
