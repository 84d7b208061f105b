// How a session scores projections.

#include <algorithm>
#include <utility>

#include "backends/core/error.h"
#include "backends/measurement/metrics.h"
#include "backends/measurement/points.h"
#include "backends/measurement/session_impl.h"
#include "backends/measurement/session_memory.h"

namespace tenon::measurement {

MetricInput Session::Impl::Input(const Parallel& parallel) const {
  MetricInput input;
  input.n = options.rows;
  input.return_local = options.return_local;
  input.resources = original_resources.resources;
  input.classes = &classes;
  if (!classes.empty()) input.n_classes = 1 + *std::max_element(classes.begin(), classes.end());
  input.original = MatrixOf(options, true, options.original_columns);
  input.original.data = original.buffer.data();
  input.original_is_single = original_is_single;
  input.parallel = &parallel;
  return input;
}

// The distances that `spec` names; `data` is null without any.
tenon_matrix Session::Impl::PrecomputedOf(const MeasureSpec& spec) const {
  tenon_matrix matrix = {};
  if (spec.Has("precomputed_handle") && !spec.Text("precomputed_handle").empty()) {
    matrix = MatrixOf(options, false, options.rows);
    matrix.data = precomputed.at(spec.Text("precomputed_handle")).buffer.data();
  }
  return matrix;
}

absl::StatusOr<MeasureScores> Session::Impl::EvaluateSpec(size_t s, MetricInput& input) const {
  const MeasureSpec& spec = specs[s];
  TENON_RETURN_IF_ERROR(original_errors[s]);
  input.precomputed = PrecomputedOf(spec);
  TENON_ASSIGN_OR_RETURN(MeasureScores scores, measurement::Evaluate(spec, input));
  const std::string seed = SeedName(spec);
  if (!seed.empty()) scores.seed = static_cast<uint64_t>(spec.Integer(seed));
  return scores;
}

absl::StatusOr<OneProjection> Session::Impl::Prepare(const Tensor& matrix) const {
  OneProjection one;
  one.start = std::chrono::steady_clock::now();
  if (!bound) return Error(Reason::kInternal, "the session has no data set yet");
  TENON_RETURN_IF_ERROR(CheckShape(matrix.spec, options.rows, 0, kProjection));
  TENON_ASSIGN_OR_RETURN(one.working_bytes,
                         ProjectionWorking(matrix.spec.shape[1], specs, options, plan, providers));
  TENON_ASSIGN_OR_RETURN(one.points, Widen(matrix, options.compute_dtype, kProjection));
  one.is_single = matrix.spec.dtype == DType::kFloat32;
  TENON_ASSIGN_OR_RETURN(one.set, ResourceSet::Allocate(plan.projection_keys, options.rows));
  return one;
}

absl::Status Session::Impl::BuildProjection(OneProjection& one, const CancelToken* cancel,
                                            RunInfo& info) const {
  std::unique_lock lock(late_mutex, std::defer_lock);
  ResourceSet late;
  if (!plan.late_keys.empty()) lock.lock();
  const bool first = !late_built && !plan.late_keys.empty();
  if (first) {
    TENON_ASSIGN_OR_RETURN(late, ResourceSet::Allocate(plan.late_keys, options.rows));
  } else if (lock.owns_lock()) {
    lock.unlock();
  }
  ReportReused(original_resources, info);
  if (!first) ReportReused(late_resources, info);
  ResourceSet outputs;
  outputs.Add(one.set);
  outputs.Add(late);
  const auto start = std::chrono::steady_clock::now();
  TENON_RETURN_IF_ERROR(Build(outputs, &one, one.working_bytes, cancel, info));
  info.resource_seconds = SecondsSince(start);
  if (first) {
    // What was built last, as the outputs end with it.
    KeepForOthers(info, late);
    late_resources = std::move(late);
    late_built = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<ProjectionScores> Session::Impl::Evaluate(const OneProjection& one, RunInfo info,
                                                         const CancelToken* cancel) const {
  ProjectionScores result;
  result.info = std::move(info);
  const Parallel parallel(plan.threads, FlagOf(cancel));
  MetricInput input = Input(parallel);
  input.embedded = MatrixOf(options, false, one.points.spec.shape[1]);
  input.embedded.data = one.points.buffer.data();
  input.embedded_is_single = one.is_single;
  input.resources = Available();
  input.resources.insert(input.resources.end(), one.set.resources.begin(), one.set.resources.end());
  for (size_t s = 0; s < specs.size(); ++s) {
    const auto start = std::chrono::steady_clock::now();
    auto scores = EvaluateSpec(s, input);
    // The token knows why the work stopped.
    if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
    if (scores.ok()) {
      result.specs.push_back(*std::move(scores));
    } else if (options.skip_failed_measures && IsInvalidScore(scores.status())) {
      result.specs.emplace_back();
      result.specs.back().error = scores.status();
    } else {
      return scores.status();
    }
    result.info.spec_seconds.push_back(SecondsSince(start));
    result.info.metric_seconds += result.info.spec_seconds.back();
  }
  result.info.total_seconds = SecondsSince(one.start);
  return result;
}

absl::StatusOr<ProjectionScores> Session::Impl::Measure(const Tensor& matrix,
                                                        const CancelToken* cancel) const {
  TENON_ASSIGN_OR_RETURN(OneProjection one, Prepare(matrix));
  return BuildAndEvaluate(one, cancel);
}

absl::StatusOr<ProjectionScores> Session::Impl::BuildAndEvaluate(OneProjection& one,
                                                                 const CancelToken* cancel) const {
  RunInfo info;
  TENON_RETURN_IF_ERROR(BuildProjection(one, cancel, info));
  return Evaluate(one, std::move(info), cancel);
}

bool Session::Impl::IsFirst() const {
  std::lock_guard lock(late_mutex);
  return !plan.late_keys.empty() && !late_built;
}

void Session::Impl::BuildTogether(std::vector<OneProjection>& ones, const CancelToken* cancel,
                                  std::vector<absl::StatusOr<ProjectionScores>>& results) const {
  const std::vector<tenon_resource> available = Available();
  std::vector<tenon_resource_request> requests;
  requests.reserve(ones.size());
  for (const OneProjection& one : ones) {
    requests.push_back(Request(one.set.resources, available, &one, one.working_bytes, cancel));
  }
  const auto start = std::chrono::steady_clock::now();
  int32_t failed = -1;
  const auto statistics = providers.asked->BuildBatch(requests, &failed);
  for (size_t o = 0; o < ones.size(); ++o) {
    RunInfo info;
    absl::Status status = statistics.status();
    // One that is at fault must not cost the others their scores.
    if (!status.ok() && failed >= 0 && failed != static_cast<int32_t>(o)) {
      status = BuildProjection(ones[o], cancel, info);
    } else if (status.ok()) {
      info.batch_size = static_cast<int>(ones.size());
      info.resource_seconds = SecondsSince(start);
      ReportReused(original_resources, info);
      ReportReused(late_resources, info);
      ReportBuilt(ones[o].set.resources, (*statistics)[o],
                  info.resource_seconds / static_cast<double>(ones.size()), info);
    }
    if (cancel != nullptr) status.Update(cancel->Check());
    results[ones[o].position] =
        status.ok() ? Evaluate(ones[o], std::move(info), cancel) : std::move(status);
  }
}

std::vector<absl::StatusOr<ProjectionScores>> Session::Impl::MeasureBatch(
    const std::vector<const Tensor*>& matrices, const CancelToken* cancel) const {
  std::vector<absl::StatusOr<ProjectionScores>> results(matrices.size());
  std::vector<OneProjection> ones;
  for (size_t m = 0; m < matrices.size(); ++m) {
    auto one = Prepare(*matrices[m]);
    // What the first projection builds, all others read.
    if (one.ok() && IsFirst()) {
      results[m] = BuildAndEvaluate(*one, cancel);
    } else if (one.ok()) {
      one->position = m;
      ones.push_back(*std::move(one));
    } else {
      results[m] = one.status();
    }
  }
  const bool together = ones.size() > 1 && plan.batch > 1 &&
                        std::all_of(ones.begin(), ones.end(), [&](const OneProjection& one) {
                          return one.points.spec.shape == ones[0].points.spec.shape;
                        });
  if (together) {
    BuildTogether(ones, cancel, results);
    return results;
  }
  for (OneProjection& one : ones) results[one.position] = BuildAndEvaluate(one, cancel);
  return results;
}

}  // namespace tenon::measurement
