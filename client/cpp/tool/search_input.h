// The options of the command that speak of plans.

#ifndef TENON_CLIENT_CPP_TOOL_SEARCH_INPUT_H_
#define TENON_CLIENT_CPP_TOOL_SEARCH_INPUT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/plan_file.h"
#include "client/cpp/tool/arguments.h"
#include "tenon/contract.h"
#include "tenon/v1/plan.pb.h"

namespace tenon::tool {

// Options of ReadSearch.
std::vector<Option> SearchOptionsOfTool();

// The search that the options describe; nothing when none is given.
absl::StatusOr<std::optional<v1::SearchOptions>> ReadSearch(const Arguments& arguments);

// Makes the plan of a file that of the request for `network`, which has the sizes of all indices:
// BAD_PARAMETER (field "--plan") unless it was made for the same network; names may differ, as
// indices are told by their first appearance.
absl::Status UsePlanFile(const PlanFile& plan, const Network& network,
                         client::ContractRequest* request);

// An error of the plan in the file `path`, which its text names then.
absl::Status NamePlanFile(const absl::Status& status, const std::string& path);

// Checks what a file tells of its plan against what the server has derived of it: BAD_PARAMETER
// (field "--plan") with the figure that differs, or with the target that is missed.
absl::Status CheckPlanFigures(const PlanFile& plan, const v1::PlanSummary& derived);

// "ssa" or "linear" of --path-format; unspecified without it.
absl::StatusOr<v1::PathFormat> ReadPathFormat(const Arguments& arguments);

// The plan of a search as a file for `network`, which has the sizes of all indices.
absl::StatusOr<PlanFile> MakePlanFile(const std::string& name, const Network& network,
                                      const v1::SearchOptions& search,
                                      const v1::PlanResult& result);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_SEARCH_INPUT_H_
