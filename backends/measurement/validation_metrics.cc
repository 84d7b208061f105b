// Measures of clusters in the projection: validity of the labels, and agreement of the labels with
// a clustering.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/measurement/classes.h"
#include "backends/measurement/dbscan.h"
#include "backends/measurement/external_validation.h"
#include "backends/measurement/internal_validation.h"
#include "backends/measurement/kmeans.h"
#include "backends/measurement/metric.h"

namespace tenon::measurement {
namespace {

// ---- Internal validation ---------------------------------------------------------------------

absl::Status CheckClassesAreClusters(const MeasureSpec& spec, const MetricInput& input) {
  TENON_RETURN_IF_ERROR(CheckTwoClasses(spec, input));
  if (input.n_classes < input.n) return absl::OkStatus();
  return BadLabels(spec, "every row has a label of its own, at most n - 1 classes are possible");
}

absl::StatusOr<double> ValidityIndex(const MeasureSpec& spec, const MetricInput& input) {
  const ClassPoints points = {input.embedded,
                              spec.Text("arithmetic") == "input" && input.embedded_is_single};
  const ClassMembers members(input);
  const std::string& measure = spec.Text("measure");
  if (measure == "silhouette") return Silhouette(points, members, *input.parallel);
  if (measure == "calinski_harabasz") return CalinskiHarabasz(points, members, *input.parallel);
  return DaviesBouldin(points, members, *input.parallel);
}

absl::StatusOr<MeasureScores> InternalValidation(const MeasureSpec& spec,
                                                 const MetricInput& input) {
  TENON_ASSIGN_OR_RETURN(const double value, ValidityIndex(spec, input));
  if (!std::isfinite(value)) {
    return Undefined(spec, kEmbedded, "means of classes, distances or their squares overflow");
  }
  MeasureScores result;
  result.scores[spec.Text("measure")] = value;
  return result;
}

int64_t InternalBytes(const MeasureSpec&, const MetricShape& shape) {
  return 2 * ClassMembers::Bytes(shape.n) +
         InternalValidationBytes(shape.n, shape.embedded_columns, shape.threads);
}

// ---- Clustering and external validation ------------------------------------------------------

absl::StatusOr<std::vector<int32_t>> KMeansClusters(const MeasureSpec& spec,
                                                    const MetricInput& input) {
  KMeansOptions options;
  options.clusters =
      spec.Has("kmeans.n_clusters") ? spec.Integer("kmeans.n_clusters") : int64_t{input.n_classes};
  options.plus_plus = spec.Text("kmeans.init") == "plus_plus";
  options.n_init = options.plus_plus ? 1 : 10;
  if (spec.Has("kmeans.n_init")) options.n_init = spec.Integer("kmeans.n_init");
  options.max_iterations = spec.Integer("kmeans.max_iter");
  options.tolerance = spec.Real("kmeans.tol");
  options.seed = static_cast<uint64_t>(spec.Integer("kmeans.random.seed"));
  std::vector<double> widened;
  const double* points = static_cast<const double*>(input.embedded.data);
  if (input.embedded.dtype == TENON_DTYPE_FLOAT32) {
    const auto* narrow = static_cast<const float*>(input.embedded.data);
    widened.assign(narrow, narrow + input.n * input.embedded.columns);
    points = widened.data();
  }
  TENON_ASSIGN_OR_RETURN(KMeansResult result,
                         KMeans(points, input.n, input.embedded.columns, options, *input.parallel));
  if (!std::isfinite(result.inertia)) {
    return Undefined(spec, kEmbedded, "squared distances to the centres of k-means overflow");
  }
  return std::move(result.labels);
}

absl::StatusOr<std::vector<int32_t>> DbscanClusters(const MeasureSpec& spec,
                                                    const MetricInput& input) {
  TENON_ASSIGN_OR_RETURN(
      std::vector<int32_t> labels,
      Dbscan(input.embedded, spec.Real("dbscan.eps"), spec.Integer("dbscan.min_samples"),
             *ParseRowMetric(spec.Text("dbscan.metric")), spec.Real("dbscan.minkowski_p"),
             *input.parallel));
  for (int32_t& label : labels) ++label;  // noise is a cluster like others
  return labels;
}

absl::StatusOr<double> AgreementIndex(const std::string& measure, const Contingency& table,
                                      const Parallel& parallel) {
  if (measure == "arand") return AdjustedRand(table);
  if (measure == "ami") return AdjustedMutualInformation(table, parallel);
  if (measure == "nmi") return NormalizedMutualInformation(table);
  return VMeasure(table);
}

absl::StatusOr<MeasureScores> ExternalValidation(const MeasureSpec& spec,
                                                 const MetricInput& input) {
  const std::string &measure = spec.Text("measure"), &clustering = spec.Text("clustering");
  TENON_ASSIGN_OR_RETURN(const std::vector<int32_t> clusters, clustering == "kmeans"
                                                                  ? KMeansClusters(spec, input)
                                                                  : DbscanClusters(spec, input));
  TENON_ASSIGN_OR_RETURN(
      const double value,
      AgreementIndex(measure, Contingency(*input.classes, clusters), *input.parallel));
  MeasureScores result;
  result.scores[absl::StrCat(clustering, "_", measure)] = value;
  return result;
}

int64_t ExternalBytes(const MeasureSpec& spec, const MetricShape& shape) {
  const int64_t n = shape.n, columns = shape.embedded_columns;
  const int64_t labels = n * int64_t{sizeof(int32_t)};
  if (spec.Text("clustering") == "dbscan") {
    return std::max(DbscanBytes(n, columns), labels + Contingency::Bytes(n));
  }
  // Without a number of clusters there may be as many as rows.
  const int64_t clusters = spec.Has("kmeans.n_clusters") ? spec.Integer("kmeans.n_clusters") : n;
  const int64_t widened = n * columns * int64_t{sizeof(double)};
  return labels +
         std::max(widened + KMeansWorkingBytes(n, columns, clusters), Contingency::Bytes(n));
}

constexpr Metric kMetrics[] = {
    {.alias = "ivm",
     .embedded_points = true,
     .evaluate = InternalValidation,
     .check_original = CheckClassesAreClusters,
     .working_bytes = InternalBytes},
    {.alias = "c_evm",
     .embedded_points = true,
     .evaluate = ExternalValidation,
     .check_original = CheckTwoClasses,
     .working_bytes = ExternalBytes},
};

}  // namespace

std::span<const Metric> ValidationMetrics() { return kMetrics; }

}  // namespace tenon::measurement
