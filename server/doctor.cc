#include "server/doctor.h"

#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "backends/core/error.h"
#include "backends/cpu/host_provider.h"
#include "backends/cpu/provider.h"
#include "backends/plugin/provider.h"
#include "server/job_store.h"
#include "server/process_stats.h"
#include "server/provider_setup.h"
#include "server/version.h"

namespace tenon::server {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

std::string Bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= kGiB) return absl::StrFormat("%.1f GiB", value / static_cast<double>(kGiB));
  if (bytes >= kMiB) return absl::StrFormat("%.1f MiB", value / static_cast<double>(kMiB));
  return StrCat(bytes, " bytes");
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Finding ExamineBuild() {
  const BuildDescription& build = Build();
  Finding finding{"build", Verdict::kOk,
                  StrCat(VersionLine(), ", Protobuf ", build.protobuf_version), ""};
  if (build.type != "Release" || !build.sanitizers.empty()) {
    finding.verdict = Verdict::kWarn;
    finding.advice = "this build is for tests; build with CMAKE_BUILD_TYPE=Release for speed";
  }
  return finding;
}

Finding ExamineProcessor() {
  const auto provider = plugin::Provider::Create(cpu::CpuProviderApi(), "");
  if (!provider.ok()) {
    return {"processor", Verdict::kFail, std::string(provider.status().message()),
            "this processor cannot run the CPU provider"};
  }
  const std::string isa = (*provider)->info().isa;
  Finding finding{"processor", Verdict::kOk, StrCat(cpu::ProcessorModel(), ", ", isa), ""};
  if (isa != "avx2" && isa != "avx512") {
    finding.verdict = Verdict::kWarn;
    finding.advice = "kernels are fast from AVX2 on; in a virtual machine pass the host's CPU on";
  }
  return finding;
}

Finding ExamineCores(const Config& config) {
  const int usable = UsableThreads();
  const auto machine = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  Finding finding{"cores", Verdict::kOk,
                  StrCat(usable, " of the machine's ", machine,
                         " by affinity and control group; --threads ", config.threads),
                  ""};
  if (config.threads > usable) {
    finding.verdict = Verdict::kWarn;
    finding.advice = StrCat("set --threads to ", usable, " or 0: more threads only wait");
  }
  return finding;
}

// Of /proc/meminfo, in bytes; -1 when absent.
int64_t MemoryInfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    int64_t kilobytes = -1;
    if (name == key && file >> kilobytes) return kilobytes * 1024;
    file.ignore(256, '\n');
  }
  return -1;
}

Finding ExamineMemory(const Config& config) {
  const int64_t usable = UsableMemoryBytes(), available = MemoryInfo("MemAvailable:");
  Finding finding{"memory", Verdict::kOk,
                  StrCat(Bytes(usable), " usable by machine and control group, ", Bytes(available),
                         " available now; --memory_budget ", Bytes(config.memory_budget_bytes)),
                  ""};
  if (config.memory_budget_bytes > usable) {
    finding.verdict = Verdict::kFail;
    finding.advice = "the process would be killed: set --memory_budget to at most 80%";
  } else if (available >= 0 && config.memory_budget_bytes > available) {
    finding.verdict = Verdict::kWarn;
    finding.advice = "other processes hold memory: lower --memory_budget or end them";
  }
  return finding;
}

Finding ExamineHugePages() {
  const std::string setting = FirstLine("/sys/kernel/mm/transparent_hugepage/enabled");
  if (setting.empty()) return {"huge pages", Verdict::kOk, "the system does not tell", ""};
  Finding finding{"huge pages", Verdict::kOk, StrCat("transparent: ", setting), ""};
  if (setting.find("[never]") != std::string::npos) {
    finding.verdict = Verdict::kWarn;
    finding.advice =
        "large tensors are slower: write madvise to /sys/kernel/mm/transparent_hugepage/enabled";
  }
  return finding;
}

std::string LimitText(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : StrCat(static_cast<uint64_t>(limit));
}

Finding ExamineFileLimit(const Config& config) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  Finding finding{"open files", Verdict::kOk, StrCat("at most ", LimitText(limit.rlim_cur)), ""};
  const auto wanted = static_cast<rlim_t>(1024 + 4 * config.max_concurrent_streams);
  if (limit.rlim_cur < wanted) {
    finding.verdict = Verdict::kWarn;
    finding.advice = StrCat("raise it (ulimit -n, LimitNOFILE) to ", wanted, " or more");
  }
  return finding;
}

Finding ExamineLockedMemory(bool has_device) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  Finding finding{"locked memory", Verdict::kOk,
                  StrCat("at most ", LimitText(limit.rlim_cur), " bytes"), ""};
  if (has_device && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < static_cast<rlim_t>(kGiB)) {
    finding.verdict = Verdict::kWarn;
    finding.advice = "transfers to devices use locked memory: raise it (ulimit -l, LimitMEMLOCK)";
  }
  return finding;
}

