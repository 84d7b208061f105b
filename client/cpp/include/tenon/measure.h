// Measurements: a data set, measures, and a stream of projections that are scored one by one.

#ifndef TENON_CLIENT_CPP_INCLUDE_TENON_MEASURE_H_
#define TENON_CLIENT_CPP_INCLUDE_TENON_MEASURE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenon/shared_memory.h"
#include "tenon/tensor_view.h"
#include "tenon/v1/measurement.pb.h"

namespace tenon::client {

// One projection to score: n rows, any number of columns, any real element type.
struct ProjectionInput {
  // Comes back with the scores; at most 1024 bytes, the rest is cut off.
  std::string name;
  TensorView tensor;
};

// No labels, whole numbers, numbers, or texts; one per row. Not owned.
using LabelsView = std::variant<std::monostate, std::span<const int64_t>, std::span<const double>,
                                std::span<const std::string>>;

// A measurement. The bytes of data set and labels must stay until the stream is gone.
struct MeasureRequest {
  // Names the request in logs and reports, the same at every try; empty: one is drawn.
  std::string request_id;
  // See ParseMeasureSpec in tenon/measure_spec.h.
  std::vector<v1::MeasureSpec> specs;

  // The data set: `dataset_handle`, or `dataset` with n rows and d columns.
  std::string dataset_handle;
  TensorView dataset;
  // Keep it on the server; the summary tells its handle.
  bool keep_dataset = false;
  LabelsView labels;

  // Provider, budgets, what to do with errors and so on; every field is explained in
  // proto/tenon/v1/measurement.proto.
  v1::MeasureExecution execution;
  // With `checksums` the uploaded chunks carry one too.
  v1::MeasureResultOptions result;
  // Return the scores of every row, too.
  bool return_local = false;

  // Where projections come from: exactly one of the next three. The generator puts the next one
  // into `projection` and returns true, or returns false when there is none. It runs on a thread of
  // the stream, lazily: it is never more than the granted in_flight + 2 projections ahead of the
  // answers that Next() has returned (3 before the server has accepted). The bytes must stay until
  // its next call, or until the stream is gone. An error stops the stream as Stop() does and is
  // returned by Next() when the results before it are out.
  std::function<absl::StatusOr<bool>(ProjectionInput* projection)> next_projection;
  // How many the generator will give, a hint. Absent: unknown.
  std::optional<int64_t> expected_projections;
  // A few small ones, each below 64 KiB, all in one frame: the quickest form of a small call.
  std::vector<ProjectionInput> inline_projections;
  // Files on the server.
  std::optional<v1::ServerFilesSource> server_files;

  // Called by Next(), on its thread. May be absent; needs execution.progress_interval_seconds.
  std::function<void(const v1::MeasureProgress&)> on_progress;

  // Memory shared with a server on the same host; see tenon/shared_memory.h. The data set and
  // projections of 64 KiB and more are named instead of sent: where they lie, if that is in the
  // pool, else where a copy fits. A projection that lies in the pool must stay as it is until its
  // answer has come. Null: everything is sent.
  std::shared_ptr<SharedPool> pool;
};

// Scores of every row, float64.
struct LocalScores {
  // Position of the spec in the request.
  int spec = 0;
  // Output key, for example "local_trustworthiness".
  std::string key;
  Tensor tensor;
};

// The answer for one projection.
struct MeasureItem {
  int64_t index = 0;
  std::string name;
  // OK, or why there are no scores; reason and fields as in an error of a call.
  absl::Status status;
  // Per spec, in order of the request; local arrays stand in `local` instead.
  v1::MeasureScores scores;
  std::vector<LocalScores> local;
};

// What Client::MeasureAll gives.
struct MeasureOutcome {
  // In order; empty when on_item took them. Items may have errors of their own.
  std::vector<MeasureItem> items;
  v1::MeasureSummary summary;
};

// A running measurement. Next() from one thread at a time; Stop() and Cancel() from any thread.
class MeasureStream {
 public:
  MeasureStream(MeasureStream&&) noexcept;
  MeasureStream& operator=(MeasureStream&&) noexcept;
  // Cancels the call if it still runs.
  ~MeasureStream();

  // Waits for the next projection's answer. nullopt: all answers are out, summary() is there. An
  // error ends the stream and comes again at every further call.
  absl::StatusOr<std::optional<MeasureItem>> Next();

  // No further projections: what the generator has given is answered, then the stream ends with a
  // summary.
  void Stop();
  // Ends the call; Next() gives CANCELLED.
  void Cancel();

  // Null before the server has accepted: there at the first answer of Next().
  const v1::MeasureAccepted* accepted() const;
  // Null before the end.
  const v1::MeasureSummary* summary() const;

 private:
  friend class Client;
  class Impl;
  explicit MeasureStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_INCLUDE_TENON_MEASURE_H_
