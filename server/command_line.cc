// The part of config.h that moves texts into flags and back.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "backends/core/error.h"
#include "backends/core/file.h"
#include "server/config.h"

namespace tenon::server {
namespace {

// Settings in the order in which --help and --print_config show them.
constexpr const char* kSettings[] = {"listen",
                                     "metrics",
                                     "insecure_listen",
                                     "tls_cert",
                                     "tls_key",
                                     "tls_client_ca",
                                     "tls_reload_interval",
                                     "token_file",
                                     "admin_principals",
                                     "max_streams_per_principal",
                                     "max_stored_bytes_per_principal",
                                     "providers",
                                     "memory_budget",
                                     "threads",
                                     "concurrent_requests",
                                     "max_queued_requests",
                                     "max_queue_wait",
                                     "max_concurrent_streams",
                                     "write_stall_timeout",
                                     "read_stall_timeout",
                                     "idle_stream_timeout",
                                     "exit_when",
                                     "stuck_work_limit",
                                     "slow_work_log",
                                     "drain_delay",
                                     "grace_period",
                                     "kill_limit",
                                     "keepalive_time",
                                     "keepalive_timeout",
                                     "keepalive_min_client_interval",
                                     "max_connection_age",
                                     "max_connection_age_grace",
                                     "dataset_ttl",
                                     "data_root",
                                     "scratch_dir",
                                     "scratch_budget",
                                     "state_dir",
                                     "state_budget",
                                     "job_ttl",
                                     "max_job_ttl",
                                     "max_jobs",
                                     "concurrent_jobs",
                                     "shared_memory_socket",
                                     "shared_memory_limit",
                                     "shared_memory_pool_limit",
                                     "shared_memory_uids",
                                     "calibration_dir",
                                     "port_file",
                                     "log_level",
                                     "log_format",
                                     "reflection"};

// The flag of a setting; null when there is no such setting. Flags of linked libraries are none.
absl::CommandLineFlag* FindSetting(std::string_view name) {
  const bool known = std::any_of(std::begin(kSettings), std::end(kSettings),
                                 [&](const char* setting) { return name == setting; });
  return known ? absl::FindCommandLineFlag(ToAbsl(name)) : nullptr;
}

bool IsList(const absl::CommandLineFlag& flag) { return flag.IsOfType<std::vector<std::string>>(); }

absl::Status SetFlag(absl::CommandLineFlag* flag, const std::string& value,
                     const std::string& where) {
  std::string why;
  if (flag->ParseFrom(value, &why)) return absl::OkStatus();
  return Error(Reason::kBadParameter,
               StrCat(where, ": bad value '", value, "'", why.empty() ? "" : ": ", why))
      .Field(std::string(flag->Name()))
      .Meta("value", value);
}

// A value of the file as the text a flag would have; nothing for objects, null and nested arrays.
std::optional<std::string> ValueText(const nlohmann::json& value, bool list) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean() || value.is_number()) return value.dump();
  if (!list || !value.is_array()) return std::nullopt;
  std::vector<std::string> items;
  for (const nlohmann::json& item : value) {
    if (!item.is_string()) return std::nullopt;
    items.push_back(item.get<std::string>());
  }
  return absl::StrJoin(items, ",");
}

absl::Status ApplyConfigFile(const std::string& path) {
  const absl::StatusOr<Buffer> bytes = ReadFile(path);
  if (!bytes.ok()) {
    return Error(Reason::kBadParameter, StrCat("--config: ", bytes.status().message()))
        .Field("config")
        .Meta("file", path);
  }
  return ApplyConfigText(AsText(*bytes), path);
}

// One "--name=value", "--name value", "--name" or "--noname".
struct Argument {
  std::string name;
  std::optional<std::string> value;
};

