#include <string>
#include <utility>

#include "backends/core/error.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/json.h"
#include "client/cpp/tool/text.h"
#include "client/cpp/tool/values.h"

namespace tenon::tool {
namespace {

absl::Status BadArgument(const std::string& option, const std::string& what) {
  return Error(Reason::kBadParameter, what).Field(option);
}

absl::StatusOr<double> ParseDelay(std::string_view text, std::string_view option) {
  if (text == "0") return 0.0;
  return ParsePositive(text, option);
}

void Print(const google::protobuf::Message& answer, const std::string& text,
           const Arguments& arguments, const Session& session) {
  *session.out << (arguments.Has("json") ? Dump(MessageToJson(answer)) : text) << "\n";
}

absl::Status Drain(client::Client* client, const Arguments& arguments, const Session& session,
                   const client::CallOptions& options) {
  v1::DrainRequest request;
  TENON_ASSIGN_OR_RETURN(const auto delay, GetParsed<double>(arguments, "delay", ParseDelay));
  TENON_ASSIGN_OR_RETURN(const auto grace, GetParsed<double>(arguments, "grace", ParseDelay));
  if (delay.has_value()) request.set_delay_seconds(*delay);
  if (grace.has_value()) request.set_grace_seconds(*grace);
  TENON_ASSIGN_OR_RETURN(const v1::DrainResponse answer, client->Drain(request, options));
  Print(answer,
        StrCat("the server is in state ", ShortEnumName(answer.state()), " and has ",
               answer.active_calls(), " calls open"),
        arguments, session);
  return absl::OkStatus();
}

absl::Status SetLogLevel(client::Client* client, const Arguments& arguments, const Session& session,
                         const client::CallOptions& options) {
  if (arguments.positionals().size() != 2) {
    return BadArgument("LEVEL", "log-level needs one of error, warning, info, debug, trace");
  }
  v1::SetLogLevelRequest request;
  const std::string& level = arguments.positionals()[1];
  for (int number = v1::LogLevel_MIN; number <= v1::LogLevel_MAX; ++number) {
    const auto known = static_cast<v1::LogLevel>(number);
    if (number != 0 && ShortEnumName(known) == level) request.set_level(known);
  }
  if (request.level() == v1::LOG_LEVEL_UNSPECIFIED) {
    return BadArgument("LEVEL", StrCat("'", level,
                                       "' is no level; expected is error, warning, info, debug "
                                       "or trace"));
  }
  request.set_component(arguments.Get("component").value_or(""));
  TENON_ASSIGN_OR_RETURN(const v1::SetLogLevelResponse answer,
                         client->SetLogLevel(request, options));
  Print(answer, StrCat("the level was ", ShortEnumName(answer.previous_level())), arguments,
        session);
  return absl::OkStatus();
}

absl::Status Trim(client::Client* client, const Arguments& arguments, const Session& session,
                  const client::CallOptions& options) {
  v1::TrimRequest request;
  request.set_resources(arguments.Has("resources"));
  request.set_caches(arguments.Has("caches"));
  request.set_stored(arguments.Has("stored"));
  request.set_allocator(true);
  TENON_ASSIGN_OR_RETURN(const v1::TrimResponse answer, client->Trim(request, options));
  const auto bytes = [](int64_t count) { return FormatBytes(static_cast<double>(count)); };
  Print(
      answer,
      StrCat(bytes(answer.freed_bytes()), " freed; resident memory was ",
             bytes(answer.resident_before_bytes()), ", is ", bytes(answer.resident_after_bytes())),
      arguments, session);
  return absl::OkStatus();
}

absl::Status Run(const Arguments& arguments, const Session& session) {
  const std::string& verb = arguments.positionals()[0];
  const bool takes_level = verb == "log-level";
  if (verb != "drain" && verb != "trim" && !takes_level) {
    return BadArgument("VERB", StrCat("'", verb,
                                      "' is no verb; expected is drain, log-level or "
                                      "trim"));
  }
  if (!takes_level && arguments.positionals().size() > 1) {
    return BadArgument("VERB", StrCat(verb, " takes no further argument"));
  }
  TENON_ASSIGN_OR_RETURN(client::Client client, Connect(arguments));
  TENON_ASSIGN_OR_RETURN(const client::CallOptions options, CallOptionsOf(arguments, session));
  if (verb == "drain") return Drain(&client, arguments, session, options);
  if (verb == "trim") return Trim(&client, arguments, session, options);
  return SetLogLevel(&client, arguments, session, options);
}

}  // namespace

CommandSpec AdminSpec() {
  CommandSpec spec;
  spec.name = "admin";
  spec.usage = "drain | log-level LEVEL | trim";
  spec.summary = "Shuts a server down, changes its log, or has it give memory back.";
  spec.details =
      "drain shuts down as SIGTERM does. log-level sets error, warning, info, debug or trace. "
      "trim\n"
      "gives free memory back to the system, and with the options below makes more of it free.\n"
      "Only for administrators; without tokens or client certificates those are all callers on\n"
      "the server's machine.";
  spec.example = "tenon admin log-level debug --component admission";
  spec.choices = {"drain", "log-level", "trim"};
  spec.options = {
      {"delay", "SECONDS", "drain: accept work for this long (default: as configured)."},
      {"grace", "SECONDS",
       "drain: let work run for this long after that (default: as configured)."},
      {"component", "NAME", "log-level: of one part of the server alone."},
      {"resources", "", "trim: forget what was built from data sets."},
      {"caches", "", "trim: forget plans and programs."},
      {"stored", "", "trim: forget data sets and tensors that no call uses, whose ever they are."},
      {"json", "", "Print one JSON object."}};
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  spec.min_positionals = 1;
  spec.max_positionals = 2;
  return spec;
}

int RunAdmin(const Arguments& arguments, const Session& session) {
  const absl::Status status = Run(arguments, session);
  return status.ok() ? kExitOk : Fail(session, status);
}

}  // namespace tenon::tool
