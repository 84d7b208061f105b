// What the operating system says of this process and its machine.

#ifndef TENON_SERVER_PROCESS_STATS_H_
#define TENON_SERVER_PROCESS_STATS_H_

#include <cstdint>
#include <string>

namespace tenon::server {

// A moment's view. Fields that the system does not tell are 0.
struct ProcessStats {
  int64_t resident_bytes = 0;
  int64_t peak_resident_bytes = 0;
  double cpu_seconds = 0;  // user and system
  int64_t open_files = 0;
  int64_t threads = 0;
};
ProcessStats ReadProcessStats();

// Memory this process may use: the tightest control group's limit, else that of the machine.
int64_t UsableMemoryBytes();

// Threads this process can run at once, at least 1: its affinity mask, cut to the CPU quota of the
// control group (rounded up).
int UsableThreads();

// "Linux 6.1.0 x86_64"; empty when unknown.
std::string OperatingSystem();

}  // namespace tenon::server

#endif  // TENON_SERVER_PROCESS_STATS_H_
