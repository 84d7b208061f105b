#include "backends/core/plan_file.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "backends/core/error.h"
#include "backends/core/figure.h"
#include "backends/core/json_error.h"
#include "backends/core/network_json.h"

namespace tenon {
namespace {

using network_json::BadValue;
using network_json::Find;
using network_json::Json;
using network_json::ReadInteger;

constexpr std::string_view kSchema = "tenon-plan";
constexpr int64_t kVersion = 1;
constexpr std::string_view kArctnSchema = "arctn-execution-plan";
constexpr int64_t kArctnVersion = 2;

constexpr std::pair<PlanObjective, std::string_view> kObjectives[] = {
    {PlanObjective::kFlops, "flops"},
    {PlanObjective::kReadWrite, "read_write"},
    {PlanObjective::kWeighted, "weighted"},
    {PlanObjective::kLargestIntermediate, "largest_intermediate"},
    {PlanObjective::kSeconds, "seconds"}};

Error Bad(const std::string& key, const std::string& what) {
  return BadValue(Reason::kBadParameter, key, what);
}

absl::Status CheckNumber(double value, const std::string& key) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return Bad(key, StrCat("is ", value, ", not a finite number from 0"));
}

absl::Status CheckAtLeast(int64_t value, int64_t least, const std::string& key) {
  if (value >= least) return absl::OkStatus();
  return Bad(key, StrCat("is ", value, ", less than ", least));
}

absl::Status CheckFigures(const PlanFigures& figures, const std::string& key) {
  for (const auto& [name, value] : figures) {
    const std::string field = StrCat(key, ".", name);
    if (std::find(std::begin(kPlanFigureNames), std::end(kPlanFigureNames), name) ==
        std::end(kPlanFigureNames)) {
      return Bad(field, "is no figure of a plan");
    }
    TENON_RETURN_IF_ERROR(CheckNumber(value, field));
  }
  return absl::OkStatus();
}

absl::Status CheckPlan(const PlanFile& plan) {
  if (plan.target_elements) {
    TENON_RETURN_IF_ERROR(CheckAtLeast(*plan.target_elements, 1, "target.elements"));
  }
  if (plan.memory_bytes) {
    TENON_RETURN_IF_ERROR(CheckAtLeast(*plan.memory_bytes, 1, "target.memory_bytes"));
  }
  TENON_RETURN_IF_ERROR(CheckFigures(plan.costs, "costs"));
  TENON_RETURN_IF_ERROR(CheckFigures(plan.unsliced_costs, "unsliced_costs"));
  const PlanProvenance& from = plan.provenance;
  TENON_RETURN_IF_ERROR(CheckNumber(from.flops_weight, "provenance.flops_weight"));
  TENON_RETURN_IF_ERROR(CheckNumber(from.read_write_weight, "provenance.read_write_weight"));
  TENON_RETURN_IF_ERROR(CheckNumber(from.seconds, "provenance.seconds"));
  return CheckAtLeast(from.trials, 0, "provenance.trials");
}

// Reads optional values of one object, whose keys are told with `prefix` in errors. What is absent
// leaves its target alone.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string prefix)
      : object_(object), prefix_(std::move(prefix)) {}

  absl::Status Text(const char* key, std::string* result) const {
    const Json* value = Find(object_, key);
    if (value == nullptr) return absl::OkStatus();
    TENON_ASSIGN_OR_RETURN(*result,
                           network_json::ReadString(*value, Reason::kBadParameter, prefix_ + key));
    return absl::OkStatus();
  }
  absl::Status Number(const char* key, double* result) const {
    const Json* value = Find(object_, key);
    if (value == nullptr) return absl::OkStatus();
    if (!value->is_number()) return Bad(prefix_ + key, "is not a number");
    *result = value->get<double>();
    return absl::OkStatus();
  }
  template <typename Integer>
  absl::Status Int(const char* key, Integer* result) const {
    const Json* value = Find(object_, key);
    if (value == nullptr) return absl::OkStatus();
    int64_t number = 0;
    if (!ReadInteger(*value, &number)) return Bad(prefix_ + key, "is not an integer of 63 bits");
    *result = number;
    return absl::OkStatus();
  }
  absl::Status Seed(const char* key, std::optional<uint64_t>* result) const {
    const Json* value = Find(object_, key);
    if (value == nullptr) return absl::OkStatus();
    if (!value->is_number_unsigned()) {
      return Bad(prefix_ + key, "is not an integer from 0 to 2^64 - 1");
    }
    *result = value->get<uint64_t>();
    return absl::OkStatus();
  }
  // The object under a key; an empty one when it is absent.
  absl::StatusOr<const Json*> Object(const char* key) const {
    static const Json kEmpty = Json::object();
    const Json* value = Find(object_, key);
    if (value == nullptr) return &kEmpty;
    if (!value->is_object()) return Bad(prefix_ + key, "is not an object");
    return value;
  }