absl::StatusOr<Argument> SplitArgument(const std::string& text) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "-")) {
    return Error(Reason::kBadParameter,
                 StrCat("unexpected argument '", text, "'; settings are written --name=value"));
  }
  absl::ConsumePrefix(&rest, "-");
  const std::vector<std::string> parts = absl::StrSplit(rest, absl::MaxSplits('=', 1));
  Argument argument{parts[0], std::nullopt};
  std::replace(argument.name.begin(), argument.name.end(), '-', '_');
  if (parts.size() == 2) argument.value = parts[1];
  return argument;
}

// Commands are switches of their own; true when `argument` is one.
absl::StatusOr<bool> TakeCommand(const Argument& argument, CommandLine* command) {
  const std::map<std::string, bool*> commands = {{"help", &command->help},
                                                 {"version", &command->version},
                                                 {"check_config", &command->check_config},
                                                 {"print_config", &command->print_config},
                                                 {"doctor", &command->doctor},
                                                 {"json", &command->json}};
  const auto found = commands.find(argument.name);
  if (found == commands.end()) return false;
  *found->second = true;
  if (argument.value.has_value() && !absl::SimpleAtob(*argument.value, found->second)) {
    return Error(Reason::kBadParameter,
                 StrCat("--", argument.name, ": bad value '", *argument.value, "'"))
        .Field(argument.name);
  }
  return true;
}

// Settings with their texts, in order, and the file.
struct Parsed {
  CommandLine command;
  std::optional<std::string> file;
  std::vector<std::pair<absl::CommandLineFlag*, std::string>> settings;
};

absl::StatusOr<Parsed> ParseArguments(const std::vector<std::string>& arguments) {
  Parsed parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    TENON_ASSIGN_OR_RETURN(Argument argument, SplitArgument(arguments[i]));
    TENON_ASSIGN_OR_RETURN(const bool taken, TakeCommand(argument, &parsed.command));
    if (taken) continue;
    absl::CommandLineFlag* flag = FindSetting(argument.name);
    if (flag == nullptr && absl::StartsWith(argument.name, "no") && !argument.value.has_value()) {
      flag = FindSetting(argument.name.substr(2));
      if (flag != nullptr && !flag->IsOfType<bool>()) flag = nullptr;
      argument.value = "false";
    }
    if (flag == nullptr && argument.name != "config") {
      return Error(Reason::kBadParameter,
                   StrCat("unknown setting '--", argument.name, "'; --help lists all"))
          .Field(argument.name);
    }
    if (!argument.value.has_value()) {
      if (flag != nullptr && flag->IsOfType<bool>()) {
        argument.value = "true";
      } else if (i + 1 < arguments.size()) {
        argument.value = arguments[++i];
      } else {
        return Error(Reason::kBadParameter, StrCat("--", argument.name, " needs a value"))
            .Field(argument.name);
      }
    }
    if (flag == nullptr) {
      parsed.file = *argument.value;
    } else {
      parsed.settings.emplace_back(flag, *argument.value);
    }
  }
  return parsed;
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  TENON_ASSIGN_OR_RETURN(Parsed parsed, ParseArguments(arguments));
  if (parsed.file.has_value()) TENON_RETURN_IF_ERROR(ApplyConfigFile(*parsed.file));
  std::set<absl::CommandLineFlag*> seen;
  for (auto& [flag, value] : parsed.settings) {
    // A list that is given again goes on; anything else is replaced.
    if (!seen.insert(flag).second && IsList(*flag)) {
      value = StrCat(flag->CurrentValue(), ",", value);
    }
    TENON_RETURN_IF_ERROR(SetFlag(flag, value, StrCat("--", flag->Name())));
  }
  return parsed.command;
}

