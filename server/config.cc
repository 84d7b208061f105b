#include "server/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "backends/core/error.h"
#include "server/calibration_store.h"
#include "server/job_store.h"
#include "server/process_stats.h"
#include "server/scratch_space.h"
#include "server/security_settings.h"

ABSL_FLAG(std::vector<std::string>, listen, {"127.0.0.1:50551"},
          "Addresses to serve gRPC on: HOST:PORT or unix:PATH. Port 0 lets the system choose. May "
          "be given several times.");
ABSL_FLAG(std::string, metrics, "127.0.0.1:50552",
          "HTTP address of /metrics, /livez and /readyz. Empty: none.");
ABSL_FLAG(bool, insecure_listen, false,
          "Allow --listen and --metrics to name an address that other machines reach, without "
          "encryption.");
ABSL_FLAG(std::vector<std::string>, providers, (std::vector<std::string>{"cpu", "reference"}),
          "Providers to start.");
ABSL_FLAG(std::string, memory_budget, "80%",
          "Memory of all admitted work together: bytes with a unit (4GiB, 512MiB), or a percentage "
          "of what the control group, or else the machine, allows.");
ABSL_FLAG(int32_t, threads, 0,
          "Threads that a request may use. 0: as many as affinity and the control group's quota "
          "allow.");
ABSL_FLAG(int32_t, concurrent_requests, 2, "Requests that compute at the same time.");
ABSL_FLAG(
    int32_t, max_queued_requests, 64,
    "Requests of each class (interactive, default, bulk) that may wait for a slot, and as many "
    "again for memory.");
ABSL_FLAG(absl::Duration, max_queue_wait, absl::Seconds(30),
          "Requests that do not fit into memory now wait for at most this long until they do; then "
          "they are refused (OVERLOADED).");
ABSL_FLAG(int32_t, max_concurrent_streams, 128, "Calls at the same time on one connection.");
ABSL_FLAG(absl::Duration, write_stall_timeout, absl::Seconds(60),
          "A client that does not read for this long is cut (SLOW_READER).");
ABSL_FLAG(absl::Duration, read_stall_timeout, absl::Seconds(60),
          "A client that sends nothing for this long in the middle of an upload, whose memory is "
          "held for it, is cut (SLOW_WRITER). 0: never.");
ABSL_FLAG(absl::Duration, idle_stream_timeout, absl::Hours(1),
          "A stream that stands idle for this long, because the client sends neither another set "
          "or projection nor the end, is cut (SLOW_WRITER). 0: never.");
ABSL_FLAG(
    std::string, exit_when, "all",
    "Which providers must have failed, by a fault that they can't recover from, for the "
    "server to end as after SIGTERM, but with an error: any, all or never. A server without a "
    "usable provider is not ready in any case, and does not start.");
ABSL_FLAG(
    absl::Duration, stuck_work_limit, absl::Seconds(30),
    "A worker that goes on for this long after its work was cancelled is stuck: its request is "
    "logged and the server is not ready until it ends. 0: never.");
ABSL_FLAG(absl::Duration, slow_work_log, absl::Minutes(10),
          "A task that computes for this long, though nobody told it to stop, is logged once with "
          "its request and phase. 0: never.");
ABSL_FLAG(absl::Duration, drain_delay, absl::Seconds(5),
          "After the first SIGTERM, go on accepting work for this long while saying not ready, so "
          "that balancers look elsewhere.");
ABSL_FLAG(absl::Duration, grace_period, absl::Seconds(30),
          "After that, work in flight may go on for this long before it is cancelled.");
ABSL_FLAG(
    absl::Duration, kill_limit, absl::Seconds(5),
    "Cancelled work that has not ended after this long makes the process exit with an error.");
ABSL_FLAG(absl::Duration, keepalive_time, absl::Seconds(60),
          "Ping a silent connection after this long.");
ABSL_FLAG(absl::Duration, keepalive_timeout, absl::Seconds(20),
          "Close a connection whose ping is not answered for this long.");
ABSL_FLAG(absl::Duration, keepalive_min_client_interval, absl::Seconds(10),
          "Clients may ping this often.");
ABSL_FLAG(absl::Duration, max_connection_age, absl::ZeroDuration(),
          "Ask clients to reconnect after this long, so that new servers are found. 0: never.");
