// The client's half of a Measure stream: header, data set, labels, then projections as they come.

#ifndef TENON_CLIENT_CPP_MEASURE_UPLOAD_H_
#define TENON_CLIENT_CPP_MEASURE_UPLOAD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/shared_placement.h"
#include "tenon/measure.h"

namespace tenon::client {

// Says what has to be sent, frame by frame. Knows nothing of the transport.
class MeasureUpload {
 public:
  // Takes one frame away; false: the call has ended, or nothing further is wanted.
  using Send = std::function<bool(const v1::MeasureRequest&)>;

  // Checks what can be checked here. `request` and `placement` must outlive this. Without placement
  // nothing is placed in shared memory.
  static absl::StatusOr<MeasureUpload> Create(const MeasureRequest& request,
                                              SharedPlacement* placement = nullptr);

  const v1::MeasureRequest& header() const { return header_; }
  // Names the request where its maker has not.
  void SetRequestId(const std::string& id);
  // Data set and labels, as far as they are not in the header. False: sending has ended.
  bool SendDataset(int32_t chunk_bytes, const Send& send) const;
  // Waits until the projection of this index may be made; false: nothing further is wanted.
  using AwaitTurn = std::function<bool(int64_t index)>;
  // Projections from the generator until its end, or until sending ends. An error is one of the
  // generator, or of what it gave; the frames before it are complete.
  absl::Status SendProjections(int32_t chunk_bytes, const AwaitTurn& await_turn,
                               const Send& send) const;

 private:
  MeasureUpload(const MeasureRequest& request, SharedPlacement* placement)
      : request_(&request), placement_(placement) {}
  absl::Status BuildHeader();
  absl::Status BuildSource();
  void BuildLabels();
  std::optional<v1::SharedRegion> Place(int64_t set, std::span<const std::byte> bytes) const;
  bool SendLabels(const Send& send) const;

  const MeasureRequest* request_;
  SharedPlacement* placement_;  // null: everything is sent
  v1::MeasureRequest header_;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_MEASURE_UPLOAD_H_