absl::Status ApplyConfigText(std::string_view json, const std::string& file) {
  const nlohmann::json object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false,
                                                      /*ignore_comments=*/true);
  if (!object.is_object()) {
    return Error(Reason::kBadParameter, StrCat(file, ": expected a JSON object of settings"))
        .Field("config")
        .Meta("file", file);
  }
  for (const auto& [key, value] : object.items()) {
    absl::CommandLineFlag* flag = FindSetting(key);
    if (flag == nullptr) {
      return Error(Reason::kBadParameter, StrCat(file, ": unknown key '", key, "'"))
          .Field(key)
          .Meta("file", file);
    }
    const std::optional<std::string> text = ValueText(value, IsList(*flag));
    if (!text.has_value()) {
      return Error(Reason::kBadParameter,
                   StrCat(file, ": key '", key, "': expected a string, a number or a bool",
                          IsList(*flag) ? ", or an array of strings" : ""))
          .Field(key)
          .Meta("file", file);
    }
    TENON_RETURN_IF_ERROR(SetFlag(flag, *text, StrCat(file, ": key '", key, "'")));
  }
  return absl::OkStatus();
}

SettingTexts CurrentSettings() {
  SettingTexts texts;
  for (const char* name : kSettings) {
    texts[name] = absl::FindCommandLineFlag(name)->CurrentValue();
  }
  return texts;
}

namespace {

// Puts the settings back. Unlike absl's own saver, without a line of text for each.
class SettingsSaver {
 public:
  SettingsSaver() = default;
  ~SettingsSaver() {
    for (const auto& [name, text] : saved_) {
      std::string error;
      absl::FindCommandLineFlag(name)->ParseFrom(text, &error);
    }
  }
  SettingsSaver(const SettingsSaver&) = delete;
  SettingsSaver& operator=(const SettingsSaver&) = delete;

 private:
  const SettingTexts saved_ = CurrentSettings();
};

}  // namespace

absl::StatusOr<ConfigAgain> ReadConfigAgain(const std::vector<std::string>& arguments) {
  const SettingsSaver saver;
  for (const char* name : kSettings) {
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    TENON_RETURN_IF_ERROR(SetFlag(flag, flag->DefaultValue(), StrCat("--", name)));
  }
  TENON_RETURN_IF_ERROR(ParseCommandLine(arguments).status());
  ConfigAgain again;
  TENON_ASSIGN_OR_RETURN(again.config, ConfigFromFlags());
  again.settings = CurrentSettings();
  return again;
}

std::string ConfigJson(const Config& config, int indent) {
  nlohmann::ordered_json object;
  for (const char* name : kSettings) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    const std::string value = flag->CurrentValue();
    if (IsList(*flag)) {
      object[name] = std::vector<std::string>(absl::StrSplit(value, ',', absl::SkipEmpty()));
    } else if (flag->IsOfType<bool>()) {
      object[name] = value == "true";
    } else if (flag->IsOfType<int32_t>()) {
      object[name] = std::stoi(value);
    } else {
      object[name] = value;
    }
  }
  object["memory_budget"] = config.memory_budget_bytes;
  object["threads"] = config.threads;
  object["data_root"] = config.data_root;
  // The default one is worked out anew by whoever reads this: it need not exist yet.
  if (!config.default_scratch_dir) object["scratch_dir"] = config.scratch_dir;
  object["scratch_budget"] = config.scratch_budget_bytes;
  object["state_dir"] = config.state_dir;
  // Without the folder there is nothing that a percentage could be of.
  if (!config.state_dir.empty()) object["state_budget"] = config.state_budget_bytes;
  object["shared_memory_limit"] = config.shared_memory_limit_bytes;
  object["shared_memory_pool_limit"] = config.shared_memory_pool_limit_bytes;
  return object.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string HelpText() {
  std::string text =
      "tenond: exact tensor-network contraction and projection measures over gRPC.\n\n"
      "  --config=FILE  JSON object with any of the settings below; the command line wins\n"
      "  --check_config check the settings and exit\n"
      "  --print_config print the effective settings as JSON and exit\n"
      "  --doctor       examine the machine for these settings, tell what to do, and exit: 1 if\n"
      "                 something fails; with --json as a JSON object\n"
      "  --version      print the version and exit\n"
      "  --help         print this and exit\n\n";
  for (const char* name : kSettings) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    text +=
        StrCat("  --", name, " (default: ", flag->DefaultValue(), ")\n      ", flag->Help(), "\n");
  }
  return text;
}

}  // namespace tenon::server
