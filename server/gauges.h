// Metrics that are read when they are asked for: memory, queue, providers, process.

#ifndef TENON_SERVER_GAUGES_H_
#define TENON_SERVER_GAUGES_H_

#include <string>

#include "server/state.h"

namespace tenon::server {

// All families, recorded and read, in Prometheus' text format.
std::string MetricsText(ServerState& state);

}  // namespace tenon::server

#endif  // TENON_SERVER_GAUGES_H_
