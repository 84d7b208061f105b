// Whole contractions on the cpu provider: prepared, run and described, for tests.

#ifndef TENON_TESTS_BACKENDS_NETWORKS_JOB_RUN_H_
#define TENON_TESTS_BACKENDS_NETWORKS_JOB_RUN_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/tensor.h"
#include "backends/schedule/contraction_job.h"

namespace tenon::testing {

// More workers and threads than any test machine needs to have cores for.
inline constexpr int kMostThreads = 8;

// The warm cpu provider, which says that kMostThreads workers make sense at once. One for the whole
// process; with the first call oneTBB may start as many threads.
std::shared_ptr<plugin::Provider> CpuProvider();

// Whether this build checks memory or undefined behaviour, which makes kernels 10 to 50 times as
// slow.
bool IsSanitized();

// A prepared job on CpuProvider(); it outlives what it is made from, but not `operands`.
class JobRun {
 public:
  static absl::StatusOr<std::unique_ptr<JobRun>> Prepare(
      const schedule::ContractionRequest& request);

  // The full result of all operands in the job's dtype; once, or again with other varying ones.
  absl::StatusOr<Tensor> Run(const std::vector<Tensor>& operands);

  schedule::ContractionJob& job() { return *job_; }

  // Roundings between an operand and the result: the sum over all steps of the lengths of their
  // sums and one for the product, and the slices. An element's error is at most
  // (depth + operands) * epsilon * the sum of the absolute values of all products, to first order;
  // complex products round up to four times as often.
  double Depth() const;

 private:
  JobRun() = default;

  CancelToken cancel_;
  std::vector<bool> varying_;
  bool is_started_ = false;
  std::unique_ptr<schedule::ContractionJob> job_;
};

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_NETWORKS_JOB_RUN_H_