ABSL_FLAG(absl::Duration, max_connection_age_grace, absl::ZeroDuration(),
          "Calls of an aged connection may go on for this long. 0: until they end.");
ABSL_FLAG(absl::Duration, dataset_ttl, absl::Hours(1),
          "Data sets and tensors are kept for this long after their last use.");
ABSL_FLAG(std::string, data_root, "",
          "Directory whose files requests may name. Empty: requests may name no files.");
ABSL_FLAG(
    std::string, scratch_dir, "",
    "Directory of temporary files, made for this user alone when it is not there. Empty: "
    "tenond-UID in the system's directory of temporary files. What ended servers left in it is "
    "removed when the server starts.");
ABSL_FLAG(std::string, scratch_budget, "25%",
          "Temporary files of all calls together: bytes with a unit, or a percentage of what is "
          "free on the directory's file system when the server starts, which is taken as none if "
          "that lies in memory. 0: requests may have no temporary files.");
ABSL_FLAG(
    std::string, state_dir, "",
    "Directory in which jobs are kept, made for this user alone when it is not there. Only one "
    "server uses it at a time. Empty: no jobs are offered.");
ABSL_FLAG(
    std::string, state_budget, "50%",
    "What jobs may take in it together: bytes with a unit, or a percentage of what is free on "
    "its file system when the server starts.");
ABSL_FLAG(absl::Duration, job_ttl, absl::Hours(24),
          "Jobs are kept for this long after their end, unless they ask for another time.");
ABSL_FLAG(absl::Duration, max_job_ttl, absl::Hours(24 * 7), "The longest that they may ask for.");
ABSL_FLAG(int32_t, max_jobs, 1000, "Jobs that one principal may have.");
ABSL_FLAG(int32_t, concurrent_jobs, 1, "Jobs that run at the same time.");
ABSL_FLAG(
    std::string, shared_memory_socket, "",
    "Path of a Unix-domain socket on which clients of the same host may share memory with the "
    "server, instead of sending tensors. Empty: none.");
ABSL_FLAG(std::string, shared_memory_limit, "50%",
          "Memory that clients may share at the same time: bytes with a unit, or a percentage of "
          "--memory_budget, of which it is a part.");
ABSL_FLAG(std::string, shared_memory_pool_limit, "100%",
          "Memory that one connection may share: bytes with a unit, or a percentage of "
          "--shared_memory_limit.");
ABSL_FLAG(std::vector<std::string>, shared_memory_uids, {},
          "Numbers of the users that may share memory with the server, besides its own and root.");
ABSL_FLAG(std::string, calibration_dir, "",
          "Directory in which the times that providers measure when they start are kept for the "
          "next start, made when it is not there. Empty: tenon in the user's folder of caches. "
          "none: nothing is kept.");
ABSL_FLAG(std::string, port_file, "",
          "File to write once the ports are bound: the gRPC and the metrics port on one line, for "
          "scripts that listen on port 0. Empty: none.");
ABSL_FLAG(std::string, log_level, "info", "trace, debug, info, warning or error.");
ABSL_FLAG(std::string, log_format, "text", "text or json.");
ABSL_FLAG(bool, reflection, true, "Offer gRPC server reflection.");

