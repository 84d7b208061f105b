// The report of a contraction as JSON.

#ifndef TENON_CLIENT_CPP_TOOL_CONTRACT_REPORT_H_
#define TENON_CLIENT_CPP_TOOL_CONTRACT_REPORT_H_

#include "client/cpp/tool/json.h"
#include "tenon/v1/contraction.pb.h"

namespace tenon::tool {

// Flat, for scripts: all fields of timing and memory ("execution_seconds", "planned_peak_bytes"),
// the figures of the report, "fingerprint", "plan", "providers" (with a flat timing each) and
// "kernels" of all providers in one list. What is absent is null.
Json ReportToJson(const v1::ContractionReport& report);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_CONTRACT_REPORT_H_