std::string FileSystemName(int64_t type) {
  static constexpr struct {
    int64_t type;
    const char* name;
  } kNames[] = {{0xEF53, "ext"},         {0x58465342, "xfs"},   {0x9123683E, "btrfs"},
                {0x01021994, "tmpfs"},   {0x858458f6, "ramfs"}, {0x6969, "nfs"},
                {0x794c7630, "overlay"}, {0x2fc12fc1, "zfs"},   {0x65735546, "fuse"}};
  for (const auto& [known, name] : kNames) {
    if (known == type) return name;
  }
  return absl::StrFormat("file system 0x%x", type);
}

Finding ExamineSharedMemory() {
  struct statfs status = {};
  if (statfs("/dev/shm", &status) != 0) {
    return {"/dev/shm", Verdict::kWarn, std::strerror(errno),
            "mount a tmpfs there: memory shared with local clients lies in it"};
  }
  const int64_t free = static_cast<int64_t>(status.f_bavail) * status.f_bsize;
  Finding finding{"/dev/shm", Verdict::kOk, StrCat(Bytes(free), " free"), ""};
  if (free < 256 * kMiB) {
    finding.verdict = Verdict::kWarn;
    finding.advice = "containers get 64 MiB unless told otherwise: docker run --shm-size=2g";
  }
  return finding;
}

// What the providers say of themselves before anything is started.
std::vector<Finding> ExamineDevices(const Config& config) {
  ProviderRegistry registry;
  const absl::Status declared = DeclareProviders(config.providers, InTreeProviders(), &registry);
  if (!declared.ok()) {
    return {{"providers", Verdict::kFail, std::string(declared.message()), "change --providers"}};
  }
  std::vector<Finding> findings;
  for (const ProviderRegistry::Entry& entry : registry.entries()) {
    if (ConditionOf(entry) != ProviderCondition::kAbsent) continue;
    const bool wanted = std::find(config.providers.begin(), config.providers.end(), entry.name) !=
                        config.providers.end();
    findings.push_back({StrCat("provider ", entry.name), wanted ? Verdict::kFail : Verdict::kOk,
                        std::string(entry.absence.message()),
                        wanted ? "take it out of --providers, or install what it lacks" : ""});
  }
  return findings;
}

Finding ExamineClock() {
  timex clock{};
  const int state = adjtimex(&clock);
  const std::string now = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  if (absl::Now() < absl::FromCivil(absl::CivilDay(2024, 1, 1), absl::UTCTimeZone())) {
    return {"clock", Verdict::kFail, now, "set it: certificates and deadlines need the right time"};
  }
  if (state == TIME_ERROR || (clock.status & STA_UNSYNC) != 0) {
    return {"clock", Verdict::kWarn, StrCat(now, ", not synchronised"),
            "run a time service (chrony, systemd-timesyncd), unless the host does it"};
  }
  // A container may not be allowed to ask.
  return {"clock", Verdict::kOk, StrCat(now, state < 0 ? "" : ", synchronised"), ""};
}

// Free of a write test's file in any case.
absl::Status TryToWrite(const fs::path& directory) {
  const std::string path = (directory / StrCat(".tenon-doctor-", getpid())).string();
  std::ofstream file(path);
  file << "x";
  file.close();
  const bool written = static_cast<bool>(file);
  const int why = errno;
  std::error_code ignored;
  fs::remove(path, ignored);
  return written ? absl::OkStatus() : Error(Reason::kPermissionDenied, std::strerror(why)).Build();
}

// Adds whose folder it is, and what to do when others than this user reach it; `others`: the mode
// bits that only this user should have. A folder that is not there will be this user's alone.
void ExamineOwner(const std::string& path, mode_t others, std::string_view why, Finding* finding) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return;
  constexpr mode_t kPermissions = 07777;
  finding->fact += absl::StrFormat(", mode %04o, of user %d", status.st_mode & kPermissions,
                                   static_cast<int>(status.st_uid));
  if (finding->verdict != Verdict::kOk) return;
  if (status.st_uid == geteuid() && (status.st_mode & others) == 0) return;
  finding->verdict = Verdict::kWarn;
  finding->advice = StrCat(why, ": give it to the server's user alone (chown, chmod 700)");
}

}  // namespace

