// A contraction that is planned, lowered and compiled: all that does not depend on values.

#ifndef TENON_BACKENDS_SCHEDULE_PREPARED_CONTRACTION_H_
#define TENON_BACKENDS_SCHEDULE_PREPARED_CONTRACTION_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/contraction/program.h"
#include "backends/core/cancel.h"
#include "backends/plugin/provider.h"
#include "backends/schedule/contraction_job.h"

namespace tenon::schedule {

// Immutable once made, so that jobs can share it across threads.
struct PreparedContraction {
  struct Lane {  // one provider's share
    std::shared_ptr<plugin::Provider> provider;
    std::unique_ptr<plugin::Compiled> compiled;
    int workers = 1;
    int threads = 1;  // of all its workers, at least one for each
  };

  // Errors as ContractionJob::Prepare. `threads` are the request's, or the default.
  static absl::StatusOr<std::shared_ptr<const PreparedContraction>> Make(
      const ContractionRequest& request,
      const std::vector<std::shared_ptr<plugin::Provider>>& providers, int threads,
      const CancelToken* cancel);

  bool WritesInPlace() const {
    return program->descriptor().n_blocks == 1 && last_group - first_group == 1;
  }
  int Workers() const {
    int workers = 0;
    for (const Lane& lane : lanes) workers += lane.workers;
    return workers;
  }
  // Groups that may be claimed and not yet combined.
  int Window() const {
    return static_cast<int>(std::min<int64_t>(last_group - first_group, int64_t{2} * Workers()));
  }
  int64_t PartialSumBytes() const;
  int64_t ResultBytes() const;  // of a run
  int64_t StackBytes() const;
  // Of all groups of the program, the share that is to be run.
  double GroupShare() const {
    return static_cast<double>(last_group - first_group) /
           static_cast<double>(std::max<int64_t>(program->n_groups(), 1));
  }
  struct Group {
    int64_t block = 0, first_slice = 0, last_slice = 0;
  };
  Group GroupAt(int64_t group) const;
  int64_t SlicesInRange() const;
  // Of the groups in the range that are below `group`, which may be 0 for none.
  int64_t SlicesBelow(int64_t group) const;
  // Of one run; negative when the first provider has no model.
  double PredictRunSeconds() const;

  std::vector<bool> varying;
  bool normalize = false;
  contraction::Expression expression;  // of one set
  int64_t sets = 1;                    // that one run computes
  contraction::Path path;
  contraction::PathCost cost, unsliced_cost;
  std::vector<int> sliced;
  DType dtype = DType::kFloat64;
  int threads = 1;
  int64_t first_group = 0, last_group = 0;
  int64_t unconstrained_workers = 1;
  contraction::MemoryPlan plan;
  double planning_seconds = 0, compile_seconds = 0;  // as ContractionReport
  double predicted_run_seconds = -1;                 // PredictRunSeconds()
  // Compiled programs go before the program they point to.
  std::shared_ptr<const contraction::Program> program;
  std::vector<Lane> lanes;
};

}  // namespace tenon::schedule

#endif  // TENON_BACKENDS_SCHEDULE_PREPARED_CONTRACTION_H_
