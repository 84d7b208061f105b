#include <string>
#include <utility>
#include <vector>

#include "backends/core/error.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/json.h"
#include "client/cpp/tool/text.h"
#include "client/cpp/tool/values.h"

namespace tenon::tool {
namespace {

std::string BytesText(int64_t bytes) {
  return bytes == 0 ? "no limit" : FormatBytes(static_cast<double>(bytes));
}

// "3 of 10"; what nobody limits may not be counted, so it is not told.
std::string UsedText(int64_t used, int64_t limit) {
  return limit == 0 ? "no limit" : StrCat(used, " of ", limit);
}

std::string QuotasText(const v1::CallerQuotas& quotas) {
  const auto bytes = [](int64_t count) { return FormatBytes(static_cast<double>(count)); };
  std::string text =
      StrCat("calls ", UsedText(quotas.calls(), quotas.max_calls()), ", stored ",
             bytes(quotas.stored_bytes()), quotas.max_stored_bytes() == 0 ? ", " : " of ",
             BytesText(quotas.max_stored_bytes()));
  if (quotas.max_jobs() > 0) text += StrCat(", jobs ", UsedText(quotas.jobs(), quotas.max_jobs()));
  return text;
}

void PrintServer(const v1::GetServerInfoResponse& info, const std::string& address,
                 std::ostream* out) {
  const v1::ServerLimits& limits = info.limits();
  std::string version = StrCat("tenond ", info.version());
  if (!info.commit().empty()) version += StrCat(" (", info.commit(), ")");
  std::string missing;
  for (const v1::Feature& feature : info.features()) {
    if (!feature.available()) missing += StrCat(missing.empty() ? "" : ", ", feature.name());
  }
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"up", FormatSeconds(info.uptime_seconds())},
      {"machine",
       StrCat(info.host().cpu_model(), ", ", info.host().isa(), ", ", info.host().threads(),
              " threads, ", FormatBytes(static_cast<double>(info.host().memory_bytes())))},
      {"memory budget", StrCat(BytesText(limits.memory_budget_bytes()), ", per request ",
                               BytesText(limits.request_memory_bytes()))},
      {"largest message", FormatBytes(static_cast<double>(limits.max_message_bytes()))},
      {"not offered", missing.empty() ? "nothing is missing" : missing}};
  if (info.has_quotas()) pairs.emplace_back("your quotas", QuotasText(info.quotas()));
  *out << version << " at " << address << ", " << ShortEnumName(info.state()) << "\n"
       << FormatPairs(pairs);
}

void PrintProviders(const v1::ListProvidersResponse& list, std::ostream* out) {
  std::vector<std::vector<std::string>> rows;
  for (const v1::Provider& provider : list.providers()) {
    rows.push_back({provider.name(), provider.kind(), ShortEnumName(provider.state()),
                    FormatBytes(static_cast<double>(provider.memory_free_bytes())),
                    StrCat(provider.workers()),
                    provider.has_error() ? provider.error().message() : provider.description()});
  }
  *out << "\n"
       << FormatTable({"provider", "kind", "state", "free memory", "workers", "description"}, rows);
}

absl::StatusOr<v1::GetServerInfoResponse> Ask(client::Client* client, const Arguments& arguments,
                                              const client::CallOptions& options) {
  TENON_ASSIGN_OR_RETURN(const auto wait, GetParsed<double>(arguments, "wait", ParsePositive));
  if (!wait.has_value()) return client->GetServerInfo(options);
  return client->WaitUntilReady(absl::Seconds(*wait), options);
}

absl::Status Run(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(client::Client client, Connect(arguments));
  TENON_ASSIGN_OR_RETURN(const client::CallOptions options, CallOptionsOf(arguments, session));
  TENON_ASSIGN_OR_RETURN(const v1::GetServerInfoResponse info, Ask(&client, arguments, options));
  TENON_ASSIGN_OR_RETURN(const v1::ListProvidersResponse providers,
                         client.ListProviders(arguments.Get("provider").value_or(""), options));
  if (arguments.Has("json")) {
    Json json;
    json["server"] = MessageToJson(info);
    json["providers"] = MessageToJson(providers)["providers"];
    *session.out << Dump(json) << "\n";
  } else {
    PrintServer(info, ServerAddress(arguments), session.out);
    PrintProviders(providers, session.out);
  }
  return absl::OkStatus();
}

}  // namespace

CommandSpec InfoSpec() {
  CommandSpec spec;
  spec.name = "info";
  spec.summary = "Tells what the server is and which providers it has.";
  spec.example = "tenon info --wait 30";
  spec.options = {{"wait", "SECONDS", "Wait up to this long until the server is ready."},
                  {"provider", "NAME", "Only this provider."},
                  {"json", "", "Print one JSON object with 'server' and 'providers'."}};
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  return spec;
}

int RunInfo(const Arguments& arguments, const Session& session) {
  const absl::Status status = Run(arguments, session);
  return status.ok() ? kExitOk : Fail(session, status);
}

}  // namespace tenon::tool
