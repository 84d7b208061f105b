// Plans a measurement and takes the memory and the file space that it needs.

#ifndef TENON_SERVER_MEASUREMENT_PLAN_H_
#define TENON_SERVER_MEASUREMENT_PLAN_H_

#include "absl/status/status.h"
#include "server/measurement_request.h"
#include "server/state.h"

namespace tenon::server {

// Fills the session, the memory plan and what is granted of a call whose header has been read;
// reserves nothing. Errors have fields of the header: those of Session::Prepare,
// EXCEEDS_SERVER_LIMIT.
absl::Status PlanMemory(ServerState* state, MeasureCall* call);

}  // namespace tenon::server

#endif  // TENON_SERVER_MEASUREMENT_PLAN_H_
