// The commands about jobs that there are.

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "backends/core/error.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/enums.h"
#include "client/cpp/tool/job_text.h"
#include "client/cpp/tool/json.h"
#include "client/cpp/tool/npz.h"
#include "client/cpp/tool/progress_bar.h"
#include "client/cpp/tool/text.h"
#include "client/cpp/tool/values.h"
#include "google/protobuf/util/time_util.h"

namespace tenon::tool {
namespace {

using google::protobuf::util::TimeUtil;

// What every command here calls with.
struct Call {
  client::Client client;
  client::CallOptions options;
};

absl::StatusOr<Call> Prepare(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(client::Client client, Connect(arguments));
  TENON_ASSIGN_OR_RETURN(const client::CallOptions options, CallOptionsOf(arguments, session));
  return Call{std::move(client), options};
}

void Print(const v1::Job& job, const Arguments& arguments, const Session& session) {
  *session.out << (arguments.Has("json") ? Dump(MessageToJson(job)) + "\n" : FormatJob(job));
}

// --reconnect, for the commands that outlive a restart of the server.
Option ReconnectOption() {
  return {"reconnect", "SECONDS",
          "When the connection breaks, try again for so long (default: 60; 0: give up at once)."};
}

// `clear` makes room on the terminal.
absl::StatusOr<client::JobRetry> RetryOf(const Arguments& arguments, const Session& session,
                                         std::function<void()> clear) {
  client::JobRetry retry;
  if (arguments.Get("reconnect") == "0") {
    retry.patience = absl::ZeroDuration();
  } else {
    TENON_ASSIGN_OR_RETURN(const auto seconds,
                           GetParsed<double>(arguments, "reconnect", ParsePositive));
    if (seconds.has_value()) retry.patience = absl::Seconds(*seconds);
  }
  retry.on_break = [&session, clear = std::move(clear)](const absl::Status& error,
                                                        absl::Duration pause) {
    clear();
    *session.err << "tenon: " << error.message() << "; trying again in "
                 << FormatSeconds(absl::ToDoubleSeconds(pause)) << "\n"
                 << std::flush;
  };
  return retry;
}

int ExitOf(const absl::Status& status, const Session& session) {
  return status.ok() ? kExitOk : Fail(session, status);
}

CommandSpec SpecOfOne(const char* name, const char* summary) {
  CommandSpec spec;
  spec.name = name;
  spec.example = StrCat("tenon ", name, " jobs/0123abcd");
  spec.usage = "JOB";
  spec.summary = summary;
  spec.details = "JOB is the name that 'tenon job submit' printed, \"jobs/...\", or the id alone.";
  spec.options.push_back({"json", "", "Print one JSON object with what the server tells."});
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  spec.min_positionals = 1;
  spec.max_positionals = 1;
  return spec;
}

absl::StatusOr<v1::JobState> ParseState(std::string_view text) {
  for (int state = 1; v1::JobState_IsValid(state); ++state) {
    const auto value = static_cast<v1::JobState>(state);
    if (ShortEnumName(value) == text) return value;
  }
  return Error(Reason::kBadParameter, StrCat("--state: there is no state '", text, "'"))
      .Field("--state");
}

std::optional<double> Fraction(const v1::ContractProgress& progress) {
  if (!(progress.flops_total() > 0)) return std::nullopt;
  return progress.flops_done() / progress.flops_total();
}

std::string ProgressText(const v1::ContractProgress& progress) {
  std::string text = StrCat("slice ", progress.slices_done(), " of ", progress.slices_total());
  if (progress.has_left_seconds()) {
    text += StrCat(", ", FormatSeconds(progress.left_seconds()), " left");
  }
  return text;
}

absl::Status List(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(Call call, Prepare(arguments, session));
  v1::ListJobsRequest request;
  request.set_all_owners(arguments.Has("all-owners"));
  for (const std::string& text : arguments.All("state")) {
    TENON_ASSIGN_OR_RETURN(const v1::JobState state, ParseState(text));
    request.add_states(state);
  }
  Json all = Json::array();
  std::vector<std::vector<std::string>> rows;
  do {
    TENON_ASSIGN_OR_RETURN(const v1::ListJobsResponse page,
                           call.client.ListJobs(request, call.options));
    for (const v1::Job& job : page.jobs()) {
      if (arguments.Has("json")) all.push_back(MessageToJson(job));
      rows.push_back({job.name(), ShortEnumName(job.state()),
                      StrCat(job.groups_done(), "/", job.groups_total()),
                      FormatBytes(static_cast<double>(job.stored_bytes())),
                      TimeUtil::ToString(job.create_time()), job.display_name()});
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  if (arguments.Has("json")) {
    *session.out << Dump(all) << "\n";
  } else {
    *session.out << FormatTable({"job", "state", "groups", "stored", "made", "text"}, rows);
  }
  return absl::OkStatus();
}

absl::Status Show(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(Call call, Prepare(arguments, session));
  TENON_ASSIGN_OR_RETURN(const v1::Job job,
                         call.client.GetJob(JobName(arguments.positionals()[0]), call.options));
  Print(job, arguments, session);
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> Follow(const Arguments& arguments, const Session& session) {
  constexpr absl::Duration kOnTerminal = absl::Milliseconds(250);
  TENON_ASSIGN_OR_RETURN(Call call, Prepare(arguments, session));
  ProgressBar bar(session.err, session.err_is_terminal);
  client::JobWatchOptions watch;
  watch.progress_interval = bar.enabled() ? kOnTerminal : absl::Seconds(5);
  TENON_ASSIGN_OR_RETURN(watch.retry, RetryOf(arguments, session, [&] { bar.Clear(); }));
  client::JobCallbacks callbacks;
  std::optional<v1::JobState> last;
  callbacks.on_job = [&](const v1::Job& job) {
    bar.Clear();
    // After a break the state comes again.
    if (std::exchange(last, job.state()) == job.state() || arguments.Has("json")) return;
    *session.out << ShortEnumName(job.state()) << "\n" << std::flush;
  };
  if (bar.enabled()) {
    callbacks.on_progress = [&](const v1::ContractProgress& progress) {
      bar.Update(Fraction(progress), ProgressText(progress));
    };
  }
  return call.client.WatchJob(JobName(arguments.positionals()[0]), call.options, callbacks, watch);
}

absl::StatusOr<int> Watch(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(const v1::Job job, Follow(arguments, session));
  Print(job, arguments, session);
  return job.state() == v1::JOB_STATE_SUCCEEDED ? kExitOk : kExitRefused;
}

absl::Status Result(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(Call call, Prepare(arguments, session));
  TENON_ASSIGN_OR_RETURN(const client::JobRetry retry, RetryOf(arguments, session, [] {}));
  TENON_ASSIGN_OR_RETURN(
      const client::JobResult result,
      call.client.ReadJobResult(JobName(arguments.positionals()[0]), call.options, retry));
  if (const auto path = arguments.Get("output")) {
    TENON_RETURN_IF_ERROR(WriteArrayFile(*path, "result", result.tensor));
  }
  if (arguments.Has("json")) {
    *session.out << "{\"value\": ";
    TENON_RETURN_IF_ERROR(WriteTensorJson(result.tensor, session.out));
    if (result.log10_scale.has_value()) {
      *session.out << ", \"log10_scale\": " << Dump(*result.log10_scale);
    }
    *session.out << "}\n";
    return absl::OkStatus();
  }
  *session.out << FormatTensor(result.tensor) << "\n";
  if (result.log10_scale.has_value()) {
    *session.out << "times 10 to the power " << FormatNumber(*result.log10_scale, 17) << "\n";
  }
  return absl::OkStatus();
}

absl::Status Cancel(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(Call call, Prepare(arguments, session));
  TENON_ASSIGN_OR_RETURN(const v1::Job job,
                         call.client.CancelJob(JobName(arguments.positionals()[0]), call.options));
  Print(job, arguments, session);
  return absl::OkStatus();
}

absl::Status Delete(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(Call call, Prepare(arguments, session));
  TENON_ASSIGN_OR_RETURN(const int64_t bytes,
                         call.client.DeleteJob(JobName(arguments.positionals()[0]), call.options));
  if (arguments.Has("json")) {
    Json json;
    json["freed_bytes"] = bytes;
    *session.out << Dump(json) << "\n";
  } else {
    *session.out << "freed " << FormatBytes(static_cast<double>(bytes)) << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

std::string JobName(const std::string& argument) {
  return argument.rfind("jobs/", 0) == 0 ? argument : StrCat("jobs/", argument);
}

std::string FormatJob(const v1::Job& job) {
  std::vector<std::pair<std::string, std::string>> rows = {
      {"job", job.name()},
      {"state", ShortEnumName(job.state())},
      {"request id", job.request_id()},
      {"made", TimeUtil::ToString(job.create_time())}};
  if (!job.display_name().empty()) rows.emplace_back("text", job.display_name());
  if (!job.owner().empty()) rows.emplace_back("owner", job.owner());
  if (job.has_start_time()) rows.emplace_back("began", TimeUtil::ToString(job.start_time()));
  if (job.has_end_time()) rows.emplace_back("ended", TimeUtil::ToString(job.end_time()));
  if (job.has_expire_time()) rows.emplace_back("kept until", TimeUtil::ToString(job.expire_time()));
  const std::vector<int64_t> shape(job.result_spec().shape().begin(),
                                   job.result_spec().shape().end());
  rows.emplace_back("result",
                    StrCat(ShortEnumName(job.result_spec().dtype()), " ", FormatShape(shape)));
  rows.emplace_back("groups", StrCat(job.groups_done(), " of ", job.groups_total(), " stored"));
  rows.emplace_back("stored", FormatBytes(static_cast<double>(job.stored_bytes())));
  if (job.resume_count() > 0) rows.emplace_back("resumed", StrCat(job.resume_count(), " times"));
  if (job.has_error()) {
    rows.emplace_back("error", StrCat(job.error().reason(), ": ", job.error().message()));
  }
  return FormatPairs(rows);
}

CommandSpec JobListSpec() {
  CommandSpec spec;
  spec.name = "job list";
  spec.summary = "Lists jobs, the newest first.";
  spec.example = "tenon job list --state running --state queued";
  spec.options = {{"state", "STATE", "Only jobs that are queued, running, succeeded, ...", true,
                   EnumNames<v1::JobState>()},
                  {"all-owners", "", "Of all principals; only for administrators."},
                  {"json", "", "Print one JSON array of jobs."}};
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  return spec;
}

CommandSpec JobShowSpec() { return SpecOfOne("job show", "Describes a job."); }

CommandSpec JobWatchSpec() {
  CommandSpec spec = SpecOfOne("job watch", "Follows a job to its end.");
  spec.details +=
      "\nA server that restarts goes on with its jobs, and the command with watching them.";
  spec.exit_codes =
      "0 the job has succeeded, 2 usage, 3 the server refused, or the job did not succeed, 4 the "
      "server can't be reached, 130 interrupted.";
  spec.options.insert(spec.options.begin(), ReconnectOption());
  return spec;
}

CommandSpec JobResultSpec() {
  CommandSpec spec = SpecOfOne("job result", "Reads the result of a job that has succeeded.");
  spec.options.insert(
      spec.options.begin(),
      {{"output", "FILE", "Write the result to a .npy or .npz file, without its scale."},
       ReconnectOption()});
  return spec;
}

CommandSpec JobCancelSpec() { return SpecOfOne("job cancel", "Asks a job to end."); }

CommandSpec JobDeleteSpec() {
  return SpecOfOne("job delete", "Forgets a job that has ended, with its result.");
}

int RunJobList(const Arguments& arguments, const Session& session) {
  return ExitOf(List(arguments, session), session);
}
int RunJobShow(const Arguments& arguments, const Session& session) {
  return ExitOf(Show(arguments, session), session);
}
int RunJobWatch(const Arguments& arguments, const Session& session) {
  const absl::StatusOr<int> code = Watch(arguments, session);
  return code.ok() ? *code : Fail(session, code.status());
}
int RunJobResult(const Arguments& arguments, const Session& session) {
  return ExitOf(Result(arguments, session), session);
}
int RunJobCancel(const Arguments& arguments, const Session& session) {
  return ExitOf(Cancel(arguments, session), session);
}
int RunJobDelete(const Arguments& arguments, const Session& session) {
  return ExitOf(Delete(arguments, session), session);
}

}  // namespace tenon::tool
