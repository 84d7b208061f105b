#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "backends/core/error.h"
#include "backends/core/figure.h"
#include "backends/core/file.h"
#include "backends/core/plan_file.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/json.h"
#include "client/cpp/tool/network_input.h"
#include "client/cpp/tool/progress_bar.h"
#include "client/cpp/tool/search_input.h"
#include "client/cpp/tool/text.h"
#include "client/cpp/tool/values.h"

namespace tenon::tool {
namespace {

constexpr double kProgressSeconds = 0.25;

std::string FormatPower(double log2) {
  return std::isinf(log2) ? "0" : StrCat("2^", FormatNumber(log2, 4));
}

std::string ImprovementText(const v1::PlanImprovement& better) {
  std::string text = StrCat("log10 flops ", FormatNumber(better.total().log10_flops(), 5),
                            ", largest ", FormatPower(better.total().log2_largest_intermediate()));
  if (better.slices() > 1) text += StrCat(", ", better.slices(), " slices");
  return text;
}

// One line: how far the search is and the best that it has found.
class SearchLine {
 public:
  explicit SearchLine(ProgressBar* bar) : bar_(bar) {}

  void Add(const v1::PlanImprovement& better) {
    best_ = StrCat(", ", ImprovementText(better));
    trials_ = std::max(trials_, better.trials());
    Show();
  }
  void Add(const v1::PlanProgress& progress) {
    if (progress.queue_position() > 0) {
      return bar_->Update(std::nullopt, StrCat("queued, ", progress.queue_position(), " before"));
    }
    trials_ = std::max(trials_, progress.trials());
    seconds_ = progress.elapsed_seconds();
    Show();
  }

 private:
  void Show() {
    // The exact method makes none, however long it takes.
    std::string text = trials_ == 0 ? "searching" : FormatCount(trials_, "trial");
    if (seconds_ > 0) text += StrCat(", ", FormatSeconds(seconds_));
    bar_->Update(std::nullopt, text + best_);
  }

