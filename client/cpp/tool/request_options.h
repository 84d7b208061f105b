// Options that contractions and measurements have in common.

#ifndef TENON_CLIENT_CPP_TOOL_REQUEST_OPTIONS_H_
#define TENON_CLIENT_CPP_TOOL_REQUEST_OPTIONS_H_

#include <vector>

#include "client/cpp/tool/enums.h"
#include "client/cpp/tool/values.h"
#include "tenon/v1/execution.pb.h"

namespace tenon::tool {

inline std::vector<Option> RequestOptions() {
  return {{"priority", "CLASS", "Class in the queue: interactive, default or bulk.", false,
           EnumNames<v1::PriorityClass>()},
          {"max-queue", "SECONDS", "Give up when it has waited in the queue for so long."},
          {"checksums", "", "Every chunk carries a checksum, in both directions."},
          {"report", "DETAIL", "How much the report tells: brief, full (the default) or timeline.",
           false, EnumNames<v1::ReportDetail>()}};
}

// `execution` and `result` are those of a contraction or of a measurement.
template <typename Execution, typename Result>
absl::Status SetRequestOptions(const Arguments& arguments, Execution* execution, Result* result) {
  TENON_ASSIGN_OR_RETURN(const auto priority, GetEnum<v1::PriorityClass>(arguments, "priority"));
  execution->set_priority(priority);
  TENON_ASSIGN_OR_RETURN(const auto queue,
                         GetParsed<double>(arguments, "max-queue", ParsePositive));
  if (queue.has_value()) execution->set_max_queue_seconds(*queue);
  result->set_checksums(arguments.Has("checksums"));
  TENON_ASSIGN_OR_RETURN(const auto detail, GetEnum<v1::ReportDetail>(arguments, "report"));
  result->set_report_detail(detail);
  return absl::OkStatus();
}

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_REQUEST_OPTIONS_H_
