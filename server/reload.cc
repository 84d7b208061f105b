#include "server/reload.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/logging.h"

namespace tenon::server {
namespace {

constexpr const char* kReloaded[] = {"max_queued_requests",
                                     "memory_budget",
                                     "max_queue_wait",
                                     "drain_delay",
                                     "grace_period",
                                     "kill_limit",
                                     "write_stall_timeout",
                                     "read_stall_timeout",
                                     "idle_stream_timeout",
                                     "dataset_ttl",
                                     "max_streams_per_principal",
                                     "max_stored_bytes_per_principal",
                                     "admin_principals",
                                     "log_level",
                                     "log_format",
                                     "tls_cert",
                                     "tls_key",
                                     "tls_client_ca",
                                     "token_file"};

// Files may move; whether there are any decides how the listeners were made.
constexpr const char* kFiles[] = {"tls_cert", "tls_key", "tls_client_ca", "token_file"};

template <size_t kCount>
bool IsIn(const char* const (&list)[kCount], const std::string& name) {
  return std::any_of(std::begin(list), std::end(list),
                     [&](const char* one) { return name == one; });
}

bool NeedsRestart(const std::string& name, const std::string& before, const std::string& now) {
  return !IsIn(kReloaded, name) || (IsIn(kFiles, name) && before.empty() != now.empty());
}

}  // namespace

Reloader::Reloader(std::vector<std::string> arguments, Server* server)
    : arguments_(std::move(arguments)), server_(server), settings_(CurrentSettings()) {}

absl::Status Reloader::Reload() {
  absl::StatusOr<ConfigAgain> again = ReadConfigAgain(arguments_);
  if (!again.ok()) {
    Log(LogLevel::kError, "reload failed, nothing has changed",
        {{"reason", std::string(again.status().message())}});
    return again.status();
  }
  InitLogging(again->config.log_level, again->config.log_json);
  Compare(&again->settings);
  server_->Apply(again->config);
  settings_ = std::move(again->settings);
  Log(LogLevel::kInfo, "reloaded",
      {{"tokens",
        static_cast<int64_t>(again->config.tokens == nullptr ? 0 : again->config.tokens->size())}});
  return absl::OkStatus();
}

void Reloader::Compare(SettingTexts* now) const {
  for (auto& [name, text] : *now) {
    const std::string& before = settings_.at(name);
    if (before == text) continue;
    const bool restart = NeedsRestart(name, before, text);
    Log(restart ? LogLevel::kWarning : LogLevel::kInfo,
        restart ? "setting needs a restart" : "setting changed",
        {{"setting", name}, {"before", before}, {"now", text}});
    if (restart) text = before;
  }
}

}  // namespace tenon::server
