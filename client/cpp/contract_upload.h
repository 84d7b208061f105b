// The client's half of a Contract stream: the header, then the operands of every set.

#ifndef TENON_CLIENT_CPP_CONTRACT_UPLOAD_H_
#define TENON_CLIENT_CPP_CONTRACT_UPLOAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/shared_placement.h"
#include "tenon/contract.h"

namespace tenon::client {

// Says what has to be sent, frame by frame. Knows nothing of the transport.
class ContractUpload {
 public:
  // Takes one frame away; false: the call has ended, stop.
  using Send = std::function<bool(const v1::ContractRequest&)>;

  // `request` and `placement` must outlive this. Without placement nothing is placed in shared
  // memory. Errors as BuildContractHeader.
  static absl::StatusOr<ContractUpload> Create(const ContractRequest& request,
                                               SharedPlacement* placement = nullptr);

  // The first frame, with everything inline that may be.
  const v1::ContractRequest& header() const { return header_; }
  // Whether the header says it all and nothing follows.
  bool header_is_all() const { return deferred_.empty() && varying_.empty(); }
  // Names the request where its maker has not.
  void SetRequestId(const std::string& id) { header_.mutable_header()->set_request_id(id); }
  // Whether next_set has been called: its sets do not come again.
  bool has_asked_for_sets() const { return has_asked_for_sets_; }
  // Sends what follows the header, in chunks of `chunk_bytes`. An error is one of next_set, or of
  // what it gave; frames that could not be sent are no error.
  absl::Status SendRest(int32_t chunk_bytes, const Send& send);

 private:
  ContractUpload(const ContractRequest& request, SharedPlacement* placement)
      : request_(&request), placement_(placement) {}
  void PlaceOperands();
  // The parts of one set: views and the positions of their operands.
  struct Part {
    int operand;
    const TensorView* view;
    std::optional<v1::SharedRegion> region = std::nullopt;  // instead of sending it
  };
  bool SendParts(int64_t set, const std::vector<Part>& parts, int32_t chunk_bytes,
                 const Send& send);
  bool SendSmall(int64_t set, const std::vector<Part>& parts, const Send& send);
  bool SendRegions(int64_t set, const std::vector<Part>& parts, const Send& send);
  absl::Status CheckSet(int64_t set, const std::vector<TensorView>& views) const;
  absl::Status SendSets(int32_t chunk_bytes, const Send& send);

  const ContractRequest* request_;
  SharedPlacement* placement_;  // null: everything is sent
  v1::ContractRequest header_;
  std::vector<int> deferred_;  // not varying, not inline, not empty
  std::vector<int> varying_;
  bool has_asked_for_sets_ = false;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_CONTRACT_UPLOAD_H_
