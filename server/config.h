// The configuration of tenond: one schema for the command line and the configuration file.
//
// Every setting is a flag (config.cc lists them, each with its description). A configuration file
// is a JSON object whose keys are the names of flags; the command line wins over it.

#ifndef TENON_SERVER_CONFIG_H_
#define TENON_SERVER_CONFIG_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/address.h"
#include "server/tls.h"
#include "server/token_table.h"

namespace tenon::server {

// Checked values; what 0 or a percentage stood for is worked out.
struct Config {
  std::vector<Address> listen;
  std::string metrics;  // empty: no HTTP endpoint
  std::vector<std::string> providers;

  int64_t memory_budget_bytes = 0;
  int threads = 0;  // of one request at most
  int concurrent_requests = 0;
  int max_queued_requests = 0;  // of each class
  absl::Duration max_queue_wait = absl::Seconds(30);
  int max_concurrent_streams = 0;  // per connection
  absl::Duration write_stall_timeout;
  absl::Duration read_stall_timeout, idle_stream_timeout;  // 0: off
  std::string exit_when;            // failed providers that end the server: any, all, never
  absl::Duration stuck_work_limit;  // 0: off
  absl::Duration slow_work_log;     // 0: off

  absl::Duration drain_delay, grace_period, kill_limit;
  absl::Duration keepalive_time, keepalive_timeout, keepalive_min_client_interval;
  absl::Duration max_connection_age, max_connection_age_grace;  // 0: off, unlimited

  absl::Duration dataset_ttl;
  std::string data_root;    // canonical; empty: off
  std::string scratch_dir;  // of temporary files; made at the start if it is the default one
  bool default_scratch_dir = false;
  int64_t scratch_budget_bytes = 0;  // of all temporary files together; 0: none are made

  std::string state_dir;  // of the job store, made at the start; empty: no jobs
  int64_t state_budget_bytes = 0;
  absl::Duration job_ttl, max_job_ttl;
  int max_jobs = 0;  // of one principal
  int concurrent_jobs = 0;
  std::string shared_memory_socket;            // its path; empty: no memory is shared
  int64_t shared_memory_limit_bytes = 0;       // of all pools together
  int64_t shared_memory_pool_limit_bytes = 0;  // of one
  std::vector<uint32_t> shared_memory_uids;    // besides the server's own and root

  std::string calibration_dir;  // of what providers measured; empty: nothing is kept
  bool default_calibration_dir = false;

  TlsFiles tls_files;
  std::shared_ptr<const TlsMaterial> tls;    // read from them; null: TCP is not encrypted
  absl::Duration tls_reload_interval;        // 0: only when told to
  std::shared_ptr<const TokenTable> tokens;  // null: callers need none
  std::vector<std::string> admin_principals;
  int max_streams_per_principal = 0;           // 0: no limit
  int64_t max_stored_bytes_per_principal = 0;  // 0: no limit

  std::string port_file;  // empty: none

  std::string log_level;  // trace, debug, info, warning, error
  bool log_json = false;
  bool reflection = true;
};

// What the command line asks for beside the settings.
struct CommandLine {
  bool help = false;
  bool version = false;
  bool check_config = false;
  bool print_config = false;
  bool doctor = false;  // examine the machine
  bool json = false;    // how --doctor answers
};

// Puts the arguments (without the program's name), and below them the file that --config names,
// into the flags. BAD_PARAMETER names the flag, or the key and the file. Not thread-safe.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

// Puts the object in `json` into the flags; `file` is for messages. Not thread-safe.
absl::Status ApplyConfigText(std::string_view json, const std::string& file);

// Reads the flags and checks all of them. BAD_PARAMETER with the flag's name as the field.
absl::StatusOr<Config> ConfigFromFlags();

// Settings as texts, by name.
using SettingTexts = std::map<std::string, std::string>;

// The current values of the flags.
SettingTexts CurrentSettings();

// What the same arguments mean now, with the file that they name read anew. The flags themselves
// stay as they are. Errors as ParseCommandLine and ConfigFromFlags. Not thread-safe.
struct ConfigAgain {
  Config config;
  SettingTexts settings;
};
absl::StatusOr<ConfigAgain> ReadConfigAgain(const std::vector<std::string>& arguments);

// The flags with their effective values as a JSON object that --config reads.
// On one line when `indent` is negative.
std::string ConfigJson(const Config& config, int indent = 2);

// The list of all settings with descriptions and defaults.
std::string HelpText();

// "4GiB", "512MiB", "1000000", "80%" of `whole`; GB and the like are powers of ten.
absl::StatusOr<int64_t> ParseBytes(std::string_view text, int64_t whole);

}  // namespace tenon::server

#endif  // TENON_SERVER_CONFIG_H_
