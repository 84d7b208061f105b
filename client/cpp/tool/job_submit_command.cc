#include <utility>

#include "backends/core/error.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/job_text.h"
#include "client/cpp/tool/json.h"
#include "client/cpp/tool/network_input.h"
#include "client/cpp/tool/text.h"
#include "client/cpp/tool/values.h"

namespace tenon::tool {
namespace {

absl::StatusOr<std::optional<absl::Duration>> Seconds(const Arguments& arguments,
                                                      std::string_view name) {
  TENON_ASSIGN_OR_RETURN(const auto seconds, GetParsed<double>(arguments, name, ParsePositive));
  if (!seconds.has_value()) return std::optional<absl::Duration>();
  return std::optional(absl::Seconds(*seconds));
}

absl::Status Run(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(NetworkInput input, LoadNetworkInput(arguments, true));
  client::JobRequest request;
  request.contraction = std::move(input.request);
  request.contraction.request_id = arguments.Get("request-id").value_or("");
  request.display_name = arguments.Get("display-name").value_or(input.name.substr(0, 256));
  TENON_ASSIGN_OR_RETURN(request.ttl, Seconds(arguments, "ttl"));
  TENON_ASSIGN_OR_RETURN(request.max_run_time, Seconds(arguments, "max-run-time"));
  TENON_ASSIGN_OR_RETURN(client::Client client, Connect(arguments));
  TENON_ASSIGN_OR_RETURN(const client::CallOptions options, CallOptionsOf(arguments, session));
  TENON_ASSIGN_OR_RETURN(const v1::SubmitContractionResponse response,
                         client.SubmitJob(request, options));
  if (arguments.Has("json")) {
    *session.out << Dump(MessageToJson(response)) << "\n";
    return absl::OkStatus();
  }
  *session.out << FormatJob(response.job())
               << FormatPairs({{"planned peak", FormatPlannedPeak(response.planned_peak_bytes())}});
  if (response.has_estimated_seconds()) {
    *session.out << FormatPairs({{"should run", FormatSeconds(response.estimated_seconds())}});
  }
  if (response.existed()) *session.out << "it existed already\n";
  return absl::OkStatus();
}

}  // namespace

CommandSpec JobSubmitSpec() {
  CommandSpec spec;
  spec.name = "job submit";
  spec.usage = "NETWORK.json | 'ab,bc->ac' A.npy B.npy ...";
  spec.summary = "Submits a contraction that the server keeps and runs by itself.";
  spec.details =
      "Returns once the job is stored; it then outlives the connection and the server's process.\n"
      "Operands and plan as with 'tenon contract'.";
  spec.example = "tenon job submit network.json --request-id night-1 --ttl 86400";
  spec.options = NetworkOptions();
  for (Option& option : PlanChoiceOptions()) spec.options.push_back(std::move(option));
  spec.options.push_back(
      {"request-id", "TEXT", "Submitting again with the same one returns the job that there is."});
  spec.options.push_back({"display-name", "TEXT", "Text for people; default: the network's name."});
  spec.options.push_back({"ttl", "SECONDS", "Keep the job so long after its end."});
  spec.options.push_back({"max-run-time", "SECONDS", "Fail when it has run so long."});
  spec.options.push_back({"json", "", "Print one JSON object with what the server answers."});
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  spec.min_positionals = 1;
  spec.max_positionals = 100000;
  return spec;
}

int RunJobSubmit(const Arguments& arguments, const Session& session) {
  const absl::Status status = Run(arguments, session);
  return status.ok() ? kExitOk : Fail(session, status);
}

}  // namespace tenon::tool
