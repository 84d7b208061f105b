#include "server/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/flags/reflection.h"
#include "server/process_stats.h"
#include "server/scratch_space.h"
#include "tests/support/certificates.h"
#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using ::tenon::testing::Fails;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ConfigTest : public ::testing::Test {
 protected:
  // The configuration that a command line gives.
  static absl::StatusOr<Config> Read(const std::vector<std::string>& arguments) {
    TENON_RETURN_IF_ERROR(ParseCommandLine(arguments).status());
    return ConfigFromFlags();
  }
  static std::string WriteFile(const std::string& text) {
    const std::string path =
        ::testing::TempDir() + "/tenond_config_" + std::to_string(getpid()) + ".json";
    std::ofstream(path) << text;
    return path;
  }

 private:
  absl::FlagSaver saver_;
};

TEST_F(ConfigTest, HasSafeDefaults) {
  const auto config = Read({});
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->listen.size(), 1u);
  EXPECT_EQ(config->listen[0].text, "127.0.0.1:50551");
  EXPECT_EQ(config->metrics, "127.0.0.1:50552");
  EXPECT_THAT(config->providers, ElementsAre("cpu", "reference"));
  EXPECT_NEAR(static_cast<double>(config->memory_budget_bytes),
              0.8 * static_cast<double>(UsableMemoryBytes()), 1e6);
  EXPECT_EQ(config->threads, UsableThreads());
  EXPECT_EQ(config->exit_when, "all");
  EXPECT_EQ(config->drain_delay, absl::Seconds(5));
  EXPECT_EQ(config->grace_period, absl::Seconds(30));
  EXPECT_EQ(config->kill_limit, absl::Seconds(5));
  EXPECT_TRUE(config->reflection);
  EXPECT_FALSE(config->log_json);
}