 private:
  const Json& object_;
  const std::string prefix_;
};

// The object under a key that must be there.
absl::StatusOr<const Json*> Required(const Json& object, const char* key, Reason reason) {
  const Json* value = Find(object, key);
  if (value == nullptr) return BadValue(reason, key, "is missing");
  if (!value->is_object()) return BadValue(reason, key, "is not an object");
  return value;
}

absl::StatusOr<PlanFigures> ReadFigures(const Json& object, const std::string& key) {
  PlanFigures figures;
  const ObjectReader reader(object, key + ".");
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;
    TENON_RETURN_IF_ERROR(reader.Number(name.c_str(), &figures[name]));
  }
  return figures;
}

absl::Status ReadProvenance(const Json& object, PlanProvenance* from) {
  const ObjectReader reader(object, "provenance.");
  std::string objective(PlanObjectiveName(from->objective));
  TENON_RETURN_IF_ERROR(reader.Text("objective", &objective));
  const auto known = std::find_if(std::begin(kObjectives), std::end(kObjectives),
                                  [&](const auto& entry) { return entry.second == objective; });
  if (known == std::end(kObjectives)) {
    return Bad("provenance.objective", StrCat("is '", objective, "', which is no objective"));
  }
  from->objective = known->first;
  if (const Json* methods = Find(object, "methods"); methods != nullptr) {
    TENON_ASSIGN_OR_RETURN(from->methods, network_json::ReadNames(*methods, Reason::kBadParameter,
                                                                  "provenance.methods", ""));
  }
  TENON_RETURN_IF_ERROR(reader.Number("flops_weight", &from->flops_weight));
  TENON_RETURN_IF_ERROR(reader.Number("read_write_weight", &from->read_write_weight));
  TENON_RETURN_IF_ERROR(reader.Text("slicing_mode", &from->slicing_mode));
  TENON_RETURN_IF_ERROR(reader.Seed("seed", &from->seed));
  TENON_RETURN_IF_ERROR(reader.Int("trials", &from->trials));
  TENON_RETURN_IF_ERROR(reader.Number("seconds", &from->seconds));
  TENON_RETURN_IF_ERROR(reader.Text("stopped_by", &from->stopped_by));
  return reader.Text("planner_version", &from->planner_version);
}

absl::Status ReadTenonPlan(const Json& file, PlanFile* plan) {
  const ObjectReader reader(file, "");
  TENON_RETURN_IF_ERROR(reader.Text("name", &plan->name));
  TENON_ASSIGN_OR_RETURN(const Json* network, Required(file, "network", Reason::kBadExpression));
  absl::StatusOr<Network> read = network_json::ReadNetwork(*network);
  if (!read.ok()) return PrefixFields(read.status(), "network.");
  plan->network = *std::move(read);
  TENON_ASSIGN_OR_RETURN(std::optional<PathSteps> path, network_json::ReadPath(file));
  if (!path.has_value()) return BadValue(Reason::kBadPath, "path_ssa", "is missing");
  plan->path = *std::move(path);
  const Json* sliced = Find(file, "sliced");
  if (sliced == nullptr) return BadValue(Reason::kBadSlice, "sliced", "is missing");
  TENON_ASSIGN_OR_RETURN(plan->sliced,
                         network_json::ReadNames(*sliced, Reason::kBadSlice, "sliced", ""));
  TENON_ASSIGN_OR_RETURN(const Json* target, reader.Object("target"));
  const ObjectReader limits(*target, "target.");
  TENON_RETURN_IF_ERROR(limits.Int("elements", &plan->target_elements));
  TENON_RETURN_IF_ERROR(limits.Int("memory_bytes", &plan->memory_bytes));
  TENON_ASSIGN_OR_RETURN(const Json* costs, Required(file, "costs", Reason::kBadParameter));
  TENON_ASSIGN_OR_RETURN(plan->costs, ReadFigures(*costs, "costs"));
  TENON_ASSIGN_OR_RETURN(const Json* unsliced, reader.Object("unsliced_costs"));
  TENON_ASSIGN_OR_RETURN(plan->unsliced_costs, ReadFigures(*unsliced, "unsliced_costs"));
  TENON_ASSIGN_OR_RETURN(const Json* provenance, reader.Object("provenance"));
  return ReadProvenance(*provenance, &plan->provenance);
}

