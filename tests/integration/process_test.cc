// The process tenond: its exit codes, its output and its signals.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/integration/test_server.h"

extern char** environ;

namespace tenon::testing {
namespace {

using ::testing::HasSubstr;

// One run; standard output and standard error go into one pipe.
class Tenond {
 public:
  explicit Tenond(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TENON_TENOND);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    output_ = fdopen(ends[0], "r");
  }
  ~Tenond() {
    if (!waited_) {
      kill(pid_, SIGKILL);
      ExitCode();
    }
    fclose(output_);
  }

  void Signal(int signal) const { kill(pid_, signal); }

  // Reads until a line holds `text`, and returns that line; "" at the end of the output.
  std::string LineWith(const std::string& text) {
    char* line = nullptr;
    size_t size = 0;
    std::string found;
    while (found.empty() && getline(&line, &size, output_) > 0) {
      if (std::string(line).find(text) != std::string::npos) found = line;
    }
    free(line);
    return found;
  }
  std::string Rest() {
    std::string rest;
    char buffer[4096];
    for (size_t got; (got = fread(buffer, 1, sizeof(buffer), output_)) > 0;) {
      rest.append(buffer, got);
    }
    return rest;
  }
  // -1 when a signal ended it.
  int ExitCode() {
    int status = 0;
    waitpid(pid_, &status, 0);
    waited_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = 0;
  FILE* output_ = nullptr;
  bool waited_ = false;
};

const std::vector<std::string> kFreePorts = {"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0",
                                             "--drain_delay=0"};

std::vector<std::string> With(std::vector<std::string> more) {
  std::vector<std::string> all = kFreePorts;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Process, ServesUntilSigtermAndExitsCleanly) {
  Tenond tenond(kFreePorts);
  EXPECT_THAT(tenond.LineWith(" start "), HasSubstr("version="));
  const std::string ready = tenond.LineWith(" ready address=");
  ASSERT_THAT(ready, HasSubstr("address=127.0.0.1:"));
  const size_t begin = ready.find("address=") + 8;
  const std::string address = ready.substr(begin, ready.find(' ', begin) - begin);
  EXPECT_TRUE(ChannelTo(address)->WaitForConnected(std::chrono::system_clock::now() +
                                                   std::chrono::seconds(30)));
  tenond.Signal(SIGHUP);  // no reason to end
  tenond.Signal(SIGTERM);
  const std::string rest = tenond.Rest();
  for (const char* event : {" lame-duck ", " draining ", " stopped ", " exit"}) {
    EXPECT_THAT(rest, HasSubstr(event));
  }
  EXPECT_EQ(tenond.ExitCode(), 0);
}

TEST(Process, ASignalDuringTheStartEndsItCleanly) {
  Tenond tenond(kFreePorts);
  tenond.LineWith(" start ");
  tenond.Signal(SIGINT);
  EXPECT_THAT(tenond.Rest(), HasSubstr(" stopped "));
  EXPECT_EQ(tenond.ExitCode(), 0);
}

// The file for the ports is a pipe that nobody reads: the start hangs, as on storage that is gone.
TEST(Process, ASignalEndsAStartThatHangs) {
  const std::string pipe = ::testing::TempDir() + "ports." + std::to_string(getpid());
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Tenond tenond(With({"--port_file=" + pipe}));
  ASSERT_NE(tenond.LineWith(" ready "), "");
  tenond.Signal(SIGHUP);  // there is nothing to be read anew
  ASSERT_NE(tenond.LineWith("starting=true"), "");
  tenond.Signal(SIGTERM);
  EXPECT_EQ(tenond.ExitCode(), 0);
  unlink(pipe.c_str());
}

TEST(Process, ASecondSigtermSkipsTheDelays) {
  Tenond tenond({"--listen=127.0.0.1:0", "--metrics=", "--drain_delay=1h"});
  ASSERT_NE(tenond.LineWith(" ready address="), "");
  tenond.Signal(SIGTERM);
  ASSERT_NE(tenond.LineWith(" lame-duck "), "");
  tenond.Signal(SIGTERM);
  EXPECT_EQ(tenond.ExitCode(), 0);
}

TEST(Process, LogsJson) {
  Tenond tenond(With({"--log_format=json"}));
  const auto start = nlohmann::json::parse(tenond.LineWith("\"start\""));
  EXPECT_EQ(start["level"], "INFO");
  EXPECT_EQ(nlohmann::json::parse(start["config"].get<std::string>())["log_format"], "json");
  const auto ready = nlohmann::json::parse(tenond.LineWith("\"ready\""));
  EXPECT_THAT(ready["address"].get<std::string>(), HasSubstr("127.0.0.1:"));
  tenond.Signal(SIGTERM);
  EXPECT_EQ(tenond.ExitCode(), 0);
}

TEST(Process, RefusesBadSettingsWithExitCodeTwo) {
  const struct {
    std::vector<std::string> arguments;
    const char* says;
  } cases[] = {{{"--nonsense=1"}, "nonsense"},
               {{"--threads=x"}, "--threads"},
               {{"--listen=0.0.0.0:0"}, "--insecure_listen"},
               {{"--config=/no/such/file"}, "/no/such/file"},
               {{"--providers=tpu"}, "tpu"},
               {{"--check_config", "--log_level=loud"}, "log_level"}};
  for (const auto& bad : cases) {
    Tenond tenond(bad.arguments);
    EXPECT_THAT(tenond.Rest(), HasSubstr(bad.says));
    EXPECT_EQ(tenond.ExitCode(), 2) << bad.arguments[0];
  }
}

TEST(Process, RefusesAnOccupiedPortWithExitCodeTwo) {
  const auto server = StartOrDie(TestConfigWithHttp());
  for (const std::string& argument : {StrCat("--listen=", server->addresses()[0]),
                                      StrCat("--metrics=127.0.0.1:", server->metrics_port())}) {
    Tenond tenond(With({argument}));
    // --listen given twice adds up, so the free port stays; the taken one is refused all the same.
    EXPECT_THAT(tenond.Rest(), HasSubstr("cannot listen on 127.0.0.1:"));
    EXPECT_EQ(tenond.ExitCode(), 2) << argument;
  }
}

TEST(Process, CommandsPrintAndExit) {
  Tenond version({"--version"}), help({"--help"}), check({"--check_config"}),
      print({"--print_config", "--threads=3"});
  EXPECT_THAT(version.Rest(), HasSubstr("tenond "));
  EXPECT_THAT(help.Rest(), HasSubstr("--memory_budget"));
  EXPECT_THAT(check.Rest(), HasSubstr("valid"));
  EXPECT_EQ(nlohmann::json::parse(print.Rest())["threads"], 3);
  for (Tenond* tenond : {&version, &help, &check, &print}) EXPECT_EQ(tenond->ExitCode(), 0);
}

TEST(Process, DoctorExitsWithOneWhenSomethingFails) {
  Tenond well(With({"--doctor", "--json", "--memory_budget=64MiB"}));
  const auto found = nlohmann::json::parse(well.Rest());
  EXPECT_EQ(well.ExitCode(), found["ok"].get<bool>() ? 0 : 1);
  EXPECT_TRUE(found["ok"].get<bool>()) << found;

  const auto server = StartOrDie(TestConfig());
  Tenond taken(With({"--doctor", StrCat("--listen=", server->addresses()[0])}));
  EXPECT_THAT(taken.Rest(), HasSubstr("fail  listen"));
  EXPECT_EQ(taken.ExitCode(), 1);
}

}  // namespace
}  // namespace tenon::testing
