// Plan files: a contraction path with its slices, the network it is for, and where it came from.
//
// {
//   "schema": "tenon-plan", "version": 1, "name": "...",
//   "network": {"inputs": [["a", "b"], ...], "output": [...], "size_dict": {"a": 2, ...}},
//   "path_ssa": [[0, 1], ...],            or "path_linear"
//   "sliced": ["b", ...],                 there even if empty
//   "target": {"elements": 1048576, "memory_bytes": 8589934592},
//   "costs": {"flops": ..., ...}, "unsliced_costs": {...},
//   "provenance": {"objective": "weighted", "flops_weight": 1, "read_write_weight": 64,
//                  "methods": ["annealing"], "slicing_mode": "dynamic", "seed": 0, "trials": 128,
//                  "seconds": 10.5, "stopped_by": "time", "planner_version": "1.0"}
// }
// Everything but "network", the path, "sliced" and "costs" may be absent. Other keys are ignored,
// but not among the costs: a figure that nobody checks would be believed. This is plain data, not
// validated beyond its form: backends/planner/plan_check.h derives everything anew.

#ifndef TENON_BACKENDS_CORE_PLAN_FILE_H_
#define TENON_BACKENDS_CORE_PLAN_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/network.h"

namespace tenon {

// What a plan was made to minimise; named as on the wire, in lower case.
enum class PlanObjective { kFlops, kReadWrite, kWeighted, kLargestIntermediate, kSeconds };

std::string_view PlanObjectiveName(PlanObjective objective);

// Figures by name, each finite and >= 0; those beyond the range of a double are left out:
// "flops", "write", "read_write", "max_size", "max_step", "peak_size", "slices" as in
// contraction::PathCost, and "score", the objective's value.
using PlanFigures = std::map<std::string, double>;
inline constexpr std::string_view kPlanFigureNames[] = {
    "flops", "write", "read_write", "max_size", "max_step", "peak_size", "slices", "score"};

// Told, not checked, but for the objective and its weights, by which the score is.
struct PlanProvenance {
  PlanObjective objective = PlanObjective::kWeighted;
  double flops_weight = 1;  // finite, >= 0
  double read_write_weight = 64;
  std::vector<std::string> methods;  // in order of use
  std::string slicing_mode;
  std::optional<uint64_t> seed;
  int64_t trials = 0;  // >= 0
  double seconds = 0;  // finite, >= 0
  std::string stopped_by;
  std::string planner_version;
};

struct PlanFile {
  std::string name;
  Network network;  // with the sizes of all indices
  PathSteps path;
  std::vector<std::string> sliced;
  std::optional<int64_t> target_elements;  // >= 1: of every step's result within a slice
  std::optional<int64_t> memory_bytes;     // >= 1: of the planned peak it was searched for
  PlanFigures costs;                       // over all slices
  PlanFigures unsliced_costs;              // of the same path without slices
  PlanProvenance provenance;
};

// The objective's value by the other figures; none where these do not tell it (seconds).
std::optional<double> PlanScore(const PlanFigures& figures, const PlanProvenance& from);

// Compares figures that a file tells with those that were derived anew, within 1e-9 of the larger.
// Those that were not derived, such as a score in seconds, are passed over. BAD_PARAMETER with the
// figure as the field (`key` and its name: "costs.flops") and both values in the metadata. A figure
// beyond the range of a double is told by nobody, so one that is told is wrong.
absl::Status ComparePlanFigures(const PlanFigures& told, const PlanFigures& derived,
                                const std::string& key);

// Parses a plan file. It also reads ArcTN's (schema "arctn-execution-plan", schema_version 2, path
// format "ssa-v1"): index ids become names, labels are ignored, its canonical text is compared with
// its network, its logarithmic metrics become figures; other metrics and what it tells of planning
// besides the seed and the weights are ignored.
//
// Errors name the key as the field ("costs.flops", "network.inputs", "sliced"): BAD_PARAMETER for
// "json" (malformed, numbers beyond the range of a double included; over 16 MiB; nesting over 32
// levels), "schema", "version", "target.*", "costs*" and "provenance.*"; BAD_EXPRESSION, BAD_PATH,
// BAD_SLICE as ParseNetworkJson.
absl::StatusOr<PlanFile> ParsePlanFile(std::string_view json);

// Writes version 1, ending in a line feed. BAD_PARAMETER for figures, weights, times or targets out
// of range, BAD_EXPRESSION (field "network") for text that is not UTF-8.
absl::StatusOr<std::string> FormatPlanFile(const PlanFile& plan);

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_PLAN_FILE_H_
