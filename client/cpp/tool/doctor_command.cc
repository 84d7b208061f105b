#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "backends/core/checkup.h"
#include "backends/core/error.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/json.h"
#include "client/cpp/tool/text.h"

namespace tenon::tool {
namespace {

constexpr double kSlowSeconds = 0.1;  // of the round trip of a small call
constexpr absl::Duration kClockSlack = absl::Seconds(5);

Finding ExamineVersion(const v1::GetServerInfoResponse& info) {
  Finding finding{"version", Verdict::kOk,
                  StrCat("server ", info.version(), ", this program ", TENON_VERSION), ""};
  if (info.version() != TENON_VERSION) {
    finding.verdict = Verdict::kWarn;
    finding.advice = "what one of the two does not know yet is refused: use the same version";
  }
  return finding;
}

Finding ExamineBuild(const v1::BuildInfo& build) {
  Finding finding{"build", Verdict::kOk,
                  StrCat(build.type(), ", ", build.compiler(), ", gRPC ", build.grpc_version(),
                         ", Protobuf ", build.protobuf_version()),
                  ""};
  if (build.type() != "Release" || build.sanitizers_size() > 0) {
    finding.verdict = Verdict::kWarn;
    finding.advice = "the server was built for tests: it is slow";
  }
  return finding;
}

Finding ExamineState(const v1::GetServerInfoResponse& info) {
  const std::string fact =
      StrCat(ShortEnumName(info.state()), ", up ", FormatSeconds(info.uptime_seconds()));
  switch (info.state()) {
    case v1::SERVER_STATE_READY:
      return {"state", Verdict::kOk, fact, ""};
    case v1::SERVER_STATE_STARTING:
      return {"state", Verdict::kWarn, fact, "wait until it is ready: tenon info --wait 60"};
    default:
      return {"state", Verdict::kFail, fact, "it is on its way out: use another server"};
  }
}

Finding ExamineMachine(const v1::GetServerInfoResponse& info) {
  const v1::HostInfo& host = info.host();
  const int64_t budget = info.limits().memory_budget_bytes();
  Finding finding{"machine", Verdict::kOk,
                  StrCat(host.cpu_model(), ", ", host.isa(), ", ", host.threads(), " threads, ",
                         FormatBytes(static_cast<double>(host.memory_bytes())), " of memory, ",
                         FormatBytes(static_cast<double>(budget)), " for work, ", host.os()),
                  ""};
  // Code, stacks and buffers of the transport need some, too.
  if (static_cast<double>(budget) > 0.95 * static_cast<double>(host.memory_bytes())) {
    finding.verdict = Verdict::kWarn;
    finding.advice = "work may take all memory: lower the server's --memory_budget";
  }
  return finding;
}

Finding ExamineRoundTrip(double seconds) {
  Finding finding{"round trip", Verdict::kOk, FormatSeconds(seconds), ""};
  if (seconds > kSlowSeconds) {
    finding.verdict = Verdict::kWarn;
    finding.advice = "the network or the machine is busy; small calls take at least as long";
  }
  return finding;
}

Finding ExamineClock(const v1::GetServerInfoResponse& info) {
  const absl::Time start = absl::FromUnixSeconds(info.start_time().seconds()) +
                           absl::Nanoseconds(info.start_time().nanos());
  const absl::Duration apart = absl::Now() - (start + absl::Seconds(info.uptime_seconds()));
  const std::string fact =
      StrCat("the server's is ", absl::FormatDuration(absl::Trunc(apart, absl::Milliseconds(1))),
             " behind this machine's");
  if (absl::AbsDuration(apart) <= kClockSlack) return {"clock", Verdict::kOk, fact, ""};
  return {"clock", Verdict::kWarn, fact, "run a time service on both"};
}

Finding ExamineProvider(const v1::Provider& provider) {
  const std::string subject = StrCat("provider ", provider.name());
  const std::string state = ShortEnumName(provider.state());
  switch (provider.state()) {
    case v1::PROVIDER_STATE_READY:
      return {subject, Verdict::kOk,
              StrCat(state, ", ", provider.description(), ", ",
                     FormatBytes(static_cast<double>(provider.memory_free_bytes())), " free"),
              ""};
    case v1::PROVIDER_STATE_ABSENT:
      return {subject, Verdict::kOk, StrCat(state, ": ", provider.error().message()), ""};
    case v1::PROVIDER_STATE_FAILED:
      return {subject, Verdict::kFail, StrCat(state, ": ", provider.error().message()),
              "restart the server; if it comes back, look at the device"};
    default:
      return {subject, Verdict::kWarn, state, "wait until it is ready"};
  }
}

Finding ExamineFeatures(const v1::GetServerInfoResponse& info) {
  std::string missing;
  for (const v1::Feature& feature : info.features()) {
    if (feature.available()) continue;
    missing += StrCat(missing.empty() ? "" : "; ", feature.name());
    if (!feature.detail().empty()) missing += StrCat(" (", feature.detail(), ")");
  }
  return {"not offered", Verdict::kOk, missing.empty() ? "nothing is missing" : missing, ""};
}

std::vector<Finding> Examine(const Arguments& arguments, const Session& session,
                             client::Client* client, const client::CallOptions& options,
                             bool* interrupted) {
  const std::string address = ServerAddress(arguments);
  const auto start = std::chrono::steady_clock::now();
  auto info = client->GetServerInfo(options);
  *interrupted = !info.ok() && session.canceller->cancelled();
  if (!info.ok()) {
    return {{"server", Verdict::kFail, StrCat(address, ": ", info.status().message()),
             "start tenond, or name another with --server; 'tenond --doctor' examines the machine "
             "that it is to run on"}};
  }
  // The first call paid for the connection.
  const auto again = std::chrono::steady_clock::now();
  info = client->GetServerInfo(options);
  const auto end = std::chrono::steady_clock::now();
  if (!info.ok()) {
    return {{"server", Verdict::kFail, StrCat(address, ": ", info.status().message()),
             "the connection broke between two calls: look at the server's log"}};
  }
  std::vector<Finding> findings = {
      {"server", Verdict::kOk,
       StrCat(address, ", connected in ",
              FormatSeconds(std::chrono::duration<double>(again - start).count())),
       ""},
      ExamineRoundTrip(std::chrono::duration<double>(end - again).count()),
      ExamineVersion(*info),
      ExamineBuild(info->build()),
      ExamineState(*info),
      ExamineMachine(*info),
      ExamineClock(*info)};
  const auto providers = client->ListProviders("", options);
  if (!providers.ok()) {
    findings.push_back({"providers", Verdict::kFail, std::string(providers.status().message()),
                        "look at the server's log"});
  } else {
    for (const v1::Provider& provider : providers->providers()) {
      findings.push_back(ExamineProvider(provider));
    }
  }
  findings.push_back(ExamineFeatures(*info));
  return findings;
}

}  // namespace

CommandSpec DoctorSpec() {
  CommandSpec spec;
  spec.name = "doctor";
  spec.summary = "Examines a server from here and tells what to do about what it finds.";
  spec.example = "tenon doctor --server 127.0.0.1:50551";
  spec.exit_codes = "0 nothing fails, 1 something does, 2 usage, 130 interrupted.";
  spec.details =
      "'tenond --doctor' examines the machine itself: limits, directories, ports, devices.";
  spec.options = {{"json", "", "Print one JSON object with 'ok' and 'findings'."}};
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  return spec;
}

int RunDoctor(const Arguments& arguments, const Session& session) {
  absl::StatusOr<client::Client> client = Connect(arguments);
  if (!client.ok()) return Fail(session, client.status());
  const absl::StatusOr<client::CallOptions> options = CallOptionsOf(arguments, session);
  if (!options.ok()) return Fail(session, options.status());
  bool interrupted = false;
  const std::vector<Finding> findings =
      Examine(arguments, session, &*client, *options, &interrupted);
  *session.out << (arguments.Has("json") ? FindingsJson(findings) + "\n" : FindingsText(findings));
  if (interrupted) return kExitInterrupted;
  return AnyFailed(findings) ? kExitCheckFailed : kExitOk;
}

}  // namespace tenon::tool
