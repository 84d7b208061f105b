#include <string>
#include <utility>
#include <vector>

#include "backends/core/error.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/json.h"
#include "client/cpp/tool/text.h"

namespace tenon::tool {
namespace {

std::string FailuresText(const v1::MethodStatistics& method) {
  std::string text;
  for (const v1::ReasonCount& failure : method.failures()) {
    text += StrCat(text.empty() ? "" : ", ", failure.count(), " ", failure.reason());
  }
  return text;
}

void Print(const v1::GetStatisticsResponse& statistics, std::ostream* out) {
  std::vector<std::vector<std::string>> rows;
  for (const v1::MethodStatistics& method : statistics.methods()) {
    rows.push_back({method.method(), StrCat(method.started()), StrCat(method.active()),
                    StrCat(method.items()),
                    FormatBytes(static_cast<double>(method.received_bytes())),
                    FormatBytes(static_cast<double>(method.sent_bytes())), FailuresText(method)});
  }
  *out << FormatTable({"method", "calls", "now", "items", "received", "sent", "failed"}, rows);
}

absl::Status Run(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(client::Client client, Connect(arguments));
  TENON_ASSIGN_OR_RETURN(const client::CallOptions options, CallOptionsOf(arguments, session));
  const std::vector<std::string>& prefixes = arguments.positionals();
  TENON_ASSIGN_OR_RETURN(const v1::GetStatisticsResponse statistics,
                         client.GetStatistics(prefixes.empty() ? "" : prefixes[0], options));
  if (arguments.Has("json")) {
    *session.out << Dump(MessageToJson(statistics)) << "\n";
  } else {
    Print(statistics, session.out);
  }
  return absl::OkStatus();
}

}  // namespace

CommandSpec StatisticsSpec() {
  CommandSpec spec;
  spec.name = "statistics";
  spec.usage = "[METHOD_PREFIX]";
  spec.summary = "Tells calls, failures, bytes and seconds since the server's start.";
  spec.details = "--json has the seconds of each phase, too. /metrics of the server has the same.";
  spec.example = "tenon statistics tenon.v1.ContractionService";
  spec.options = {{"json", "", "Print one JSON object with everything the server tells."}};
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  spec.max_positionals = 1;
  return spec;
}

int RunStatistics(const Arguments& arguments, const Session& session) {
  const absl::Status status = Run(arguments, session);
  return status.ok() ? kExitOk : Fail(session, status);
}

}  // namespace tenon::tool