Finding ExamineDirectory(const std::string& subject, const std::string& path, int64_t needed_bytes,
                         bool required) {
  const Verdict bad = required ? Verdict::kFail : Verdict::kWarn;
  std::error_code error;
  fs::path there = fs::path(path);
  const bool exists = fs::is_directory(there, error);
  while (!exists && !there.empty() && !fs::is_directory(there, error) &&
         there != there.parent_path()) {
    if (fs::exists(there, error)) {
      return {subject, bad, StrCat(there.string(), " is not a directory"), "name another one"};
    }
    there = there.parent_path();
  }
  if (there.empty()) there = ".";
  struct statfs status = {};
  if (statfs(there.c_str(), &status) != 0) {
    return {subject, bad, StrCat(path, ": ", std::strerror(errno)), "name another directory"};
  }
  const int64_t free = static_cast<int64_t>(status.f_bavail) * status.f_bsize;
  const std::string fact = StrCat(path, exists ? "" : " (will be made)", ", ",
                                  FileSystemName(status.f_type), ", ", Bytes(free), " free");
  const absl::Status writable = TryToWrite(there);
  if (!writable.ok()) {
    return {subject, bad, StrCat(fact, ", not writable: ", writable.message()),
            "give the server's user the right to write, or name another directory"};
  }
  if (free < needed_bytes) {
    return {subject, Verdict::kWarn, fact,
            StrCat("less than ", Bytes(needed_bytes), " is free: make room")};
  }
  return {subject, Verdict::kOk, fact, ""};
}

Finding ExamineStateFolder(const Config& config) {
  if (config.state_dir.empty()) {
    return {"state", Verdict::kOk, "off: no --state_dir, so no jobs", ""};
  }
  Finding finding = ExamineDirectory("state", config.state_dir, config.state_budget_bytes, true);
  finding.fact += StrCat("; --state_budget ", Bytes(config.state_budget_bytes));
  ExamineOwner(config.state_dir, S_IRWXG | S_IRWXO, "others reach the data of jobs", &finding);
  if (IsStateFolderInUse(config.state_dir)) {
    finding.verdict = Verdict::kFail;
    finding.fact += ", used by another server";
    finding.advice = "end that server, or name another directory";
  }
  return finding;
}

Finding ExamineScratchFolder(const Config& config) {
  if (config.scratch_budget_bytes == 0) {
    return {"scratch", Verdict::kOk, "off: --scratch_budget is 0", ""};
  }
  Finding finding = ExamineDirectory("scratch", config.scratch_dir, config.scratch_budget_bytes,
                                     !config.default_scratch_dir);
  finding.fact += StrCat("; --scratch_budget ", Bytes(config.scratch_budget_bytes));
  // One that was named may be shared; the server does without a default one that others write to.
  if (config.default_scratch_dir) {
    ExamineOwner(config.scratch_dir, S_IWGRP | S_IWOTH, "others may write there", &finding);
  } else {
    ExamineOwner(config.scratch_dir, 0, "it is another user's", &finding);
  }
  return finding;
}

Finding ExamineAddress(const std::string& subject, const Address& address) {
  if (address.is_unix) {
    const std::string folder = fs::path(address.host).parent_path().string();
    Finding finding = ExamineDirectory(subject, folder.empty() ? "." : folder, 0, true);
    finding.fact = StrCat(address.text, " in ", finding.fact);
    return finding;
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int resolved =
      getaddrinfo(address.host.c_str(), StrCat(address.port).c_str(), &hints, &found);
  if (resolved != 0) {
    return {subject, Verdict::kFail, StrCat(address.text, ": ", gai_strerror(resolved)),
            "name an address of this machine"};
  }
  const int descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;  // as gRPC does: a port whose old connections linger is free
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const bool bound =
      bind(descriptor, found->ai_addr, found->ai_addrlen) == 0 && listen(descriptor, 1) == 0;
  const int why = errno;
  close(descriptor);
  freeaddrinfo(found);
  if (bound) return {subject, Verdict::kOk, StrCat(address.text, " is free"), ""};
  return {subject, Verdict::kFail, StrCat(address.text, ": ", std::strerror(why)),
          why == EADDRINUSE ? "another process listens there (a tenond that runs already?): end it "
                              "or choose another port"
                            : "choose another address"};
}

std::vector<Finding> ExamineMachine(const Config& config) {
  std::vector<Finding> devices = ExamineDevices(config);
  const bool has_device = FirstLine("/proc/driver/nvidia/version") != "";
  std::vector<Finding> findings = {
      ExamineBuild(),           {"system", Verdict::kOk, OperatingSystem(), ""},
      ExamineProcessor(),       ExamineCores(config),
      ExamineMemory(config),    ExamineHugePages(),
      ExamineFileLimit(config), ExamineLockedMemory(has_device),
  };
  findings.push_back(ExamineScratchFolder(config));
  findings.push_back(ExamineStateFolder(config));
  if (!config.calibration_dir.empty()) {
    findings.push_back(ExamineDirectory("calibration", config.calibration_dir, kMiB, false));
  }
  if (!config.data_root.empty()) {
    findings.push_back({"data root", Verdict::kOk, config.data_root, ""});
  }
  findings.push_back(ExamineSharedMemory());
  for (Finding& device : devices) findings.push_back(std::move(device));
  for (const Address& address : config.listen) {
    findings.push_back(ExamineAddress("listen", address));
  }
  if (!config.metrics.empty()) {
    const auto address = ParseAddress(config.metrics);
    if (address.ok()) findings.push_back(ExamineAddress("metrics", *address));
  }
  findings.push_back(ExamineClock());
  return findings;
}

}  // namespace tenon::server
