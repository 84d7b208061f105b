// Signals of the process, taken by one thread.

#ifndef TENON_SERVER_SIGNALS_H_
#define TENON_SERVER_SIGNALS_H_

#include <functional>
#include <thread>

namespace tenon::server {

// Called once, first in main. Blocks SIGTERM, SIGINT and SIGHUP for this thread and all that it
// starts later, and ignores SIGPIPE. Signals that come before a SignalThread exists are kept for
// it.
//
// Blocking alone is not enough: libraries start threads before main (OpenBLAS does), where these
// signals are not blocked and would end the process. So their handler only passes the number on,
// through a pipe, to the SignalThread, whichever thread it runs on.
void PrepareSignals();

// Calls `handle` for each of the signals, one after the other, on a thread of its own; so `handle`
// may lock and log. One at a time in a process, after PrepareSignals.
class SignalThread {
 public:
  explicit SignalThread(std::function<void(int signal)> handle);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  void Run();

  const std::function<void(int)> handle_;
  std::thread thread_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_SIGNALS_H_