// [[id, size], ...]
absl::Status ReadSizePairs(const Json& network, std::map<std::string, int64_t>* sizes) {
  const Json* pairs = Find(network, "size_dict");
  const auto bad = [](const std::string& what) {
    return BadValue(Reason::kBadExpression, "network.size_dict", what);
  };
  if (pairs == nullptr || !pairs->is_array()) return bad("is not a list of pairs");
  for (const Json& pair : *pairs) {
    int64_t leg = 0, size = 0;
    if (!pair.is_array() || pair.size() != 2 || !ReadInteger(pair[0], &leg) ||
        !ReadInteger(pair[1], &size)) {
      return bad("holds what is no pair of integers");
    }
    if (!sizes->emplace(StrCat(leg), size).second) return bad(StrCat("gives ", leg, " twice"));
  }
  return absl::OkStatus();
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

// ArcTN's canonical text of a network: its tensors, its output, its sizes by ascending id.
std::string ArctnText(const Network& network) {
  std::string tensors, sizes;
  for (size_t k = 0; k < network.inputs.size(); ++k) {
    tensors += (k == 0 ? "" : ";") + Joined(network.inputs[k]);
  }
  std::vector<std::pair<std::string, int64_t>> by_id(network.sizes.begin(), network.sizes.end());
  std::sort(by_id.begin(), by_id.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.size(), a.first) < std::pair(b.first.size(), b.first);
  });
  for (const auto& [id, size] : by_id) sizes += StrCat(sizes.empty() ? "" : ",", id, "=", size);
  return StrCat("t:", tensors, "|o:", Joined(network.output), "|d:", sizes);
}

absl::Status ReadArctnMetrics(const Json& metrics, PlanFile* plan) {
  struct Metric {
    const char* key;
    PlanFigures* figures;
    const char* name;
    double base;
  };
  PlanFigures *sliced = &plan->costs, *whole = &plan->unsliced_costs;
  const Metric known[] = {
      {"log10_flops", whole, "flops", 10},
      {"log2_max_size", whole, "max_size", 2},
      {"log2_max_contraction_size", whole, "max_step", 2},
      {"log2_total_size", whole, "write", 2},
      {"log2_read_write", whole, "read_write", 2},
      {"log2_peak_size", whole, "peak_size", 2},
      {"log2_n_slices", sliced, "slices", 2},
      {"sliced_log10_flops_total", sliced, "flops", 10},
      {"sliced_log2_max_size", sliced, "max_size", 2},
      {"sliced_log2_max_contraction_size", sliced, "max_step", 2},
      {"sliced_log2_peak_size", sliced, "peak_size", 2},
  };
  const ObjectReader reader(metrics, "metrics.");
  for (const Metric& metric : known) {
    if (Find(metrics, metric.key) == nullptr) continue;
    double logarithm = 0;
    TENON_RETURN_IF_ERROR(reader.Number(metric.key, &logarithm));
    const double value = std::pow(metric.base, logarithm);
    if (!std::isfinite(value)) continue;  // beyond the range of a double
    (*metric.figures)[metric.name] = value;
  }
  return absl::OkStatus();
}

