// Plans a measurement and takes the memory and the file space that it needs.

#ifndef TENON_SERVER_MEASUREMENT_PLAN_H_
#define TENON_SERVER_MEASUREMENT_PLAN_H_

#include "absl/status/status.h"
#include "server/measurement_request.h"
#include "server/state.h"

namespace tenon::server {

// Fills the session, the memory plan, what is granted and the reservations of a call whose header
// has been read. The data set's bytes have a reservation of their own: they may go to the store.
// Errors have fields of the header: those of Session::Prepare, EXCEEDS_SERVER_LIMIT, OVERLOADED.
absl::Status PlanAndReserve(ServerState* state, MeasureCall* call);

}  // namespace tenon::server

#endif  // TENON_SERVER_MEASUREMENT_PLAN_H_
