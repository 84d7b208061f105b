// The registry of measures as the contract describes it.

#ifndef TENON_SERVER_MEASURE_INFO_H_
#define TENON_SERVER_MEASURE_INFO_H_

#include <string>

#include "absl/status/status.h"
#include "tenon/v1/measurement.pb.h"

namespace tenon::server {

// All measures, or the one with this id or alias: UNKNOWN_MEASURE, field "id".
absl::Status DescribeMeasures(const std::string& id, v1::ListMeasuresResponse* response);

}  // namespace tenon::server

#endif  // TENON_SERVER_MEASURE_INFO_H_