absl::Status ReadArctnPlanning(const Json& planning, PlanProvenance* from) {
  const ObjectReader reader(planning, "planning.");
  std::string objective;
  TENON_RETURN_IF_ERROR(reader.Text("planner_objective", &objective));
  if (objective == "total_flops") from->objective = PlanObjective::kFlops;
  if (objective == "total_read_write") from->objective = PlanObjective::kReadWrite;
  TENON_RETURN_IF_ERROR(reader.Number("flops_weight", &from->flops_weight));
  TENON_RETURN_IF_ERROR(reader.Number("read_write_weight", &from->read_write_weight));
  TENON_RETURN_IF_ERROR(reader.Text("slicing_mode", &from->slicing_mode));
  return reader.Seed("seed", &from->seed);
}

absl::Status ReadArctnPlan(const Json& file, PlanFile* plan) {
  const ObjectReader reader(file, "");
  std::string format = "ssa-v1", canonical;
  TENON_RETURN_IF_ERROR(reader.Text("path_format", &format));
  if (format != "ssa-v1") return BadValue(Reason::kBadPath, "path_format", "is not 'ssa-v1'");
  TENON_ASSIGN_OR_RETURN(const Json* network, Required(file, "network", Reason::kBadExpression));
  const absl::Status tensors = network_json::ReadTensors(*network, &plan->network);
  if (!tensors.ok()) return PrefixFields(tensors, "network.");
  TENON_RETURN_IF_ERROR(ReadSizePairs(*network, &plan->network.sizes));
  TENON_RETURN_IF_ERROR(reader.Text("network_canon", &canonical));
  if (!canonical.empty() && canonical != ArctnText(plan->network)) {
    return BadValue(Reason::kBadExpression, "network_canon",
                    "tells another network than 'network'");
  }
  const Json* path = Find(file, "ssa_path");
  if (path == nullptr) return BadValue(Reason::kBadPath, "ssa_path", "is missing");
  TENON_ASSIGN_OR_RETURN(plan->path.steps, network_json::ReadSteps(*path, "ssa_path"));
  TENON_ASSIGN_OR_RETURN(const Json* sliced, Required(file, "sliced", Reason::kBadSlice));
  const Json* legs = Find(*sliced, "legs");
  if (legs == nullptr) return BadValue(Reason::kBadSlice, "sliced.legs", "is missing");
  TENON_ASSIGN_OR_RETURN(plan->sliced,
                         network_json::ReadNames(*legs, Reason::kBadSlice, "sliced.legs", ""));
  TENON_RETURN_IF_ERROR(reader.Int("target_size", &plan->target_elements));
  TENON_ASSIGN_OR_RETURN(const Json* metrics, reader.Object("metrics"));
  TENON_RETURN_IF_ERROR(ReadArctnMetrics(*metrics, plan));
  TENON_ASSIGN_OR_RETURN(const Json* planning, reader.Object("planning"));
  return ReadArctnPlanning(*planning, &plan->provenance);
}

absl::Status ReadPlan(const Json& file, PlanFile* plan) {
  const ObjectReader reader(file, "");
  std::string schema;
  TENON_RETURN_IF_ERROR(reader.Text("schema", &schema));
  if (Find(file, "schema") == nullptr) {
    const bool is_network = Find(file, "inputs") != nullptr;
    return Bad("schema", is_network ? "is missing; this is a network, not a plan"
                                    : StrCat("is missing; a plan has '", kSchema, "' there"));
  }
  const bool is_arctn = schema == kArctnSchema;
  if (!is_arctn && schema != kSchema) {
    return Bad("schema", StrCat("is '", schema, "', not '", kSchema, "' or '", kArctnSchema, "'"));
  }
  const char* key = is_arctn ? "schema_version" : "version";
  const int64_t known = is_arctn ? kArctnVersion : kVersion;
  int64_t version = 0;
  TENON_RETURN_IF_ERROR(reader.Int(key, &version));
  if (version != known) {
    return Bad(key, StrCat("is ", version, "; this program reads ", known))
        .Meta("expected", known)
        .Meta("actual", version);
  }
  TENON_RETURN_IF_ERROR(is_arctn ? ReadArctnPlan(file, plan) : ReadTenonPlan(file, plan));
  return CheckPlan(*plan);
}

