// Settings that change while the server runs: what SIGHUP does.

#ifndef TENON_SERVER_RELOAD_H_
#define TENON_SERVER_RELOAD_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config.h"
#include "server/server.h"

namespace tenon::server {

// Reads the configuration file that the command line names, and the files that it names in turn,
// anew. Not thread-safe: one thread reloads (that of the signals).
class Reloader {
 public:
  // The process's arguments, and the server that runs by them. `server` outlives this.
  Reloader(std::vector<std::string> arguments, Server* server);

  // Takes over: max_queued_requests, memory_budget, max_queue_wait, drain_delay, grace_period,
  // kill_limit, write_stall_timeout, read_stall_timeout, idle_stream_timeout, dataset_ttl,
  // max_streams_per_principal, max_stored_bytes_per_principal, admin_principals, log_level,
  // log_format, and what stands in the files of certificates, keys and tokens, which may have
  // moved. A smaller memory budget holds for what is admitted from then on; shares of it that were
  // taken at the start stay. A server that is on its way out keeps its times. The log tells each
  // setting that has changed and each change that needs a restart. Where anything is wrong nothing
  // changes, and the error is logged, too.
  absl::Status Reload();

 private:
  // Logs what differs from `now`, and puts back there what needs a restart.
  void Compare(SettingTexts* now) const;

  const std::vector<std::string> arguments_;
  Server* const server_;
  SettingTexts settings_;  // that the server runs by
};

}  // namespace tenon::server

#endif  // TENON_SERVER_RELOAD_H_