TEST_F(ConfigTest, ReadsEveryFormOfArgument) {
  const auto config =
      Read({"--threads=3", "--memory_budget", "1GiB", "--noreflection", "--insecure_listen",
            "-listen=0.0.0.0:1,127.0.0.1:2", "--listen=unix:/tmp/x", "--log-format=json"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->threads, 3);
  EXPECT_EQ(config->memory_budget_bytes, int64_t{1} << 30);
  EXPECT_FALSE(config->reflection);
  EXPECT_TRUE(config->log_json);
  ASSERT_EQ(config->listen.size(), 3u);
  EXPECT_EQ(config->listen[1].port, 2);
  EXPECT_TRUE(config->listen[2].is_unix);
}

TEST_F(ConfigTest, CommandsAreNoSettings) {
  const auto command = ParseCommandLine({"--version", "--check_config", "--print_config=false"});
  ASSERT_TRUE(command.ok());
  EXPECT_TRUE(command->version);
  EXPECT_TRUE(command->check_config);
  EXPECT_FALSE(command->print_config);
  EXPECT_FALSE(command->help);
}

TEST_F(ConfigTest, CommandLineWinsOverFileWhateverTheOrder) {
  const std::string path = WriteFile(
      R"({"threads": 7, "grace_period": "1m", "reflection": false, "listen": ["127.0.0.1:1", "127.0.0.1:2"]})");
  const auto config = Read({"--threads=2", "--config=" + path, "--listen=127.0.0.1:9"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->threads, 2);
  EXPECT_EQ(config->grace_period, absl::Minutes(1));
  EXPECT_FALSE(config->reflection);
  ASSERT_EQ(config->listen.size(), 1u);
  EXPECT_EQ(config->listen[0].port, 9);
}

TEST_F(ConfigTest, RefusesBadFilesNamingKeyAndFile) {
  const struct {
    const char* text;
    const char* key;
  } cases[] = {{R"({"thread": 7})", "thread"},
               {R"({"help": true})", "help"},
               {R"({"threads": "many"})", "threads"},
               {R"({"threads": 1.5})", "threads"},
               {R"({"threads": null})", "threads"},
               {R"({"threads": [1]})", "threads"},
               {R"({"listen": [1]})", "listen"},
               {R"({"drain_delay": {}})", "drain_delay"},
               {R"([1])", "config"},
               {R"({"threads": )", "config"}};
  for (const auto& bad : cases) {
    const absl::Status status = ApplyConfigText(bad.text, "server.json");
    EXPECT_TRUE(Fails(status, Reason::kBadParameter, bad.key)) << bad.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("server.json")) << bad.text;
    if (std::string(bad.key) != "config") {
      EXPECT_THAT(std::string(status.message()), HasSubstr(bad.key)) << bad.text;
    }
  }
  EXPECT_TRUE(Fails(ParseCommandLine({"--config=/no/such/file"}), Reason::kBadParameter, "config"));
}

TEST_F(ConfigTest, RefusesBadArgumentsNamingTheFlag) {
  const struct {
    std::vector<std::string> arguments;
    const char* field;
  } cases[] = {{{"--thread=1"}, "thread"},
               {{"--threads"}, "threads"},
               {{"--threads=x"}, "threads"},
               {{"--threads=-1"}, "threads"},
               {{"--nothreads"}, "nothreads"},
               {{"--reflection=maybe"}, "reflection"},
               {{"--memory_budget=lots"}, "memory_budget"},
               {{"--memory_budget=1KiB"}, "memory_budget"},
               {{"--listen="}, "listen"},
               {{"--listen=0.0.0.0:1"}, "listen"},
               {{"--listen=nowhere"}, "listen"},
               {{"--metrics=nowhere"}, "metrics"},
               {{"--metrics=unix:/x"}, "metrics"},
               {{"--metrics=0.0.0.0:1"}, "metrics"},
               {{"--memory_budget=150%"}, "memory_budget"},
               {{"--concurrent_requests=0"}, "concurrent_requests"},
               {{"--max_queued_requests=-1"}, "max_queued_requests"},
               {{"--max_concurrent_streams=0"}, "max_concurrent_streams"},
               {{"--grace_period=-1s"}, "grace_period"},
               {{"--grace_period=5"}, "grace_period"},
               {{"--kill_limit=inf"}, "kill_limit"},
               {{"--exit_when=some"}, "exit_when"},
               {{"--write_stall_timeout=0"}, "write_stall_timeout"},
               {{"--data_root=/no/such/folder"}, "data_root"},
               {{"--scratch_dir=/dev/null"}, "scratch_dir"},
               {{"--scratch_budget=lots"}, "scratch_budget"},
               {{"--state_dir=/dev/null"}, "state_dir"},
               {{"--state_dir=/no/such/folder"}, "state_dir"},
               {{"--state_budget=lots"}, "state_budget"},
               {{"--job_ttl=0"}, "job_ttl"},
               {{"--max_job_ttl=-1s"}, "max_job_ttl"},
               {{"--max_jobs=0"}, "max_jobs"},
               {{"--concurrent_jobs=0"}, "concurrent_jobs"},
               {{"--shared_memory_socket=/" + std::string(107, 'x')}, "shared_memory_socket"},
               {{"--shared_memory_limit=101%"}, "shared_memory_limit"},
               {{"--shared_memory_pool_limit=some"}, "shared_memory_pool_limit"},
               {{"--shared_memory_uids=root"}, "shared_memory_uids"},
               {{"--shared_memory_uids=-1"}, "shared_memory_uids"},
               {{"--log_level=loud"}, "log_level"},
               {{"--log_format=xml"}, "log_format"},
               {{"--providers="}, "providers"},
               {{"--version=perhaps"}, "version"}};
  for (const auto& bad : cases) {
    absl::FlagSaver saver;
    EXPECT_TRUE(Fails(Read(bad.arguments), Reason::kBadParameter, bad.field)) << bad.arguments[0];
  }
  EXPECT_TRUE(Fails(ParseCommandLine({"listen"}), Reason::kBadParameter));
}

TEST_F(ConfigTest, ReadsBytes) {
  constexpr int64_t kWhole = 1'000'000;
  const std::pair<const char*, int64_t> good[] = {{"0", 0},
                                                  {"17", 17},
                                                  {"17B", 17},
                                                  {"2KiB", 2048},
                                                  {"1.5 MiB", 1572864},
                                                  {"4GiB", int64_t{4} << 30},
                                                  {"1TiB", int64_t{1} << 40},
                                                  {"2KB", 2000},
                                                  {"3MB", 3'000'000},
                                                  {"1GB", 1'000'000'000},
                                                  {"25%", 250'000}};
  for (const auto& [text, bytes] : good) {
    const auto parsed = ParseBytes(text, kWhole);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
  for (const char* text : {"", "x", "-1", "4Gib", "1e30", "nan", "inf", "%", "KiB"}) {
    EXPECT_TRUE(Fails(ParseBytes(text, kWhole), Reason::kBadParameter)) << text;
  }
}

TEST_F(ConfigTest, PrintedConfigurationReadsBackToTheSame) {
  const auto config = Read({"--threads=3", "--memory_budget=50%", "--drain_delay=1500ms",
                            "--listen=127.0.0.1:1,127.0.0.1:2", "--noreflection",
                            "--data_root=" + ::testing::TempDir()});
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string printed = ConfigJson(*config);
  EXPECT_EQ(nlohmann::json::parse(printed)["memory_budget"], config->memory_budget_bytes);

  absl::FlagSaver saver;
  ASSERT_TRUE(Read({"--threads=1", "--listen=127.0.0.1:9", "--reflection"}).ok());
  ASSERT_TRUE(ApplyConfigText(printed, "printed").ok());
  const auto again = ConfigFromFlags();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ConfigJson(*again), printed);
}

TEST_F(ConfigTest, SharedMemoryIsOffAndAPartOfTheBudget) {
  auto config = Read({"--memory_budget=1GiB"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shared_memory_socket, "");
  EXPECT_EQ(config->shared_memory_limit_bytes, 512 << 20);
  EXPECT_EQ(config->shared_memory_pool_limit_bytes, 512 << 20);
  EXPECT_THAT(config->shared_memory_uids, ::testing::IsEmpty());
  config =
      Read({"--memory_budget=1GiB", "--shared_memory_socket=/run/s", "--shared_memory_limit=2GiB",
            "--shared_memory_pool_limit=25%", "--shared_memory_uids=1000,1001"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shared_memory_socket, "/run/s");
  EXPECT_EQ(config->shared_memory_limit_bytes, 1 << 30);  // never more than the budget
  EXPECT_EQ(config->shared_memory_pool_limit_bytes, 256 << 20);
  EXPECT_THAT(config->shared_memory_uids, ::testing::ElementsAre(1000u, 1001u));
}

TEST_F(ConfigTest, ScratchSpaceHasADirectoryOfItsOwn) {
  auto config = Read({"--scratch_budget=1MiB"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->default_scratch_dir);
  EXPECT_THAT(config->scratch_dir, HasSubstr("tenond-"));
  EXPECT_EQ(config->scratch_budget_bytes, 1 << 20);
  config = Read({"--scratch_dir=" + ::testing::TempDir(), "--scratch_budget=0"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->default_scratch_dir);
  EXPECT_EQ(config->scratch_budget_bytes, 0);
}

TEST_F(ConfigTest, ScratchSpaceMayBeMade) {
  const std::string folder = ::testing::TempDir() + "/tenon_scratch_" + std::to_string(getpid());
  for (const std::string& path : {folder, folder + "/"}) {
    const auto config = Read({"--scratch_dir=" + path});
    ASSERT_TRUE(config.ok()) << config.status();
    const auto space = ScratchSpace::Create(config->scratch_dir, false, 1 << 20, 64);
    ASSERT_TRUE(space.ok()) << space.status();
    EXPECT_EQ(std::filesystem::status(folder).permissions(), std::filesystem::perms::owner_all);
    std::filesystem::remove_all(folder);
  }
  EXPECT_TRUE(Fails(Read({"--scratch_dir=/no/such/folder"}), Reason::kBadParameter, "scratch_dir"));
}

TEST_F(ConfigTest, JobsNeedAFolder) {
  auto config = Read({});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->state_dir, "");
  EXPECT_EQ(config->job_ttl, absl::Hours(24));
  config = Read({"--state_dir=" + ::testing::TempDir() + "/tenon_state", "--state_budget=3MiB"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->state_dir, HasSubstr("tenon_state"));
  EXPECT_EQ(config->state_budget_bytes, 3 << 20);
  config = Read({"--state_dir=" + ::testing::TempDir(), "--state_budget=100%"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_GT(config->state_budget_bytes, 0);
}

TEST_F(ConfigTest, HelpDescribesEveryPrintedSetting) {
  const auto config = Read({});
  ASSERT_TRUE(config.ok());
  const std::string help = HelpText();
  const nlohmann::json printed = nlohmann::json::parse(ConfigJson(*config));
  for (const auto& [key, value] : printed.items()) {
    EXPECT_THAT(help, HasSubstr("--" + key + " (default: ")) << key;
  }
}

TEST_F(ConfigTest, ReadsWhoMayCall) {
  const tenon::testing::CertificateFolder folder;
  const tenon::testing::CertificateFiles server = folder.Make("server", "");
  folder.Write("tokens", "alice compute " + std::string(64, 'a') + "\n");
  const std::vector<std::string> tls = {"--tls_cert=" + server.cert, "--tls_key=" + server.key};
  {
    absl::FlagSaver saver;
    const auto config =
        Read({tls[0], tls[1], "--tls_client_ca=" + folder.ca(), "--admin_principals=a,b",
              "--listen=0.0.0.0:0", "--max_streams_per_principal=3", "--memory_budget=1GiB",
              "--max_stored_bytes_per_principal=10%"});
    ASSERT_TRUE(config.ok()) << config.status();
    ASSERT_NE(config->tls, nullptr);
    EXPECT_EQ(config->tls_files.client_ca, folder.ca());
    EXPECT_THAT(config->admin_principals, ElementsAre("a", "b"));
    EXPECT_EQ(config->tls_reload_interval, absl::Minutes(1));
    EXPECT_EQ(config->max_streams_per_principal, 3);
    EXPECT_EQ(config->max_stored_bytes_per_principal, (int64_t{1} << 30) / 10);
  }
  {
    absl::FlagSaver saver;
    const auto config = Read({"--token_file=" + folder.Path("tokens")});
    ASSERT_TRUE(config.ok()) << config.status();
    ASSERT_NE(config->tokens, nullptr);
    EXPECT_EQ(config->tokens->size(), 1u);
  }
  const struct {
    std::vector<std::string> arguments;
    const char* field;
  } cases[] = {{{tls[0]}, "tls_cert"},
               {{tls[1]}, "tls_key"},
               {{"--tls_client_ca=" + folder.ca()}, "tls_client_ca"},
               {{"--tls_cert=/no/such/file", tls[1]}, "tls_cert"},
               {{tls[0], tls[1], "--tls_reload_interval=1ms"}, "tls_reload_interval"},
               {{"--tls_reload_interval=-1s"}, "tls_reload_interval"},
               {{"--token_file=/no/such/file"}, "token_file"},
               {{"--token_file=" + folder.ca()}, "token_file"},
               {{"--token_file=" + folder.Path("tokens"), "--listen=0.0.0.0:0"}, "listen"},
               {{tls[0], tls[1], "--metrics=0.0.0.0:0"}, "metrics"},
               {{"--admin_principals=a"}, "admin_principals"},
               {{tls[0], tls[1], "--admin_principals=a"}, "admin_principals"},
               {{"--token_file=" + folder.Path("tokens"), tls[0], tls[1],
                 "--tls_client_ca=" + folder.ca(), "--admin_principals=a"},
                "admin_principals"},
               {{"--max_streams_per_principal=-1"}, "max_streams_per_principal"},
               {{"--max_stored_bytes_per_principal=many"}, "max_stored_bytes_per_principal"}};
  for (const auto& bad : cases) {
    absl::FlagSaver saver;
    EXPECT_TRUE(Fails(Read(bad.arguments), Reason::kBadParameter, bad.field)) << bad.arguments[0];
  }
}

TEST_F(ConfigTest, IsReadAgainFromTheFileWithoutTouchingTheFlags) {
  const std::string path = WriteFile(R"({"threads": 3, "max_queued_requests": 5})");
  const std::vector<std::string> arguments = {"--config=" + path, "--grace_period=7s"};
  ASSERT_TRUE(Read(arguments).ok());
  const SettingTexts before = CurrentSettings();
  WriteFile(R"({"max_queued_requests": 6, "grace_period": "9s"})");
  const auto again = ReadConfigAgain(arguments);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->config.max_queued_requests, 6);
  EXPECT_EQ(again->config.threads, UsableThreads());        // no longer in the file: the default
  EXPECT_EQ(again->config.grace_period, absl::Seconds(7));  // the command line wins
  EXPECT_EQ(again->settings.at("max_queued_requests"), "6");
  EXPECT_EQ(CurrentSettings(), before);
  WriteFile(R"({"max_queued_requests": -6})");
  EXPECT_TRUE(Fails(ReadConfigAgain(arguments), Reason::kBadParameter, "max_queued_requests"));
  WriteFile("{");
  EXPECT_TRUE(Fails(ReadConfigAgain(arguments), Reason::kBadParameter, "config"));
  EXPECT_EQ(CurrentSettings(), before);
}

// A file of brackets alone must not exhaust the stack.
TEST_F(ConfigTest, DeepFilesAreRefused) {
  constexpr size_t kDepth = 1'000'000;
  EXPECT_TRUE(
      Fails(ApplyConfigText(std::string(kDepth, '['), "deep"), Reason::kBadParameter, "config"));
  EXPECT_TRUE(Fails(
      ApplyConfigText(R"({"threads": )" + std::string(kDepth, '[') + std::string(kDepth, ']') + "}",
                      "deep"),
      Reason::kBadParameter, "threads"));
}

TEST(ProcessStats, TellsOfThisProcess) {
  const ProcessStats stats = ReadProcessStats();
  EXPECT_GT(stats.resident_bytes, 1 << 20);
  EXPECT_GE(stats.peak_resident_bytes, stats.resident_bytes);
  EXPECT_GE(stats.open_files, 3);
  EXPECT_GT(UsableMemoryBytes(), 64 << 20);
  EXPECT_GE(UsableThreads(), 1);
  EXPECT_THAT(OperatingSystem(), HasSubstr("Linux"));

  std::ifstream open("/proc/self/status");
  EXPECT_GT(ReadProcessStats().open_files, stats.open_files);
}

}  // namespace
}  // namespace tenon::server