Json ProvenanceJson(const PlanProvenance& from) {
  Json json = {{"objective", std::string(PlanObjectiveName(from.objective))},
               {"flops_weight", from.flops_weight},
               {"read_write_weight", from.read_write_weight},
               {"methods", from.methods},
               {"slicing_mode", from.slicing_mode},
               {"trials", from.trials},
               {"seconds", from.seconds},
               {"stopped_by", from.stopped_by},
               {"planner_version", from.planner_version}};
  if (from.seed.has_value()) json["seed"] = *from.seed;
  return json;
}

// One top-level key a line: short enough to read, long enough to compare.
std::string Write(const PlanFile& plan) {
  std::string text = StrCat("{\n\"schema\": \"", kSchema, "\",\n\"version\": ", kVersion);
  const auto add = [&text](const char* key, const Json& value) {
    text += StrCat(",\n\"", key, "\": ", value.dump());
  };
  if (!plan.name.empty()) add("name", plan.name);
  add("network", {{"inputs", plan.network.inputs},
                  {"output", plan.network.output},
                  {"size_dict", plan.network.sizes}});
  add(plan.path.format == PathSteps::Format::kSsa ? "path_ssa" : "path_linear", plan.path.steps);
  add("sliced", plan.sliced);
  Json target = Json::object();
  if (plan.target_elements) target["elements"] = *plan.target_elements;
  if (plan.memory_bytes) target["memory_bytes"] = *plan.memory_bytes;
  if (!target.empty()) add("target", target);
  add("costs", plan.costs);
  if (!plan.unsliced_costs.empty()) add("unsliced_costs", plan.unsliced_costs);
  add("provenance", ProvenanceJson(plan.provenance));
  return text + "\n}\n";
}

}  // namespace

std::string_view PlanObjectiveName(PlanObjective objective) {
  for (const auto& [known, name] : kObjectives) {
    if (known == objective) return name;
  }
  return "";
}

std::optional<double> PlanScore(const PlanFigures& figures, const PlanProvenance& from) {
  const auto figure = [&](const char* name) -> std::optional<double> {
    const auto found = figures.find(name);
    return found == figures.end() ? std::nullopt : std::optional<double>(found->second);
  };
  switch (from.objective) {
    case PlanObjective::kFlops:
      return figure("flops");
    case PlanObjective::kReadWrite:
      return figure("read_write");
    case PlanObjective::kLargestIntermediate:
      return figure("max_size");
    case PlanObjective::kWeighted: {
      const auto flops = figure("flops"), read_write = figure("read_write");
      if (!flops.has_value() || !read_write.has_value()) return std::nullopt;
      return from.flops_weight * *flops + from.read_write_weight * *read_write;
    }
    case PlanObjective::kSeconds:
      break;
  }
  return std::nullopt;
}

absl::Status ComparePlanFigures(const PlanFigures& told, const PlanFigures& derived,
                                const std::string& key) {
  constexpr double kTolerance = 1e-9;
  for (const auto& [name, value] : told) {
    const auto found = derived.find(name);
    if (found == derived.end()) continue;
    const double right = found->second;
    if (std::abs(value - right) <= kTolerance * std::max(value, right)) continue;
    return Error(Reason::kBadParameter, StrCat("the plan tells ", name, " = ", FigureText(value),
                                               ", but it is ", FigureText(right)))
        .Field(StrCat(key, ".", name))
        .Meta("told", FigureText(value))
        .Meta("derived", FigureText(right));
  }
  return absl::OkStatus();
}

absl::StatusOr<PlanFile> ParsePlanFile(std::string_view json) {
  PlanFile plan;
  TENON_RETURN_IF_ERROR(
      network_json::ReadObject(json, Reason::kBadParameter, "the plan",
                               [&plan](const Json& file) { return ReadPlan(file, &plan); }));
  return plan;
}

absl::StatusOr<std::string> FormatPlanFile(const PlanFile& plan) {
  TENON_RETURN_IF_ERROR(CheckPlan(plan));
  try {
    return Write(plan);
  } catch (const Json::exception& error) {
    return BadValue(
        Reason::kBadExpression, "network",
        StrCat("or another text of the plan is not UTF-8: ", JsonErrorText(error.what())));
  } catch (const std::bad_alloc&) {
    return Error(Reason::kExceedsMemoryBudget, "there is no memory left to write the plan");
  }
}

}  // namespace tenon
