// The server's state as the wire names it.

#ifndef TENON_SERVER_WIRE_STATE_H_
#define TENON_SERVER_WIRE_STATE_H_

#include "server/lifecycle.h"
#include "tenon/v1/provider.pb.h"

namespace tenon::server {

inline v1::ServerState ToWireState(ServerPhase phase) {
  switch (phase) {
    case ServerPhase::kStarting:
      return v1::SERVER_STATE_STARTING;
    case ServerPhase::kReady:
      return v1::SERVER_STATE_READY;
    case ServerPhase::kLameDuck:
      return v1::SERVER_STATE_LAME_DUCK;
    case ServerPhase::kDraining:
      return v1::SERVER_STATE_DRAINING;
    case ServerPhase::kStopped:
      return v1::SERVER_STATE_STOPPED;
  }
  return v1::SERVER_STATE_UNSPECIFIED;
}

}  // namespace tenon::server

#endif  // TENON_SERVER_WIRE_STATE_H_
