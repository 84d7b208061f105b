// The options of a contraction's header: plan, execution, result.

#ifndef TENON_SERVER_CONTRACTION_OPTIONS_H_
#define TENON_SERVER_CONTRACTION_OPTIONS_H_

#include "absl/status/status.h"
#include "server/contraction_codec.h"
#include "server/state.h"
#include "tenon/v1/contraction.pb.h"

namespace tenon::server {

// Checks them and adds them to `call`, which has its operands already. Errors' fields start with
// "header.". See DecodeHeader for what is accepted without effect.
absl::Status ReadContractOptions(const v1::ContractHeader& header, const ServerState& state,
                                 ContractCall* call);

}  // namespace tenon::server

#endif  // TENON_SERVER_CONTRACTION_OPTIONS_H_
