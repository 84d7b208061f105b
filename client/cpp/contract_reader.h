// The server's half of a Contract stream: frames in, results out, everything checked.

#ifndef TENON_CLIENT_CPP_CONTRACT_READER_H_
#define TENON_CLIENT_CPP_CONTRACT_READER_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/shared_placement.h"
#include "client/cpp/wire.h"
#include "tenon/contract.h"

namespace tenon::client {

// Knows nothing of the transport. Errors are BrokenContract, BadChecksum, a result that does not
// fit in memory, or what on_result returned.
class ContractReader {
 public:
  // Without placement no result may come in shared memory; it outlives this.
  explicit ContractReader(const ContractCallbacks& callbacks, SharedPlacement* placement = nullptr)
      : callbacks_(callbacks), placement_(placement) {}

  absl::Status Add(const v1::ContractResponse& frame);
  bool accepted() const { return accepted_; }
  // Whether on_result has got one.
  bool has_handed_out() const { return has_handed_out_; }
  int32_t max_chunk_bytes() const { return outcome_.accepted.granted().max_chunk_bytes(); }
  // After the stream has ended with OK: the outcome, if it is complete.
  absl::StatusOr<ContractOutcome> Take();

 private:
  absl::Status AddAccepted(const v1::ContractAccepted& accepted);
  absl::Status AddResult(const v1::ContractResult& result);
  absl::Status AddSharedResult(const v1::ContractResult& result, const TensorSpec& spec);
  absl::Status AddChunk(const v1::TensorChunk& chunk);
  absl::Status AddSetReport(const v1::SetReport& report);
  absl::Status AddSingle(const v1::ContractSingle& single);
  absl::Status AddReport(const v1::ContractionReport& report);
  // The current result is complete: checks it against its report and hands it out.
  absl::Status CloseResult(const v1::SetReport& report);

  const ContractCallbacks& callbacks_;
  SharedPlacement* placement_;
  ContractOutcome outcome_;
  bool accepted_ = false;
  bool reported_ = false;
  bool has_handed_out_ = false;
  int64_t sets_ = 0;  // results that are complete
  std::optional<ContractResult> current_;
  TensorAssembler assembler_;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_CONTRACT_READER_H_
