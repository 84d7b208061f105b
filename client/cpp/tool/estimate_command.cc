#include <utility>

#include "backends/core/error.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/json.h"
#include "client/cpp/tool/network_input.h"
#include "client/cpp/tool/text.h"

namespace tenon::tool {
namespace {

std::string SecondsText(bool known, double seconds) {
  return known ? FormatSeconds(seconds) : "unknown";
}

void PrintText(const v1::EstimateResponse& estimate, std::ostream* out) {
  const v1::PlanSummary& plan = estimate.plan();
  const v1::TensorSpec& result = estimate.result_spec();
  const std::vector<int64_t> shape(result.shape().begin(), result.shape().end());
  *out << FormatPairs(
      {{"result", StrCat(ShortEnumName(result.dtype()), " ", FormatShape(shape))},
       {"steps", StrCat(plan.steps())},
       {"work", StrCat(FormatNumber(plan.flops(), 4), " multiply-adds")},
       {"largest intermediate",
        StrCat(FormatNumber(plan.largest_intermediate_elements(), 6), " elements")},
       {"slices", StrCat(plan.slices(), " in ", plan.slice_groups(), " groups")},
       {"planned peak", FormatPlannedPeak(estimate.planned_peak_bytes())},
       {"time", SecondsText(estimate.has_estimated_seconds(), estimate.estimated_seconds())}});
  std::vector<std::vector<std::string>> rows;
  for (const v1::ProviderEstimate& provider : estimate.providers()) {
    rows.push_back(
        {provider.provider(),
         SecondsText(provider.has_estimated_seconds(), provider.estimated_seconds()),
         provider.has_planned_peak_bytes() ? FormatPlannedPeak(provider.planned_peak_bytes()) : "-",
         provider.has_refusal()
             ? StrCat(provider.refusal().reason(), ": ", provider.refusal().message())
             : "yes"});
  }
  if (!rows.empty()) *out << "\n" << FormatTable({"provider", "time", "peak", "can do it"}, rows);
  if (estimate.has_refusal()) {
    *out << "\nit would be refused now: " << estimate.refusal().reason() << ": "
         << estimate.refusal().message() << "\n";
  }
}

absl::Status Run(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(const NetworkInput input, LoadNetworkInput(arguments, false));
  TENON_ASSIGN_OR_RETURN(client::Client client, Connect(arguments));
  TENON_ASSIGN_OR_RETURN(const client::CallOptions options, CallOptionsOf(arguments, session));
  TENON_ASSIGN_OR_RETURN(const v1::EstimateResponse estimate,
                         client.Estimate(input.request, options));
  if (arguments.Has("json")) {
    *session.out << Dump(MessageToJson(estimate)) << "\n";
  } else {
    PrintText(estimate, session.out);
  }
  return absl::OkStatus();
}

}  // namespace

CommandSpec EstimateSpec() {
  CommandSpec spec;
  spec.name = "estimate";
  spec.usage = "NETWORK.json | 'ab,bc->ac' [A.npy ... | --shape 2,3 ...]";
  spec.summary = "Tells what a contraction would cost, without running it.";
  spec.details = "No arrays are made or sent; of .npy files only type and shape are used.";
  spec.example = "tenon estimate 'ab,bc->ac' --shape 2000,3000 --shape 3000,4000";
  spec.options = NetworkOptions();
  for (Option& option : PlanChoiceOptions()) spec.options.push_back(std::move(option));
  spec.options.push_back(
      {"shape", "2,3", "Shape of the next operand of an einsum, in place of a file.", true});
  spec.options.push_back({"json", "", "Print one JSON object with everything the server tells."});
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  spec.min_positionals = 1;
  spec.max_positionals = 100000;
  return spec;
}

int RunEstimate(const Arguments& arguments, const Session& session) {
  const absl::Status status = Run(arguments, session);
  return status.ok() ? kExitOk : Fail(session, status);
}

}  // namespace tenon::tool
