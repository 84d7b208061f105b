// Sends random sequences of frames to a server in this process, under the address sanitizer:
//   frame_sequences COUNT [SEED] [RESULT.json]
// A sequence is a good call of some method, changed a little or a lot, cut anywhere, and ended by a
// half-close, a cancellation, the loss of its connection, or silence until the deadline. Each must
// end with a status. Whenever nothing is in flight, no memory may be reserved, and what the process
// holds must not grow. Prints the seed of what fails: COUNT 1 with that seed repeats it.

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <sanitizer/allocator_interface.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/core/error.h"
#include "google/protobuf/descriptor.h"
#include "google/rpc/status_details.pb.h"
#include "server/config.h"
#include "server/content_store.h"
#include "server/job_board.h"
#include "server/logging.h"
#include "server/process_stats.h"
#include "server/server.h"
#include "tests/fuzz/frame_input.h"
#include "tests/load/frame_scripts.h"
#include "tests/support/frame_call.h"
#include "tests/support/temporary_folder.h"

// Freed memory is set aside for a while, and the stacks of all allocations are kept: little of
// both, so that growth is seen.
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=8:malloc_context_size=1";
}

namespace tenon::testing {
namespace {

using Clock = std::chrono::steady_clock;
using End = FrameScript::End;

constexpr int kClients = 6;
constexpr int kRounds = 20;                    // after each of which nothing is in flight
constexpr std::chrono::seconds kLongest{20};   // until a half-closed stream must have ended
constexpr std::chrono::seconds kPatience{30};  // until everything is given back
constexpr int64_t kMostGrowthBytes = 2 << 20;  // of what the process holds, over all rounds
constexpr double kMostRssGrowth = 0.25;        // of the resident set, which is coarser

// Whether a client sends any number of requests; else gRPC itself sees to it that there is one.
bool StreamsRequests(const std::string& method) {
  std::string name = method.substr(1);
  std::replace(name.begin(), name.end(), '/', '.');
  return google::protobuf::DescriptorPool::generated_pool()
      ->FindMethodByName(name)
      ->client_streaming();
}

// One call, made from its seed alone.
FrameScript MakeScript(uint32_t seed, const std::vector<GoodCall>& calls) {
  std::minstd_rand random(seed);
  random.discard(3);  // neighbouring seeds begin alike
  const auto below = [&random](size_t limit) { return random() % limit; };
  const GoodCall& call = calls[below(calls.size())];
  const bool one_request = !StreamsRequests(call.method);
  FrameScript script;
  script.method = call.method;
  script.frames = call.frames;
  for (size_t steps = below(5); steps > 0; --steps) {
    fuzz::MutateFrames(*call.request, &script.frames, &random);
  }
  if (below(16) == 0) {  // a frame of another method
    const auto& other = calls[below(calls.size())].frames;
    script.frames.insert(script.frames.begin() + below(script.frames.size() + 1),
                         other[below(other.size())]);
  }
  if (below(16) == 0) {
    std::string noise(below(100), '\0');
    for (char& byte : noise) byte = static_cast<char>(below(256));
    script.frames.insert(script.frames.begin() + below(script.frames.size() + 1), noise);
  }
  if (one_request) script.frames.resize(1);
  constexpr End kEnds[] = {End::kHalfClose, End::kHalfClose, End::kHalfClose,  End::kHalfClose,
                           End::kCancel,    End::kCancel,    End::kDisconnect, End::kSilence};
  script.end = kEnds[below(std::size(kEnds))];
  if (script.end != End::kHalfClose && below(2) == 0) {
    script.frames.resize(below(script.frames.size() + 1));
  }
  script.reads = below(8) != 0;
  script.timeout = script.end == End::kSilence ? std::chrono::milliseconds(1 + below(40))
                                               : std::chrono::milliseconds(kLongest);
  return script;
}

// Why the status may not end this call; empty if it may.
std::string Complaint(const FrameScript& script, const grpc::Status& status) {
  if (status.ok()) return "";
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  google::rpc::ErrorInfo info;
  bool told = false;
  for (const auto& any : details.details()) told = told || any.UnpackTo(&info);
  // A call that expects sets beyond counting is refused in time.
  const bool refused = told && info.reason() == "DEADLINE_INFEASIBLE";
  if (status.error_code() == grpc::DEADLINE_EXCEEDED && script.end != End::kSilence && !refused) {
    return "it did not end by itself";
  }
  if (told) return info.reason() == "INTERNAL" ? "an internal error" : "";
  // gRPC itself parses a single request, and says this of one that does not parse or come.
  if (status.error_code() == grpc::UNIMPLEMENTED && !StreamsRequests(script.method)) return "";
  // Without details it comes from the client's own library.
  switch (script.end) {
    case End::kCancel:
      return status.error_code() == grpc::CANCELLED ? "" : "another status than CANCELLED";
    case End::kDisconnect:
      return status.error_code() == grpc::UNAVAILABLE || status.error_code() == grpc::UNKNOWN
                 ? ""
                 : "another status than UNAVAILABLE";
    case End::kSilence:
      return status.error_code() == grpc::DEADLINE_EXCEEDED ? ""
                                                            : "another status than the deadline's";
    case End::kHalfClose:
      return "an error without details";
  }
  return "";
}

// A socket that is connected to the server, or -1.
int Connect(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

struct Tally {
  std::mutex mutex;
  std::map<std::string, int64_t> statuses, ends, methods;
  int64_t sent_frames = 0, answers = 0;
  std::vector<std::string> complaints;
};

class Client {
 public:
  Client(std::string path, const std::vector<GoodCall>* calls, Tally* tally)
      : path_(std::move(path)), calls_(calls), tally_(tally) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ =
        grpc::CreateCustomChannel("unix:" + path_, grpc::InsecureChannelCredentials(), arguments);
  }

  void Run(uint32_t seed) {
    FrameScript script = MakeScript(seed, *calls_);
    FrameAnswer answer;
    if (script.end == End::kDisconnect) {
      answer = RunAndDisconnect(&script);
    } else {
      answer = RunFrames(channel_, script);
    }
    Record(seed, script, answer);
  }

 private:
  // gRPC closes the one descriptor; the other one breaks the connection, as a lost host would.
  FrameAnswer RunAndDisconnect(FrameScript* script) const {
    const int fd = Connect(path_);
    if (fd < 0) return {grpc::Status(grpc::UNAVAILABLE, "no connection"), {}};
    const int other = dup(fd);
    const auto channel = grpc::CreateInsecureChannelFromFd("server", fd);
    script->disconnect = [other] { shutdown(other, SHUT_RDWR); };
    FrameAnswer answer = RunFrames(channel, *script);
    close(other);
    return answer;
  }

  void Record(uint32_t seed, const FrameScript& script, const FrameAnswer& answer) const {
    static constexpr const char* kEndNames[] = {"half_close", "cancel", "disconnect", "silence"};
    const std::string complaint = Complaint(script, answer.status);
    google::rpc::Status details;
    details.ParseFromString(answer.status.error_details());
    google::rpc::ErrorInfo info;
    for (const auto& any : details.details()) any.UnpackTo(&info);
    const std::string reason = answer.status.ok()       ? "OK"
                               : !info.reason().empty() ? info.reason()
                                                        : "client library";
    const std::lock_guard lock(tally_->mutex);
    ++tally_->statuses[reason];
    ++tally_->ends[kEndNames[static_cast<int>(script.end)]];
    ++tally_->methods[script.method];
    tally_->sent_frames += static_cast<int64_t>(script.frames.size());
    tally_->answers += static_cast<int64_t>(answer.frames.size());
    if (complaint.empty()) return;
    tally_->complaints.push_back(
        "seed " + std::to_string(seed) + ": " + script.method + ": " + complaint + " (code " +
        std::to_string(answer.status.error_code()) + ": " + answer.status.error_message() + ")");
  }

  const std::string path_;
  const std::vector<GoodCall>* const calls_;
  Tally* const tally_;
  std::shared_ptr<grpc::Channel> channel_;
};

struct Held {
  int64_t heap_bytes = 0, rss_bytes = 0;
};

// Ends all jobs and deletes them. False when that takes too long.
bool ForgetJobs(server::JobBoard* board) {
  const auto limit = Clock::now() + kPatience;
  for (;;) {
    std::vector<std::pair<std::string, std::string>> jobs;  // owner, name
    board->List(std::nullopt, 0, [&jobs](int64_t, const v1::Job& job) {
      jobs.emplace_back(job.owner(), job.name());
      return true;
    });
    if (jobs.empty()) return true;
    if (Clock::now() > limit) return false;
    for (const auto& [owner, name] : jobs) {
      // Neither succeeds while the job is ending; then the next look finds it again.
      if (board->Cancel(owner, name).ok()) board->Delete(owner, name).IgnoreError();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// What is held when nothing is in flight and nothing is kept for later. Complains otherwise.
Held MeasureIdle(server::ServerState* state, Tally* tally) {
  if (!ForgetJobs(state->jobs.get())) tally->complaints.emplace_back("there are jobs that stay");
  const auto limit = Clock::now() + kPatience;
  const auto stored = [&] {
    return state->store->reserved_bytes() + state->store->resource_bytes();
  };
  while (state->metrics.in_flight() > 0 || state->executor.running() > 0 ||
         state->jobs->running() > 0 || state->budget.reserved_bytes() != stored()) {
    if (Clock::now() > limit) {
      tally->complaints.push_back(
          "in flight: " + std::to_string(state->metrics.in_flight()) +
          ", reserved bytes: " + std::to_string(state->budget.reserved_bytes()) +
          ", of which stored: " + std::to_string(stored()));
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  state->store->Evict(INT64_MAX);
  if (state->budget.reserved_bytes() != 0) {
    tally->complaints.push_back(std::to_string(state->budget.reserved_bytes()) +
                                " bytes are reserved after everything was evicted");
  }
  state->plan_cache.Clear();
  state->plans.Clear();
  return {static_cast<int64_t>(__sanitizer_get_current_allocated_bytes()) - state->programs.bytes(),
          server::ReadProcessStats().resident_bytes};
}

void RunRound(uint32_t first_seed, int64_t count, std::vector<Client>* clients) {
  std::atomic<int64_t> next = 0;
  std::vector<std::thread> threads;
  for (Client& client : *clients) {
    threads.emplace_back([&] {
      for (int64_t i; (i = next++) < count;) client.Run(first_seed + static_cast<uint32_t>(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Jobs to call about, made anew for every round.
std::vector<std::string> MakeJobs(const std::string& path, Tally* tally) {
  constexpr int kJobs = 5;
  const auto channel = grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials());
  FrameScript script;
  script.method = Submission(false).method;
  script.frames = Submission(false).frames;
  std::vector<std::string> names;
  for (int i = 0; i < kJobs; ++i) {
    const FrameAnswer answer = RunFrames(channel, script);
    v1::SubmitContractionResponse response;
    if (!answer.frames.empty()) response.ParseFromString(answer.frames[0]);
    names.push_back(response.job().name());
    if (!answer.status.ok()) {
      tally->complaints.push_back("no job: " + answer.status.error_message());
    }
  }
  return names;
}

server::Config MakeConfig(const std::string& path, const std::string& state_dir) {
  server::Config config = *server::ConfigFromFlags();
  config.listen = {*server::ParseAddress("unix:" + path)};
  config.metrics = "";
  config.providers = {"cpu"};
  config.memory_budget_bytes = int64_t{64} << 20;
  config.threads = 2;
  config.concurrent_requests = 3;
  config.max_queued_requests = 64;
  config.calibration_dir = "";
  config.state_dir = state_dir;
  config.state_budget_bytes = int64_t{64} << 20;
  config.drain_delay = absl::ZeroDuration();
  return config;
}

// Growth from the end of the first quarter, when everything that is kept once is there.
void CheckGrowth(const std::vector<Held>& rounds, Tally* tally) {
  const Held& early = rounds[rounds.size() / 4];
  const Held& late = rounds.back();
  if (late.heap_bytes - early.heap_bytes > kMostGrowthBytes) {
    tally->complaints.push_back("the heap grew by " +
                                std::to_string(late.heap_bytes - early.heap_bytes) + " bytes");
  }
  if (static_cast<double>(late.rss_bytes) >
      (1 + kMostRssGrowth) * static_cast<double>(early.rss_bytes)) {
    tally->complaints.push_back("the resident set grew from " + std::to_string(early.rss_bytes) +
                                " to " + std::to_string(late.rss_bytes) + " bytes");
  }
}

nlohmann::json Report(int64_t count, uint32_t seed, double seconds, const std::vector<Held>& rounds,
                      const Tally& tally) {
  nlohmann::json json = {{"sequences", count},
                         {"seed", seed},
                         {"seconds", seconds},
                         {"frames_sent", tally.sent_frames},
                         {"frames_received", tally.answers},
                         {"statuses", tally.statuses},
                         {"ends", tally.ends},
                         {"methods", tally.methods},
                         {"complaints", tally.complaints}};
  for (const Held& held : rounds) {
    json["heap_bytes_when_idle"].push_back(held.heap_bytes);
    json["resident_bytes_when_idle"].push_back(held.rss_bytes);
  }
  return json;
}

int Run(int64_t count, uint32_t seed, const char* result) {
  server::InitLogging("error", false);
  const std::string path = "/tmp/frame_sequences." + std::to_string(getpid());
  const TemporaryFolder folder;
  auto server = server::Server::Start(MakeConfig(path, folder.path()));
  if (!server.ok() || !(*server)->WaitUntilReady()) return EXIT_FAILURE;
  // Searches are allowed to take long; here they are not what is tested.
  (*server)->state()->limits.max_plan_seconds = 0.1;
  (*server)->state()->limits.default_plan_seconds = 0.01;

  std::vector<GoodCall> calls;
  Tally tally;
  std::vector<Client> clients;
  for (int i = 0; i < kClients; ++i) clients.emplace_back(path, &calls, &tally);
  std::printf("%ld sequences from seed %u\n", static_cast<long>(count), seed);
  const auto start = Clock::now();
  std::vector<Held> rounds;
  const int64_t per_round = std::max<int64_t>(1, count / kRounds);
  for (int64_t done = 0; done < count; done += per_round) {
    calls = GoodCalls();
    for (GoodCall& call : JobCalls(MakeJobs(path, &tally))) calls.push_back(std::move(call));
    RunRound(seed + static_cast<uint32_t>(done), std::min(per_round, count - done), &clients);
    rounds.push_back(MeasureIdle((*server)->state(), &tally));
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (rounds.size() >= kRounds) CheckGrowth(rounds, &tally);
  clients.clear();
  (*server)->Shutdown();
  if (!(*server)->Wait()) tally.complaints.emplace_back("the server did not stop");
  server->reset();
  unlink(path.c_str());

  const nlohmann::json report = Report(count, seed, seconds, rounds, tally);
  std::printf("%s\n", report.dump(2).c_str());
  if (result != nullptr) std::ofstream(result) << report.dump(2) << "\n";
  return tally.complaints.empty() ? EXIT_SUCCESS : EXIT_FAILURE;  // leaks are looked for at exit
}

}  // namespace
}  // namespace tenon::testing

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s COUNT [SEED] [RESULT.json]\n", argv[0]);
    return 2;
  }
  const int64_t count = std::max(1L, std::atol(argv[1]));
  const auto seed =
      argc > 2 ? static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10)) : std::random_device()();
  return tenon::testing::Run(count, seed, argc > 3 ? argv[3] : nullptr);
}