  ProgressBar* bar_;
  std::string best_;
  int64_t trials_ = 0;
  double seconds_ = 0;
};

Json ToJson(const v1::PlanResult& result) {
  const v1::PlanSummary& plan = result.plan();
  Json json;
  json["log10_flops"] = plan.unsliced().log10_flops();
  json["sliced_log10_flops_total"] = plan.total().log10_flops();
  json["log2_max_size"] = plan.unsliced().log2_largest_intermediate();
  json["sliced_log2_max_size"] = plan.per_slice().log2_largest_intermediate();
  json["log2_read_write"] = plan.total().log2_read_write();
  json["log2_score"] = plan.total().log2_score();
  json["log2_executed_score"] = plan.log2_score();
  json["slices"] = plan.slices();
  json["log2_n_slices"] = plan.log2_slices();
  json["predicted_seconds"] =
      plan.has_predicted_seconds() ? Json(plan.predicted_seconds()) : Json(nullptr);
  json["planned_peak_bytes"] = result.planned_peak_bytes();
  if (result.planned_peak_bytes() >= kMostPlannedBytes) json["planned_peak_is_lower_bound"] = true;
  if (result.has_refusal()) json["refusal"] = MessageToJson(result.refusal());
  json["wall_s"] = plan.provenance().search_seconds();
  Json& path = json[plan.path().format() == v1::PATH_FORMAT_LINEAR ? "path_linear" : "path_ssa"];
  path = Json::array();
  for (const v1::PathStep& step : plan.path().steps()) {
    path.push_back(std::vector<int64_t>(step.operands().begin(), step.operands().end()));
  }
  json["sliced"] =
      std::vector<std::string>(plan.sliced_indices().begin(), plan.sliced_indices().end());
  json["provenance"] = MessageToJson(plan.provenance());
  json["plan_id"] = plan.plan_id();
  json["program_fingerprint"] = plan.program_fingerprint();
  return json;
}

// Found out before a long search, not after it.
absl::Status CheckCanWrite(const std::string& path) {
  const auto refusal = [&](const std::string& why) {
    return Error(Reason::kBadParameter, StrCat("'", path, "' can't be written: ", why))
        .Field("--output");
  };
  std::error_code error;
  // A name alone stays relative when no such file is there.
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return refusal(error.message());
  const std::filesystem::path target = std::filesystem::weakly_canonical(absolute, error);
  if (error) return refusal(error.message());
  if (path.empty() || std::filesystem::is_directory(target, error)) {
    return refusal("it is no name of a file");
  }
  if (!std::filesystem::is_directory(target.parent_path(), error)) {
    return refusal("its folder does not exist");
  }
  const bool is_plain =
      !std::filesystem::exists(target, error) || std::filesystem::is_regular_file(target, error);
  // A plain file is replaced by a new one beside it.
  const std::string written = is_plain ? target.parent_path().string() : target.string();
  if (access(written.c_str(), W_OK) != 0) return refusal("there is no permission");
  return absl::OkStatus();
}

bool Has(const google::protobuf::RepeatedField<int>& methods, v1::SearchMethod method) {
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}

std::string TrialsText(const v1::PlanProvenance& made) {
  if (made.trials() > 0) return FormatCount(made.trials(), "trial");
  const bool is_best = made.methods().empty() || Has(made.methods(), v1::SEARCH_METHOD_EXACT);
  if (is_best) return "no trials needed";
  const bool was_late = made.stopped_by() == v1::SEARCH_STOP_TIME ||
                        made.stopped_by() == v1::SEARCH_STOP_DEFAULT_BUDGET;
  return was_late ? "no trial ended in time" : "no trials";
}

// The methods that led to the plan and, where that is not the one that alone was asked for, why.
std::string MethodsText(const v1::PlanSummary& plan, const v1::SearchOptions& asked) {
  const v1::PlanProvenance& made = plan.provenance();
  std::string text;
  for (const int method : made.methods()) {
    text += StrCat(text.empty() ? "" : ", ", ShortEnumName(static_cast<v1::SearchMethod>(method)));
  }
  const bool is_exact_alone =
      asked.methods_size() == 1 && asked.methods(0) == v1::SEARCH_METHOD_EXACT;
  if (!is_exact_alone || text.empty() || Has(made.methods(), v1::SEARCH_METHOD_EXACT)) return text;
  const std::string operands = FormatCount(plan.steps() + 1, "operand");
  // With slices its plan may also have been the worse one.
  return text + (plan.slices() > 1 ? StrCat("; exact gave no better plan of ", operands)
                                   : StrCat("; exact does not reach ", operands));
}

// How the plan can be made to fit the server; empty where nobody knows.
std::string FittingHint(const v1::PlanResult& result, const v1::SearchOptions& asked) {
  const auto known = result.refusal().metadata().find("limit_bytes");
  int64_t limit = 0;
  if (known == result.refusal().metadata().end() || !absl::SimpleAtoi(known->second, &limit)) {
    return "";
  }
  const v1::MemoryPlan& memory = result.memory();
  const double whole = static_cast<double>(memory.operand_bytes()) +
                       static_cast<double>(memory.result_bytes()) +
                       static_cast<double>(memory.staging_bytes());
  if (whole > static_cast<double>(limit)) {
    return "its operands and result alone are larger than that, which slices don't change";
  }
  return StrCat("--memory-budget ", SizeArgument(limit), " searches a plan in slices that fits",
                asked.slicing_mode() == v1::SLICING_MODE_NONE ? ", without --slicing none" : "");
}

void PrintText(const v1::PlanResult& result, const v1::SearchOptions& asked, std::ostream* out) {
  const v1::PlanSummary& plan = result.plan();
  std::vector<std::pair<std::string, std::string>> rows = {
      {"plan", plan.plan_id()},
      {"steps", StrCat(plan.steps())},
      {"log10 flops", FormatNumber(plan.unsliced().log10_flops(), 6)},
      {"log10 flops, all slices", FormatNumber(plan.total().log10_flops(), 6)},
      {"slices", StrCat(plan.slices(), " (", FormatPower(plan.log2_slices()), ")")},
      {"largest intermediate",
       StrCat(FormatPower(plan.per_slice().log2_largest_intermediate()), " elements")},
      {"planned peak", FormatPlannedPeak(result.planned_peak_bytes())},
      {"predicted time",
       plan.has_predicted_seconds() ? FormatSeconds(plan.predicted_seconds()) : "unknown"},
      {"searched", StrCat(FormatSeconds(plan.provenance().search_seconds()), ", ",
                          TrialsText(plan.provenance()), ", from ",
                          ShortEnumName(plan.provenance().source()))}};
  if (plan.slices() > 1) {
    rows.emplace_back("log2 score", StrCat(FormatNumber(plan.total().log2_score(), 6),
                                           ", as executed ", FormatNumber(plan.log2_score(), 6)));
  }
  const std::string methods = MethodsText(plan, asked);
  if (!methods.empty()) rows.emplace_back("methods", methods);
  *out << FormatPairs(rows);
  if (result.has_refusal()) {
    *out << "\nthis server can't run it: " << result.refusal().message() << "\n";
    const std::string hint = FittingHint(result, asked);
    if (!hint.empty()) *out << hint << "\n";
  }
}

absl::Status Run(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(NetworkInput input,
                         LoadNetworkInput(arguments, false, /*leave_path=*/true));
  if (!input.request.search.has_value()) input.request.search.emplace();
  TENON_ASSIGN_OR_RETURN(input.request.path_format, ReadPathFormat(arguments));
  const auto output = arguments.Get("output");
  if (output.has_value()) TENON_RETURN_IF_ERROR(CheckCanWrite(*output));
  TENON_ASSIGN_OR_RETURN(client::Client client, Connect(arguments));
  TENON_ASSIGN_OR_RETURN(const client::CallOptions options, CallOptionsOf(arguments, session));
  v1::PlanResult result;
  {
    ProgressBar bar(session.err, session.err_is_terminal && !arguments.Has("json"));
    SearchLine line(&bar);
    client::PlanCallbacks callbacks;
    if (bar.enabled()) {
      input.request.execution.set_progress_interval_seconds(kProgressSeconds);
      callbacks.on_improvement = [&line](const v1::PlanImprovement& found) { line.Add(found); };
      callbacks.on_progress = [&line](const v1::PlanProgress& progress) { line.Add(progress); };
    }
    TENON_ASSIGN_OR_RETURN(result, client.Plan(input.request, options, callbacks));
  }
  if (output.has_value()) {
    TENON_ASSIGN_OR_RETURN(const PlanFile file, MakePlanFile(input.name, NetworkOf(input),
                                                             *input.request.search, result));
    TENON_ASSIGN_OR_RETURN(const std::string text, FormatPlanFile(file));
    TENON_RETURN_IF_ERROR(WriteFile(*output, {text}));
  }
  if (arguments.Has("json")) {
    *session.out << Dump(ToJson(result)) << "\n";
  } else {
    PrintText(result, *input.request.search, session.out);
  }
  return absl::OkStatus();
}

}  // namespace

CommandSpec PlanSpec() {
  CommandSpec spec;
  spec.name = "plan";
  spec.usage = "NETWORK.json | 'ab,bc->ac' [A.npy ... | --shape 2,3 ...]";
  spec.summary = "Searches for a contraction path and slices.";
  spec.details =
      "Improvements are shown while the search goes on. A path in NETWORK.json is not used, and\n"
      "the file is not changed: the search begins anew, as with --replan. 'tenon contract' runs\n"
      "that path, unless it has --replan or --plan. The plan that --output writes runs with\n"
      "'tenon contract NETWORK.json --plan FILE', and that of an einsum with\n"
      "'tenon contract 'ab,bc->ac' A.npy ... --plan FILE'.";
  spec.example = "tenon plan network.json --target-size 2^24 --max-time 10 --output plan.json";
  spec.options = NetworkOptions();
  spec.options.push_back(
      {"shape", "2,3", "Shape of the next operand of an einsum, in place of a file.", true});
  spec.options.push_back({"output", "FILE.json", "Write the plan to a file."});
  spec.options.push_back(
      {"path-format", "NAME", "ssa (the default) or linear.", false, {"ssa", "linear"}});
  spec.options.push_back(
      {"json", "",
       "Print one JSON object: log10_flops, sliced_log10_flops_total, sizes, slices, the path, "
       "where it came from."});
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  spec.min_positionals = 1;
  spec.max_positionals = 100000;
  return spec;
}

int RunPlan(const Arguments& arguments, const Session& session) {
  const absl::Status status = Run(arguments, session);
  return status.ok() ? kExitOk : Fail(session, status);
}

}  // namespace tenon::tool