namespace tenon::server {
namespace {

absl::Status BadSetting(const std::string& flag, const std::string& what) {
  return Error(Reason::kBadParameter, StrCat("--", flag, ": ", what)).Field(flag);
}

absl::Status CheckRange(const std::string& flag, int32_t value, int32_t lowest, int32_t highest) {
  if (value >= lowest && value <= highest) return absl::OkStatus();
  return BadSetting(flag, StrCat("expected ", lowest, " to ", highest, ", got ", value));
}

absl::Status CheckDuration(const std::string& flag, absl::Duration value, absl::Duration lowest) {
  constexpr absl::Duration kHighest = absl::Hours(24 * 20);  // milliseconds fit in an int
  if (value >= lowest && value <= kHighest) return absl::OkStatus();
  return BadSetting(flag,
                    StrCat("expected ", absl::FormatDuration(lowest), " to ",
                           absl::FormatDuration(kHighest), ", got ", absl::FormatDuration(value)));
}

absl::Status CheckChoice(const std::string& flag, const std::string& value,
                         const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return absl::OkStatus();
  return BadSetting(flag, StrCat("expected ", absl::StrJoin(choices, ", "), "; got '", value, "'"));
}

absl::StatusOr<std::string> CheckDirectory(const std::string& flag, const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const std::filesystem::path canonical = std::filesystem::canonical(path, error);
  if (error) return BadSetting(flag, StrCat("'", path, "': ", error.message()));
  if (!std::filesystem::is_directory(canonical, error)) {
    return BadSetting(flag, StrCat("'", path, "' is not a directory"));
  }
  return canonical.string();
}

// A directory that is there, or one that can be made in one that is.
absl::StatusOr<std::string> CheckNewDirectory(const std::string& flag, const std::string& path) {
  std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
  if (!normal.has_filename()) normal = normal.parent_path();
  std::error_code error;
  const auto status = std::filesystem::symlink_status(normal, error);
  if (path.empty() || status.type() != std::filesystem::file_type::not_found) {
    return CheckDirectory(flag, path);
  }
  const std::string parent = normal.parent_path().string();
  TENON_ASSIGN_OR_RETURN(const std::string above,
                         CheckDirectory(flag, parent.empty() ? "." : parent));
  return (std::filesystem::path(above) / normal.filename()).string();
}

absl::Status FillAddresses(Config* config) {
  for (const std::string& text : absl::GetFlag(FLAGS_listen)) {
    absl::StatusOr<Address> address = ParseAddress(text);
    if (!address.ok()) return BadSetting("listen", std::string(address.status().message()));
    if (!address->local && config->tls == nullptr && !absl::GetFlag(FLAGS_insecure_listen)) {
      return BadSetting("listen", StrCat("'", text,
                                         "' can be reached from other machines and is not "
                                         "encrypted; give --tls_cert and --tls_key, or "
                                         "--insecure_listen to allow that"));
    }
    config->listen.push_back(*std::move(address));
  }
  if (config->listen.empty()) return BadSetting("listen", "expected at least one address");
  config->metrics = absl::GetFlag(FLAGS_metrics);
  if (config->metrics.empty()) return absl::OkStatus();
  const absl::StatusOr<Address> metrics = ParseAddress(config->metrics);
  if (!metrics.ok()) return BadSetting("metrics", std::string(metrics.status().message()));
  if (metrics->is_unix) return BadSetting("metrics", "expected HOST:PORT");
  if (!metrics->local && !absl::GetFlag(FLAGS_insecure_listen)) {
    return BadSetting("metrics", StrCat("'", config->metrics,
                                        "' is reached from other machines; give --insecure_listen "
                                        "to allow that"));
  }
  return absl::OkStatus();
}

absl::Status FillResources(Config* config) {
  const std::string budget = absl::GetFlag(FLAGS_memory_budget);
  const absl::StatusOr<int64_t> bytes = ParseBytes(budget, UsableMemoryBytes());
  if (!bytes.ok()) return BadSetting("memory_budget", std::string(bytes.status().message()));
  constexpr int64_t kLeast = int64_t{16} << 20;
  if (*bytes < kLeast) {
    return BadSetting("memory_budget", StrCat("expected at least 16MiB, got ", *bytes, " bytes"));
  }
  config->memory_budget_bytes = *bytes;

  constexpr int32_t kMaxThreads = 4096, kMaxRequests = 1'000'000;
  config->threads = absl::GetFlag(FLAGS_threads);
  TENON_RETURN_IF_ERROR(CheckRange("threads", config->threads, 0, kMaxThreads));
  if (config->threads == 0) config->threads = UsableThreads();
  config->concurrent_requests = absl::GetFlag(FLAGS_concurrent_requests);
  TENON_RETURN_IF_ERROR(
      CheckRange("concurrent_requests", config->concurrent_requests, 1, kMaxThreads));
  config->max_queued_requests = absl::GetFlag(FLAGS_max_queued_requests);
  TENON_RETURN_IF_ERROR(
      CheckRange("max_queued_requests", config->max_queued_requests, 0, kMaxRequests));
  config->max_concurrent_streams = absl::GetFlag(FLAGS_max_concurrent_streams);
  TENON_RETURN_IF_ERROR(
      CheckRange("max_concurrent_streams", config->max_concurrent_streams, 1, kMaxRequests));
  config->exit_when = absl::GetFlag(FLAGS_exit_when);
  TENON_RETURN_IF_ERROR(CheckChoice("exit_when", config->exit_when, {"any", "all", "never"}));
  config->providers = absl::GetFlag(FLAGS_providers);
  if (config->providers.empty()) return BadSetting("providers", "expected at least one name");
  return absl::OkStatus();
}

absl::Status FillScratch(Config* config) {
  TENON_ASSIGN_OR_RETURN(config->scratch_dir,
                         CheckNewDirectory("scratch_dir", absl::GetFlag(FLAGS_scratch_dir)));
  config->default_scratch_dir = config->scratch_dir.empty();
  if (config->default_scratch_dir) config->scratch_dir = DefaultScratchRoot();
  const absl::StatusOr<int64_t> bytes =
      ParseBytes(absl::GetFlag(FLAGS_scratch_budget), FreeScratchBytes(config->scratch_dir));
  if (!bytes.ok()) return BadSetting("scratch_budget", std::string(bytes.status().message()));
  config->scratch_budget_bytes = *bytes;
  return absl::OkStatus();
}

absl::Status FillJobs(Config* config) {
  TENON_ASSIGN_OR_RETURN(config->state_dir,
                         CheckNewDirectory("state_dir", absl::GetFlag(FLAGS_state_dir)));
  const int64_t free = config->state_dir.empty() ? 0 : FreeStateBytes(config->state_dir);
  const absl::StatusOr<int64_t> bytes = ParseBytes(absl::GetFlag(FLAGS_state_budget), free);
  if (!bytes.ok()) return BadSetting("state_budget", std::string(bytes.status().message()));
  config->state_budget_bytes = *bytes;
  constexpr int32_t kMaxJobs = 1'000'000, kMaxConcurrentJobs = 64;
  config->max_jobs = absl::GetFlag(FLAGS_max_jobs);
  TENON_RETURN_IF_ERROR(CheckRange("max_jobs", config->max_jobs, 1, kMaxJobs));
  config->concurrent_jobs = absl::GetFlag(FLAGS_concurrent_jobs);
  return CheckRange("concurrent_jobs", config->concurrent_jobs, 1, kMaxConcurrentJobs);
}

absl::Status FillSharedMemory(Config* config) {
  config->shared_memory_socket = absl::GetFlag(FLAGS_shared_memory_socket);
  constexpr size_t kMaxSocketPath = 107;  // sun_path with its NUL
  if (config->shared_memory_socket.size() > kMaxSocketPath) {
    return BadSetting("shared_memory_socket",
                      StrCat("expected a path of at most ", kMaxSocketPath, " bytes, got ",
                             config->shared_memory_socket.size()));
  }
  const auto bytes_of = [](const std::string& flag, const std::string& text, int64_t whole,
                           int64_t* out) -> absl::Status {
    const absl::StatusOr<int64_t> bytes = ParseBytes(text, whole);
    if (!bytes.ok()) return BadSetting(flag, std::string(bytes.status().message()));
    *out = std::min(*bytes, whole);
    return absl::OkStatus();
  };
  TENON_RETURN_IF_ERROR(bytes_of("shared_memory_limit", absl::GetFlag(FLAGS_shared_memory_limit),
                                 config->memory_budget_bytes, &config->shared_memory_limit_bytes));
  TENON_RETURN_IF_ERROR(
      bytes_of("shared_memory_pool_limit", absl::GetFlag(FLAGS_shared_memory_pool_limit),
               config->shared_memory_limit_bytes, &config->shared_memory_pool_limit_bytes));
  for (const std::string& text : absl::GetFlag(FLAGS_shared_memory_uids)) {
    if (absl::SimpleAtoi(text, &config->shared_memory_uids.emplace_back())) continue;
    return BadSetting("shared_memory_uids", StrCat("'", text, "' is not the number of a user"));
  }
  return absl::OkStatus();
}

void FillCalibration(Config* config) {
  config->calibration_dir = absl::GetFlag(FLAGS_calibration_dir);
  config->default_calibration_dir = config->calibration_dir.empty();
  if (config->default_calibration_dir) config->calibration_dir = DefaultCalibrationDir();
  if (config->calibration_dir == "none") config->calibration_dir.clear();
}

absl::Status FillDurations(Config* config) {
  const absl::Duration kNone = absl::ZeroDuration(), kShort = absl::Milliseconds(10);
#define TENON_DURATION(name, lowest)          \
  config->name = absl::GetFlag(FLAGS_##name); \
  TENON_RETURN_IF_ERROR(CheckDuration(#name, config->name, lowest))
  TENON_DURATION(max_queue_wait, kNone);
  TENON_DURATION(write_stall_timeout, kShort);
  TENON_DURATION(read_stall_timeout, kNone);
  TENON_DURATION(idle_stream_timeout, kNone);
  TENON_DURATION(stuck_work_limit, kNone);
  TENON_DURATION(slow_work_log, kNone);
  TENON_DURATION(drain_delay, kNone);
  TENON_DURATION(grace_period, kNone);
  TENON_DURATION(kill_limit, kNone);
  TENON_DURATION(keepalive_time, kShort);
  TENON_DURATION(keepalive_timeout, kShort);
  TENON_DURATION(keepalive_min_client_interval, kNone);
  TENON_DURATION(max_connection_age, kNone);
  TENON_DURATION(max_connection_age_grace, kNone);
  TENON_DURATION(dataset_ttl, absl::Seconds(1));
  TENON_DURATION(job_ttl, absl::Seconds(1));
  TENON_DURATION(max_job_ttl, absl::Seconds(1));
#undef TENON_DURATION
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ParseBytes(std::string_view text, int64_t whole) {
  static constexpr struct {
    std::string_view unit;
    double factor;
  } kUnits[] = {{"%", 0},
                {"KiB", 1024.0},
                {"MiB", 1048576.0},
                {"GiB", 1073741824.0},
                {"TiB", 1099511627776.0},
                {"KB", 1e3},
                {"MB", 1e6},
                {"GB", 1e9},
                {"TB", 1e12},
                {"B", 1},
                {"", 1}};
  absl::string_view number = absl::StripAsciiWhitespace(ToAbsl(text));
  double factor = 1;
  for (const auto& [unit, unit_factor] : kUnits) {
    if (!absl::ConsumeSuffix(&number, ToAbsl(unit))) continue;
    factor = unit == "%" ? static_cast<double>(whole) / 100 : unit_factor;
    break;
  }
  double value = 0;
  const bool percent = text.find('%') != std::string_view::npos;
  if (!absl::SimpleAtod(absl::StripAsciiWhitespace(number), &value) || !(value >= 0) ||
      !(value * factor < 9e18) || (percent && value > 100)) {
    return Error(Reason::kBadParameter,
                 StrCat("'", text,
                        "' is not a number of bytes; expected for example 4GiB, 512MiB, "
                        "1000000 or 80%"))
        .Meta("value", std::string(text));
  }
  return static_cast<int64_t>(std::floor(value * factor));
}

absl::StatusOr<Config> ConfigFromFlags() {
  Config config;
  TENON_RETURN_IF_ERROR(FillSecurity(&config));
  TENON_RETURN_IF_ERROR(FillAddresses(&config));
  TENON_RETURN_IF_ERROR(FillResources(&config));
  TENON_RETURN_IF_ERROR(FillQuotas(&config));
  TENON_RETURN_IF_ERROR(FillDurations(&config));
  TENON_ASSIGN_OR_RETURN(config.data_root,
                         CheckDirectory("data_root", absl::GetFlag(FLAGS_data_root)));
  FillCalibration(&config);
  TENON_RETURN_IF_ERROR(FillScratch(&config));
  TENON_RETURN_IF_ERROR(FillJobs(&config));
  TENON_RETURN_IF_ERROR(FillSharedMemory(&config));
  config.port_file = absl::GetFlag(FLAGS_port_file);
  config.log_level = absl::GetFlag(FLAGS_log_level);
  TENON_RETURN_IF_ERROR(
      CheckChoice("log_level", config.log_level, {"trace", "debug", "info", "warning", "error"}));
  const std::string format = absl::GetFlag(FLAGS_log_format);
  TENON_RETURN_IF_ERROR(CheckChoice("log_format", format, {"text", "json"}));
  config.log_json = format == "json";
  config.reflection = absl::GetFlag(FLAGS_reflection);
  return config;
}

}  // namespace tenon::server
