// Scores many projections of one data set by a fixed list of measures.
//
// Life: Plan checks and plans (no request-sized memory) -> the caller admits planned_peak_bytes()
// -> SetLabels, if a measure needs them -> BindOriginal builds the original side once -> Measure
// per projection, up to in_flight() at once from different threads. Requirements of all
// specifications are merged: equal resources are built once, those with a k for the largest.

#ifndef TENON_BACKENDS_MEASUREMENT_SESSION_H_
#define TENON_BACKENDS_MEASUREMENT_SESSION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "backends/core/tensor.h"
#include "backends/measurement/labels.h"
#include "backends/measurement/original_side.h"
#include "backends/measurement/registry.h"
#include "backends/measurement/scores.h"
#include "backends/plugin/provider.h"

namespace tenon::measurement {

// How pairs are put in order for the measures that need it.
enum class PairOrdering {
  kAuto,      // in memory where the budget allows, else in files where there is a temporary budget
  kMemory,    // in memory only
  kExternal,  // in files
};

struct SessionOptions {
  int64_t rows = 0;                  // n
  int64_t original_columns = 0;      // d
  int64_t max_embedded_columns = 2;  // for planning only: wider ones are scored if they fit
  DType compute_dtype = DType::kFloat64;
  bool geodesic = false;
  bool return_local = false;
  int64_t memory_budget_bytes = 0;  // 0: none
  int in_flight = 0;                // wanted; 0: the session's choice
  int batch_size = 0;               // largest wanted; 0: as many as are in flight
  int threads = 0;                  // 0: all the process may use
  PairOrdering pair_ordering = PairOrdering::kAuto;
  int64_t temporary_budget_bytes = 0;    // of files; 0: none are made
  std::string temporary_directory = {};  // an existing folder; needed with a temporary budget
  // How many projections the caller expects, 0: unknown. With many of them tables of the original
  // space pay that one would not build.
  int64_t expected_projections = 0;
  // A measure that fails on a valid projection leaves its error in the place of its scores, and the
  // others are scored. False: it fails the projection.
  bool skip_failed_measures = false;
  // What other sessions built from this data set, and where this one leaves what it builds; null:
  // nothing is shared. Must be of the data set that will be bound.
  std::shared_ptr<OriginalSide> warm = {};
  // Stored n x n distances that specifications name by handle ("precomputed_handle").
  std::map<std::string, std::shared_ptr<const Tensor>> precomputed = {};
};

// What scoring one projection cost, or building the original side.
struct RunInfo {
  double resource_seconds = 0;
  double metric_seconds = 0;
  double total_seconds = 0;
  struct Resource {
    std::string kind, space, provider, fallback_reason;
    std::string algorithm;  // how it is built: "selection", "counting", "lookup", "buckets", ...
    int64_t k = 0, bytes = 0, block_rows = 0, block_count = 0;
    int64_t working_bytes = 0;  // of the pass that built it, with all that it built
    double parameter = 0;       // sigma of densities; else 0
    double build_seconds = 0;
    bool reused = false;
    bool leased = false;         // its bytes have a lease of SessionOptions::warm
    std::vector<int> consumers;  // positions of specifications, ascending
    // Orders of pairs.
    std::string pair_strategy;  // "memory", "external"; empty for other kinds
    int64_t temporary_bytes = 0, sorted_runs = 0, isotonic_blocks = 0;
  };
  int64_t temporary_peak_bytes = 0;  // of files
  int batch_size = 1;                // projections that were built together with this one
  std::vector<Resource> resources;
  std::vector<double> spec_seconds;  // one per specification
};

struct ProjectionScores {
  std::vector<MeasureScores> specs;  // in the order of the specifications
  RunInfo info;
};

class Session {
 public:
  // Errors: those of CheckSpecs; TOO_FEW_ROWS; UNSUPPORTED_BY_PROVIDER; EXCEEDS_MEMORY_BUDGET and
  // EXCEEDS_TEMPORARY_BUDGET naming the budget and what is needed. Seeds that were not given are
  // drawn here; specs() has them. `fallback` builds what `provider` does not; null: that is an
  // error.
  static absl::StatusOr<std::unique_ptr<Session>> Plan(
      const std::vector<RawSpec>& specs, const SessionOptions& options,
      std::shared_ptr<plugin::Provider> provider,
      std::shared_ptr<plugin::Provider> fallback = nullptr);
  // Plan and SetLabels in one.
  static absl::StatusOr<std::unique_ptr<Session>> Prepare(
      const std::vector<RawSpec>& specs, const SessionOptions& options, const Labels& labels,
      std::shared_ptr<plugin::Provider> provider,
      std::shared_ptr<plugin::Provider> fallback = nullptr);
  ~Session();

  // Before BindOriginal; looked at only when a measure needs labels. Sorts them. LABELS_REQUIRED,
  // SHAPE_MISMATCH (their count), NOT_FINITE.
  absl::Status SetLabels(const Labels& labels);

  const std::vector<MeasureSpec>& specs() const;
  // With in_flight() projections of max_embedded_columns. Wider ones take more, in all never more
  // than the budget.
  int64_t planned_peak_bytes() const;
  // What one projection of this width takes at most while it is scored. EXCEEDS_MEMORY_BUDGET as
  // Measure.
  absl::StatusOr<int64_t> projection_bytes(int64_t columns) const;
  int64_t original_bytes() const;  // kept for the original side
  // Scratch while the original side is built, where that is more than what the projections in
  // flight take: planned_peak_bytes() then holds it in their place. Else 0.
  int64_t original_working_bytes() const;
  int64_t warm_bytes() const;               // of what was there already, beside original_bytes()
  int64_t planned_temporary_bytes() const;  // files of all projections in flight
  int in_flight() const;                    // projections at once
  // What limited it: "requested", "memory", "threads", "temporary".
  std::string in_flight_limit() const;
  // Planned resources of the original space (those there already marked as reused) and of each
  // projection; build seconds are 0.
  std::vector<RunInfo::Resource> planned_original() const;
  std::vector<RunInfo::Resource> planned_projection() const;
  // Projections that MeasureBatch gains from taking together; 1: none.
  int batch_size() const;
  // What limited it: "requested", "no_batchable_resource", "in_flight".
  std::string batch_limit() const;
  const RunInfo& original_info() const;  // after BindOriginal

  // `original` is n x d of any real type and is copied (widened to the compute type); non-finite
  // values are NOT_FINITE naming the first row and column. Builds the original side. Once.
  absl::Status BindOriginal(const Tensor& original, const CancelToken* cancel);

  // Scores one projection: n rows, any width >= 1, any real type. Thread-safe. Errors:
  // SHAPE_MISMATCH, NOT_FINITE (first row and column), UNDEFINED_SCORE (which measure, why; field
  // "dataset" if that space is at fault), EXCEEDS_MEMORY_BUDGET if it is wider than planned and its
  // share of memory_budget_bytes, one of in_flight(), does not hold it (metadata
  // memory_budget_bytes, smallest_budget_bytes); other fields are "projection". A failed projection
  // leaves the session usable.
  absl::StatusOr<ProjectionScores> Measure(const Tensor& projection,
                                           const CancelToken* cancel) const;

  // Scores several projections of one width; the provider builds what it can of them together.
  // Each has its own result, as by Measure; one that fails leaves the others alone. Thread-safe.
  std::vector<absl::StatusOr<ProjectionScores>> MeasureBatch(
      const std::vector<const Tensor*>& projections, const CancelToken* cancel) const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_SESSION_H_
