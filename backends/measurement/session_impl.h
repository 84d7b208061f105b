// The parts of a session, for its own files only.

#ifndef TENON_BACKENDS_MEASUREMENT_SESSION_IMPL_H_
#define TENON_BACKENDS_MEASUREMENT_SESSION_IMPL_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backends/core/cancel.h"
#include "backends/core/parallel.h"
#include "backends/measurement/metric_input.h"
#include "backends/measurement/resource_set.h"
#include "backends/measurement/session.h"
#include "backends/measurement/session_plan.h"

namespace tenon::measurement {

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline const int32_t* FlagOf(const CancelToken* cancel) {
  static_assert(sizeof(std::atomic<int32_t>) == sizeof(int32_t));
  return cancel == nullptr ? nullptr : reinterpret_cast<const int32_t*>(cancel->flag());
}

// A score that is not defined, in contrast to work that could not be done.
inline bool IsInvalidScore(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument;
}

// A projection on its way.
struct OneProjection {
  size_t position = 0;  // in its batch
  std::chrono::steady_clock::time_point start;
  Tensor points;  // in the compute type
  bool is_single = false;
  int64_t working_bytes = 0;
  ResourceSet set;
};

struct Session::Impl {
  std::vector<MeasureSpec> specs;
  SessionOptions options;
  std::vector<int32_t> classes;
  SessionProviders providers;
  SessionPlan plan;
  Consumers consumers;

  bool bound = false;
  Tensor original;
  bool original_is_single = false;
  std::map<std::string, Tensor> precomputed;  // by handle, in the compute type
  ResourceSet original_resources;
  std::vector<absl::Status> original_errors;  // per specification
  RunInfo original_info;
  // What the first projection builds for all: others wait for it.
  mutable std::mutex late_mutex;
  mutable bool late_built = false;
  mutable ResourceSet late_resources;

  bool needs_labels() const;
  absl::Status BindOriginal(const Tensor& matrix, const CancelToken* cancel);
  absl::Status BindPoints(const Tensor& matrix);
  absl::Status CheckOriginal(const CancelToken* cancel);
  absl::StatusOr<ProjectionScores> Measure(const Tensor& matrix, const CancelToken* cancel) const;
  std::vector<absl::StatusOr<ProjectionScores>> MeasureBatch(
      const std::vector<const Tensor*>& matrices, const CancelToken* cancel) const;
  absl::StatusOr<OneProjection> Prepare(const Tensor& matrix) const;
  absl::Status BuildProjection(OneProjection& one, const CancelToken* cancel, RunInfo& info) const;
  // Scores all specifications from what was built. `info` is of the building.
  absl::StatusOr<ProjectionScores> Evaluate(const OneProjection& one, RunInfo info,
                                            const CancelToken* cancel) const;
  absl::StatusOr<ProjectionScores> BuildAndEvaluate(OneProjection& one,
                                                    const CancelToken* cancel) const;
  bool IsFirst() const;
  void BuildTogether(std::vector<OneProjection>& ones, const CancelToken* cancel,
                     std::vector<absl::StatusOr<ProjectionScores>>& results) const;

  // Builds the outputs, each by its provider, and reports them. `one` may be null.
  absl::Status Build(const ResourceSet& outputs, const OneProjection* one, int64_t working_bytes,
                     const CancelToken* cancel, RunInfo& info) const;
  // What projections may use of the original space.
  std::vector<tenon_resource> Available() const;
  tenon_resource_request Request(const std::vector<tenon_resource>& outputs,
                                 const std::vector<tenon_resource>& available,
                                 const OneProjection* one, int64_t working_bytes,
                                 const CancelToken* cancel) const;
  void ReportBuilt(const std::vector<tenon_resource>& part,
                   const tenon_resource_statistics& statistics, double seconds,
                   RunInfo& info) const;
  void KeepForOthers(RunInfo& info, ResourceSet& set) const;
  RunInfo::Resource Describe(const ResourceKey& key) const;
  void ReportReused(const ResourceSet& set, RunInfo& info) const;
  absl::Status BindPrecomputed();
  // Of the original side alone; the threads are the call's.
  MetricInput Input(const Parallel& parallel) const;
  tenon_matrix PrecomputedOf(const MeasureSpec& spec) const;
  absl::StatusOr<MeasureScores> EvaluateSpec(size_t s, MetricInput& input) const;
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_SESSION_IMPL_H_
