// The header of a Measure call, checked and admitted.

#ifndef TENON_SERVER_MEASUREMENT_REQUEST_H_
#define TENON_SERVER_MEASUREMENT_REQUEST_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "backends/core/tensor.h"
#include "backends/measurement/registry.h"
#include "backends/measurement/session.h"
#include "backends/plugin/provider.h"
#include "server/admission.h"
#include "server/content_store.h"
#include "server/measurement_resources.h"
#include "server/scratch_space.h"
#include "server/shared_memory.h"
#include "server/state.h"
#include "server/tensor_receiver.h"
#include "tenon/v1/measurement.pb.h"

namespace tenon::server {

// Everything that a header says, with its memory planned and, once it is admitted, reserved. Not
// thread-safe: filled on the stream's reading thread, then read by the workers.
struct MeasureCall {
  // First, so that they go when everything else has.
  Reservation dataset_reservation;  // the bytes as they come from the wire
  Reservation reservation;          // the rest of the planned peak
  Reservation scratch_reservation;  // planned temporary files

  // To be reserved: the planned peak less what is reserved already.
  int64_t bytes_to_reserve() const { return memory.total_bytes() - warm_bytes; }
  // Takes so many bytes, and the memory of the data set, with its inline bytes.
  absl::Status Admit(Reservation all);

  // Without the bytes of data set, labels and inline projections.
  v1::MeasureHeader header;
  std::string request_id;
  std::string owner;  // the principal that calls; whose data sets it may name

  std::shared_ptr<const SharedPool> pool;       // that all regions lie in; null: none
  TensorSpec dataset_spec;                      // [n, d]
  int64_t dataset_bytes = 0;                    // planned for it as it comes; part of `memory`
  std::shared_ptr<const StoredContent> stored;  // the data set, if it came by handle
  TensorReceiver dataset;                       // the data set otherwise; complete when inline
  bool keep_dataset = false;
  // What is built from the data set, shared with other calls; null: nothing is.
  std::shared_ptr<measurement::OriginalSide> original_side;
  // Of the server, relative to its data root, in order; the source of projections.
  std::vector<std::string> files;

  bool needs_labels = false, labels_follow = false;
  measurement::Labels labels;  // as far as they came; until the session has them

  std::vector<measurement::RawSpec> specs;
  measurement::SessionOptions options;
  std::shared_ptr<plugin::Provider> provider;
  std::shared_ptr<plugin::Provider> fallback;  // null: a resource that is not built is an error
  ScratchFolder scratch;                       // outlives the session that writes there
  std::unique_ptr<measurement::Session> session;

  v1::MeasureMemoryPlan memory;
  int64_t warm_bytes = 0;               // of resources that were there; reserved by who keeps them
  int64_t projection_buffer_bytes = 0;  // planned for the wire form of one projection
  v1::GrantedLimits granted;
  double setup_seconds = 0;  // planning
  MeasurementSeconds::Work work;

  std::mutex beyond_mutex;
  std::map<int64_t, int64_t> beyond;  // by columns

  int64_t rows() const { return dataset_spec.shape[0]; }
  std::optional<double> progress_interval() const;
  bool brief() const { return header.result().report_detail() == v1::REPORT_DETAIL_BRIEF; }
  // Whether projections come from somewhere else than the client.
  bool serves_itself() const { return header.has_inline_projections() || !files.empty(); }
  // How many projections there will be; absent: unknown.
  std::optional<int64_t> projection_count() const;
  ResourceContext resource_context(bool planned) const;
  // Whether the answer may be a single frame (measurement.proto).
  bool may_be_single() const;

  // Gives the session its labels, which are sorted for it: not for gRPC's threads. BAD_LABELS.
  absl::Status UseLabels();
  // Bytes that a projection of so many columns takes beyond the planned ones, besides those that
  // came on the wire. Thread-safe.
  int64_t BytesBeyondPlan(int64_t columns);
};

// Checks all of `header`, whose handles are those of `owner`, and plans. Errors have fields of the
// header; see the contract for their reasons. Does no work of request size besides listing the
// server's files, which the token ends.
absl::StatusOr<std::unique_ptr<MeasureCall>> PlanMeasure(v1::MeasureHeader header,
                                                         ServerState* state,
                                                         const std::string& owner,
                                                         const CancelToken* cancel);

void WriteAccepted(const MeasureCall& call, v1::MeasureAccepted* accepted);

}  // namespace tenon::server

#endif  // TENON_SERVER_MEASUREMENT_REQUEST_H_
