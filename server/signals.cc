#include "server/signals.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

namespace tenon::server {
namespace {

constexpr int kHandled[] = {SIGTERM, SIGINT, SIGHUP};
constexpr unsigned char kStop = 0;  // in the pipe: no signal, the thread ends

int pipe_ends[2] = {-1, -1};  // read, write; open for the life of the process

void Write(unsigned char number) {
  // A full pipe holds far more signals than anybody needs; what does not fit is dropped.
  [[maybe_unused]] const ssize_t written = write(pipe_ends[1], &number, 1);
}

void PassOn(int signal) {
  const int saved = errno;
  Write(static_cast<unsigned char>(signal));
  errno = saved;
}

sigset_t HandledSet() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : kHandled) sigaddset(&set, signal);
  return set;
}

}  // namespace

void PrepareSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  const sigset_t set = HandledSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  if (pipe_ends[0] < 0 && pipe2(pipe_ends, O_CLOEXEC) != 0)
    return;  // signals keep their default actions
  fcntl(pipe_ends[1], F_SETFL, O_NONBLOCK);
  struct sigaction action {};
  action.sa_handler = &PassOn;
  action.sa_flags = SA_RESTART;
  action.sa_mask = set;
  for (int signal : kHandled) sigaction(signal, &action, nullptr);
}

SignalThread::SignalThread(std::function<void(int signal)> handle)
    : handle_(std::move(handle)), thread_([this] { Run(); }) {}

SignalThread::~SignalThread() {
  Write(kStop);
  thread_.join();
}

void SignalThread::Run() {
  // Some thread has to take the signals; with no library thread about, it is this one.
  const sigset_t set = HandledSet();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  for (;;) {
    unsigned char number = kStop;
    const ssize_t got = read(pipe_ends[0], &number, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1 || number == kStop) return;
    handle_(number);
  }
}

}  // namespace tenon::server
