#include "server/process_stats.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backends/core/strings.h"

namespace tenon::server {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The directories of this process's control group and of all groups above it, for a hierarchy:
// version 2 has the controller list empty, version 1 names `controller`.
std::vector<std::string> GroupDirectories(const std::string& controller) {
  std::vector<std::string> directories;
  const std::string text = ReadText("/proc/self/cgroup");
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const bool unified = parts[1].empty();
    if (!unified &&
        std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) {
      continue;
    }
    const std::string root = unified ? "/sys/fs/cgroup" : StrCat("/sys/fs/cgroup/", controller);
    // Inside a container the path may name a group that is mounted as the root.
    for (std::string path = parts[2]; !path.empty() && path != "/";
         path = path.substr(0, path.rfind('/'))) {
      directories.push_back(StrCat(root, path));
    }
    directories.push_back(root);
  }
  return directories;
}

std::optional<double> ReadNumber(const std::string& path) {
  double value = 0;
  if (!absl::SimpleAtod(absl::StripAsciiWhitespace(ReadText(path)), &value)) return std::nullopt;
  return value;
}

// Cores that the control group's quota allows, or nothing when there is no quota.
std::optional<double> QuotaOf(const std::string& directory) {
  const std::vector<std::string> parts =
      absl::StrSplit(ReadText(StrCat(directory, "/cpu.max")), absl::ByAnyChar(" \n"));
  double quota = 0, period = 0;
  if (parts.size() >= 2 && absl::SimpleAtod(parts[0], &quota) &&
      absl::SimpleAtod(parts[1], &period) && period > 0) {
    return quota / period;
  }
  const auto quota_v1 = ReadNumber(StrCat(directory, "/cpu.cfs_quota_us"));
  const auto period_v1 = ReadNumber(StrCat(directory, "/cpu.cfs_period_us"));
  if (quota_v1 && period_v1 && *quota_v1 > 0 && *period_v1 > 0) return *quota_v1 / *period_v1;
  return std::nullopt;
}

// The number behind `key` in a file of /proc, without its unit; 0 when absent.
int64_t NumberOf(const std::string& text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, key)) continue;
    int64_t number = 0;
    absl::ConsumeSuffix(&line, "kB");
    if (absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &number)) return number;
  }
  return 0;
}

int64_t KilobytesOf(const std::string& text, absl::string_view key) {
  return NumberOf(text, key) * 1024;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  const std::string status = ReadText("/proc/self/status");
  stats.resident_bytes = KilobytesOf(status, "VmRSS:");
  stats.peak_resident_bytes = KilobytesOf(status, "VmHWM:");
  stats.threads = NumberOf(status, "Threads:");
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    stats.cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  std::error_code error;
  std::filesystem::directory_iterator files("/proc/self/fd", error), end;
  for (; !error && files != end; files.increment(error)) ++stats.open_files;
  return stats;
}

int64_t UsableMemoryBytes() {
  int64_t limit = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (const std::string& directory : GroupDirectories("memory")) {
    for (const char* file : {"/memory.max", "/memory.limit_in_bytes"}) {
      const auto bytes = ReadNumber(directory + file);
      if (bytes && *bytes > 0)
        limit = std::min(limit, static_cast<int64_t>(std::min(*bytes, 9e18)));
    }
  }
  return limit;
}

int UsableThreads() {
  int threads = 1;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) threads = std::max(1, CPU_COUNT(&set));
  for (const std::string& directory : GroupDirectories("cpu")) {
    if (const auto cores = QuotaOf(directory)) {
      threads = std::min(threads, std::max(1, static_cast<int>(std::ceil(*cores))));
    }
  }
  return threads;
}

std::string OperatingSystem() {
  utsname name{};
  if (uname(&name) != 0) return "";
  return StrCat(std::string(name.sysname), " ", std::string(name.release), " ",
                std::string(name.machine));
}

}  // namespace tenon::server
