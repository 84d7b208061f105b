// tenond: the server's process.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "backends/core/file.h"
#include "backends/core/strings.h"
#include "server/allocator.h"
#include "server/config.h"
#include "server/doctor.h"
#include "server/logging.h"
#include "server/provider_setup.h"
#include "server/reload.h"
#include "server/server.h"
#include "server/signals.h"
#include "server/version.h"

namespace tenon::server {
namespace {

// Work did not end, no provider is usable, --doctor found failures, or as --exit_when says.
constexpr int kExitStuck = 1;
constexpr int kExitUsage = 2;  // a setting is wrong, or an address can't be listened on

int Refuse(const absl::Status& status) {
  std::fprintf(stderr, "tenond: %s\n", std::string(status.message()).c_str());
  return kExitUsage;
}

// Takes the process's signals from the first moment on. Starting may take long, where storage is
// slow: then nobody is served yet, and who asks for the end gets it.
class Signals {
 public:
  Signals() : thread_([this](int signal) { OnSignal(signal); }) {}

  // From now on they are the server's.
  void Serve(Server* server, Reloader* reloader) {
    std::lock_guard lock(mutex_);
    server_ = server;
    reloader_ = reloader;
  }

 private:
  void OnSignal(int signal) {
    std::lock_guard lock(mutex_);
    Log(LogLevel::kInfo, "signal",
        {{"signal", static_cast<int64_t>(signal)}, {"starting", server_ == nullptr}});
    if (server_ == nullptr) {
      if (signal == SIGHUP) return;  // what is being read is new
      Log(LogLevel::kInfo, "stopped", {{"started", false}});
      _exit(0);
    }
    if (signal != SIGHUP) return server_->Shutdown();
    reloader_->Reload().IgnoreError();  // it is logged
  }

  std::mutex mutex_;
  Server* server_ = nullptr;
  Reloader* reloader_ = nullptr;
  SignalThread thread_;
};

int Serve(const Config& config, const std::vector<std::string>& arguments) {
  const bool tuned = TuneAllocator();
  InitLogging(config.log_level, config.log_json);
  Log(LogLevel::kInfo, "start",
      {{"version", Build().version},
       {"commit", Build().commit},
       {"build", Build().type},
       {"grpc_version", Build().grpc_version},
       {"protobuf_version", Build().protobuf_version},
       {"allocator_tuned", tuned},
       {"pid", static_cast<int64_t>(getpid())},
       {"config", ConfigJson(config, /*indent=*/-1)}});
  auto signals = std::make_unique<Signals>();
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(config);
  if (!server.ok()) return Refuse(server.status());
  if (!config.port_file.empty()) {
    const std::string ports = StrCat((*server)->port(), " ", (*server)->metrics_port(), "\n");
    const absl::Status written = WriteFile(config.port_file, {ports});
    if (!written.ok()) return Refuse(written);
  }
  Reloader reloader(arguments, server->get());
  signals->Serve(server->get(), &reloader);
  const bool clean = (*server)->Wait();
  signals.reset();
  // Stuck work holds destructors up for ever; its memory goes with the process.
  if (!clean) _exit(kExitStuck);
  server->reset();
  Log(LogLevel::kInfo, "exit");
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  PrepareSignals();
  // Looks for cycles at every lock where the library was built with checks, as the system's is.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const absl::StatusOr<CommandLine> command = ParseCommandLine(arguments);
  if (!command.ok()) return Refuse(command.status());
  if (command->help || command->version) {
    std::printf("%s\n", command->help ? HelpText().c_str() : VersionLine().c_str());
    return 0;
  }
  const absl::StatusOr<Config> config = ConfigFromFlags();
  if (!config.ok()) return Refuse(config.status());
  if (command->doctor) {
    const std::vector<Finding> findings = ExamineMachine(*config);
    std::printf("%s",
                (command->json ? FindingsJson(findings) + "\n" : FindingsText(findings)).c_str());
    return AnyFailed(findings) ? kExitStuck : 0;
  }
  ProviderRegistry declared;  // only to see whether all names are known
  const absl::Status providers = DeclareProviders(config->providers, InTreeProviders(), &declared);
  if (!providers.ok()) return Refuse(providers);
  if (command->print_config) std::printf("%s\n", ConfigJson(*config).c_str());
  if (command->check_config) std::printf("the configuration is valid\n");
  if (command->print_config || command->check_config) return 0;
  return Serve(*config, arguments);
}

}  // namespace
}  // namespace tenon::server

int main(int argc, char** argv) {
  return tenon::server::Main(std::vector<std::string>(argv + 1, argv + argc));
}
