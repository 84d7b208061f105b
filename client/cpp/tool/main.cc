// The command `tenon`.

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/tool/commands.h"

namespace {

// Waits for Ctrl-C on a thread of its own: the first one cancels the call, so that the server stops
// too; the second one ends the program at once.
void WatchInterrupts(const sigset_t& signals, tenon::client::Canceller* canceller) {
  std::thread([signals, canceller] {
    int signal = 0;
    if (sigwait(&signals, &signal) == 0) canceller->Cancel();
    if (sigwait(&signals, &signal) == 0) _exit(tenon::tool::kExitInterrupted);
  }).detach();
}

}  // namespace

int main(int argc, char** argv) {
  // Errors come out as statuses; gRPC's own log lines would stand between them.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // Never destroyed: the watching thread lives until the process ends.
  auto* canceller = new tenon::client::Canceller;
  WatchInterrupts(signals, canceller);
  std::ios::sync_with_stdio(false);
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  tenon::tool::Session session{&std::cout, &std::cerr, canceller, isatty(STDERR_FILENO) != 0};
  winsize terminal = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal) == 0 && terminal.ws_col > 0) {
    session.columns = terminal.ws_col;
  }
  return tenon::tool::RunTool(arguments, session);
}
