#include "server/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "backends/core/strings.h"
#include "server/job_store.h"

namespace tenon::server {
namespace {

using ::testing::HasSubstr;

class DoctorTest : public ::testing::Test {
 protected:
  DoctorTest() : folder_(StrCat(::testing::TempDir(), "/tenon_doctor_", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~DoctorTest() override { std::filesystem::remove_all(folder_); }
  const std::string folder_;
};

TEST_F(DoctorTest, LooksAtEverything) {
  Config config = *ConfigFromFlags();
  config.listen = {*ParseAddress("127.0.0.1:0")};
  config.metrics = "127.0.0.1:0";
  config.memory_budget_bytes = int64_t{64} << 20;
  config.scratch_dir = folder_;
  config.scratch_budget_bytes = 1;
  config.calibration_dir = folder_ + "/new";
  std::set<std::string> subjects;
  for (const Finding& finding : ExamineMachine(config)) {
    subjects.insert(finding.subject);
    const bool fast = absl::StrContains(finding.fact, ", avx");
    if (finding.subject == "processor") {
      EXPECT_EQ(finding.verdict == Verdict::kOk, fast);
    }
    EXPECT_NE(finding.fact, "") << finding.subject;
    EXPECT_NE(finding.verdict, Verdict::kFail) << finding.subject << ": " << finding.fact;
    EXPECT_EQ(finding.verdict == Verdict::kOk, finding.advice.empty()) << finding.subject;
  }
  for (const char* subject : {"build", "system", "processor", "cores", "memory", "huge pages",
                              "open files", "locked memory", "scratch", "state", "calibration",
                              "/dev/shm", "provider cuda:0", "listen", "metrics", "clock"}) {
    EXPECT_EQ(subjects.count(subject), 1u) << subject;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/new")) << "nothing is left behind";
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(DoctorTest, FindsABudgetThatIsTooLargeAndADeviceThatIsNotThere) {
  Config config = *ConfigFromFlags();
  config.memory_budget_bytes = int64_t{1} << 60;
  config.providers = {"cpu", "cuda:0"};
  std::set<std::string> failed;
  for (const Finding& finding : ExamineMachine(config)) {
    if (finding.verdict != Verdict::kFail) continue;
    failed.insert(finding.subject);
    EXPECT_NE(finding.advice, "");
  }
  EXPECT_EQ(failed.count("memory"), 1u);
  EXPECT_EQ(failed.count("provider cuda:0"), 1u);
}

TEST_F(DoctorTest, DirectoriesThatAreNotThereAreMadeBelowOnesThatAre) {
  Finding finding = ExamineDirectory("d", folder_ + "/a/b", 0, true);
  EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.fact;
  EXPECT_THAT(finding.fact, HasSubstr("will be made"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a"));

  finding = ExamineDirectory("d", folder_, int64_t{1} << 62, true);
  EXPECT_EQ(finding.verdict, Verdict::kWarn);
  EXPECT_THAT(finding.advice, HasSubstr("make room"));

  std::ofstream(folder_ + "/file") << "x";
  finding = ExamineDirectory("d", folder_ + "/file/below", 0, true);
  EXPECT_EQ(finding.verdict, Verdict::kFail);
  EXPECT_EQ(ExamineDirectory("d", folder_ + "/file", 0, false).verdict, Verdict::kWarn);
  EXPECT_EQ(ExamineDirectory("d", "/proc", 0, true).verdict, Verdict::kFail) << "not writable";
}

TEST_F(DoctorTest, TellsWhoseTheStateFolderIsAndWhoUsesIt) {
  Config config = *ConfigFromFlags();
  EXPECT_THAT(ExamineStateFolder(config).fact, HasSubstr("no jobs"));
  config.state_dir = folder_ + "/state";
  config.state_budget_bytes = int64_t{3} << 20;
  Finding finding = ExamineStateFolder(config);
  EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.advice;
  EXPECT_THAT(finding.fact, HasSubstr("will be made"));
  EXPECT_THAT(finding.fact, HasSubstr("--state_budget 3.0 MiB"));
  {
    const auto store = JobStore::Open(config.state_dir, {});
    ASSERT_TRUE(store.ok()) << store.status();
    finding = ExamineStateFolder(config);
    EXPECT_EQ(finding.verdict, Verdict::kFail);
    EXPECT_THAT(finding.fact, HasSubstr("used by another server"));
  }
  finding = ExamineStateFolder(config);
  EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.advice;
  EXPECT_THAT(finding.fact, HasSubstr(StrCat("mode 0700, of user ", geteuid())));
  std::filesystem::permissions(config.state_dir, std::filesystem::perms(0755));
  finding = ExamineStateFolder(config);
  EXPECT_EQ(finding.verdict, Verdict::kWarn);
  EXPECT_THAT(finding.advice, HasSubstr("chmod 700"));
  config.state_budget_bytes = int64_t{1} << 60;
  EXPECT_THAT(ExamineStateFolder(config).advice, HasSubstr("make room"));
}

TEST_F(DoctorTest, TellsWhoseTheScratchFolderIs) {
  Config config = *ConfigFromFlags();
  config.scratch_dir = folder_;
  config.scratch_budget_bytes = 1;
  std::filesystem::permissions(folder_, std::filesystem::perms(0777));
  config.default_scratch_dir = false;
  EXPECT_EQ(ExamineScratchFolder(config).verdict, Verdict::kOk) << "it was named";
  config.default_scratch_dir = true;
  EXPECT_EQ(ExamineScratchFolder(config).verdict, Verdict::kWarn);
  EXPECT_THAT(ExamineScratchFolder(config).fact, HasSubstr("mode 0777"));
  config.scratch_budget_bytes = 0;
  EXPECT_THAT(ExamineScratchFolder(config).fact, HasSubstr("off"));
}

TEST_F(DoctorTest, FindsATakenPort) {
  const int taken = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  socklen_t size = sizeof(address);
  getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string text = StrCat("127.0.0.1:", ntohs(address.sin_port));
  const Finding finding = ExamineAddress("listen", *ParseAddress(text));
  EXPECT_EQ(finding.verdict, Verdict::kFail);
  EXPECT_THAT(finding.fact, HasSubstr(text));
  close(taken);
  EXPECT_EQ(ExamineAddress("listen", *ParseAddress(text)).verdict, Verdict::kOk);
  EXPECT_EQ(ExamineAddress("listen", *ParseAddress("unix:" + folder_ + "/s")).verdict,
            Verdict::kOk);
  EXPECT_EQ(ExamineAddress("listen", *ParseAddress("unix:/proc/s")).verdict, Verdict::kFail);
}

}  // namespace
}  // namespace tenon::server
