#include "server/job_board.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>

#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using ::tenon::testing::Fails;

class JobBoardTest : public ::testing::Test {
 protected:
  JobBoardTest() : folder_(::testing::TempDir() + "/tenon_board_XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE();
    settings_.budget_bytes = 1 << 20;
    settings_.default_ttl = std::chrono::seconds(100);
    settings_.max_ttl = std::chrono::seconds(1000);
    Open();
  }
  ~JobBoardTest() override {
    board_.reset();
    std::filesystem::remove_all(folder_);
  }

  // As a new process finds it.
  void Open(int64_t max_bytes = 0) {
    board_.reset();
    auto store = JobStore::Open(folder_, {max_bytes});
    ASSERT_TRUE(store.ok()) << store.status();
    auto board = JobBoard::Open(*std::move(store), settings_, [this] { return now_; });
    ASSERT_TRUE(board.ok()) << board.status();
    board_ = *std::move(board);
  }
  void Execute(const std::string& sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open((folder_ + "/jobs.db").c_str(), &database), SQLITE_OK);
    sqlite3_busy_timeout(database, 10'000);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(database);
  }

  absl::StatusOr<v1::SubmitContractionResponse> Submit(const std::string& request_id,
                                                       const std::string& owner = "",
                                                       std::optional<double> ttl = std::nullopt,
                                                       const std::string& header = "header") {
    NewJob job;
    job.owner = owner;
    job.request_id = request_id;
    job.header_sha256 = header;
    job.header = header;
    job.ttl_seconds = ttl;
    job.job.set_groups_total(10);
    job.job.mutable_plan()->set_program_fingerprint("print");
    job.job.mutable_plan()->mutable_path()->add_steps();
    job.plan.set_planned_peak_bytes(5);
    job.operands = {"operand"};
    TENON_ASSIGN_OR_RETURN(JobPlace place, board_->Reserve(owner, 1000));
    return board_->Add(job, std::move(place));
  }
  std::string Name(const std::string& request_id, const std::string& owner = "") {
    const auto answer = Submit(request_id, owner);
    return answer.ok() ? answer->job().name() : answer.status().ToString();
  }
  v1::JobState StateOf(const std::string& name, const std::string& owner = "") {
    const auto job = board_->Get(owner, name);
    return job.ok() ? job->state() : v1::JOB_STATE_UNSPECIFIED;
  }

  std::string folder_;
  JobBoard::Settings settings_;
  JobBoard::TimePoint now_ = JobBoard::TimePoint(std::chrono::hours(1'000'000) / 3);
  std::shared_ptr<JobBoard> board_;
};

TEST_F(JobBoardTest, ASubmissionIsIdempotentByItsRequestId) {
  const auto first = Submit("one");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->existed());
  EXPECT_EQ(first->planned_peak_bytes(), 5);
  EXPECT_EQ(first->job().state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(first->job().plan().program_fingerprint(), "print");
  const auto found = board_->FindSubmitted("", "one", "header");
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_TRUE((*found)->existed());
  EXPECT_EQ((*found)->job().name(), first->job().name());
  EXPECT_EQ((*found)->planned_peak_bytes(), 5);
  // Two uploads at the same time: the second one to be stored gives way.
  const auto second = Submit("one");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(second->existed());
  EXPECT_EQ(second->job().name(), first->job().name());
  EXPECT_TRUE(Fails(board_->FindSubmitted("", "one", "other"), Reason::kAlreadyExists,
                    "header.contraction.request_id"));
  EXPECT_TRUE(Fails(Submit("one", "", std::nullopt, "other"), Reason::kAlreadyExists,
                    "header.contraction.request_id"));
  // Request ids of others are their own.
  EXPECT_FALSE(Submit("one", "somebody")->existed());
  Open();
  EXPECT_TRUE(board_->FindSubmitted("", "one", "header")->has_value());
}

TEST_F(JobBoardTest, JobsOfOthersAreNotFound) {
  const std::string name = Name("one", "me");
  EXPECT_TRUE(board_->Get("me", name).ok());
  for (const char* owner : {"", "you"}) {
    EXPECT_TRUE(Fails(board_->Get(owner, name), Reason::kNotFound, "name"));
    EXPECT_TRUE(Fails(board_->Cancel(owner, name), Reason::kNotFound, "name"));
    EXPECT_TRUE(Fails(board_->Delete(owner, name), Reason::kNotFound, "name"));
    EXPECT_TRUE(Fails(board_->FindResult(owner, name), Reason::kNotFound, "name"));
  }
  EXPECT_TRUE(Fails(board_->Get("me", ""), Reason::kMissingField, "name"));
  EXPECT_TRUE(Fails(board_->Get("me", name.substr(5)), Reason::kNotFound, "name"));
  EXPECT_TRUE(Fails(board_->Get("me", "jobs/0"), Reason::kNotFound, "name"));
}

TEST_F(JobBoardTest, TheBudgetIsKeptAndGivenBack) {
  const int64_t budget = settings_.budget_bytes;
  EXPECT_TRUE(Fails(board_->Reserve("", budget + 1), Reason::kExceedsServerLimit, "header"));
  {
    const auto place = board_->Reserve("", budget);
    ASSERT_TRUE(place.ok()) << place.status();
    EXPECT_TRUE(Fails(board_->Reserve("", 1), Reason::kStorageFull, "header"));
  }
  const std::string name = Name("one");
  EXPECT_TRUE(Fails(board_->Reserve("", budget), Reason::kStorageFull, "header"));
  // What a job has reserved holds in the next process too.
  Open();
  EXPECT_TRUE(Fails(board_->Reserve("", budget - 999), Reason::kStorageFull, "header"));
  ASSERT_TRUE(board_->Cancel("", name).ok());
  ASSERT_TRUE(board_->Delete("", name).ok());
  EXPECT_TRUE(board_->Reserve("", budget).ok());
}

TEST_F(JobBoardTest, AnOwnerHasSoManyJobs) {
  settings_.max_jobs_per_owner = 2;
  Open();
  const std::string name = Name("one");
  {
    const auto place = board_->Reserve("", 1);  // an upload counts
    const auto refused = board_->Reserve("", 1);
    EXPECT_TRUE(Fails(refused, Reason::kQuota));
    EXPECT_EQ(GetErrorDetails(refused.status()).metadata.at("quota"), "jobs");
    EXPECT_EQ(board_->QuotaOf("").limit, 2);
    EXPECT_EQ(board_->QuotaOf("").used, 2);
    EXPECT_TRUE(board_->Reserve("somebody", 1).ok());
  }
  Name("two");
  EXPECT_TRUE(Fails(Submit("three"), Reason::kQuota));
  ASSERT_TRUE(board_->Cancel("", name).ok());
  EXPECT_TRUE(Fails(Submit("three"), Reason::kQuota));  // an ended one counts until it is deleted
  ASSERT_TRUE(board_->Delete("", name).ok());
  EXPECT_TRUE(Submit("three").ok());
}

TEST_F(JobBoardTest, EndedJobsAreForgottenAfterTheirTime) {
  const std::string by_default = Submit("default")->job().name();
  const std::string asked = Submit("asked", "", 10.0)->job().name();
  const std::string cut = Submit("cut", "", 1e6)->job().name();
  now_ += std::chrono::hours(48);  // time counts from the end
  for (const std::string& name : {by_default, asked, cut}) {
    EXPECT_FALSE(board_->Get("", name)->has_expire_time());
    ASSERT_TRUE(board_->Cancel("", name).ok());
  }
  now_ += std::chrono::milliseconds(9'999);
  EXPECT_TRUE(board_->Get("", asked).ok());
  now_ += std::chrono::milliseconds(1);
  EXPECT_TRUE(Fails(board_->Get("", asked), Reason::kNotFound, "name"));  // at once
  EXPECT_FALSE(board_->FindSubmitted("", "asked", "other")->has_value());
  board_->Tidy();
  now_ += std::chrono::seconds(90);
  Open();
  EXPECT_TRUE(Fails(board_->Get("", by_default), Reason::kNotFound, "name"));
  EXPECT_TRUE(board_->Get("", cut).ok());
  EXPECT_EQ(board_->store().Load()->size(), 1u);
  now_ += std::chrono::seconds(900);
  board_->Tidy();
  EXPECT_TRUE(board_->store().Load()->empty());
  EXPECT_TRUE(board_->Reserve("", settings_.budget_bytes).ok());
}

TEST_F(JobBoardTest, JobsAreClaimedInOrderAndResumedByTheNextProcess) {
  const std::string one = Name("one"), two = Name("two");
  const auto first = board_->Claim();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ("jobs/" + first->id, one);
  EXPECT_EQ(StateOf(one), v1::JOB_STATE_RUNNING);
  EXPECT_TRUE(board_->Get("", one)->has_start_time());
  EXPECT_FALSE(board_->Get("", two)->has_start_time());
  ASSERT_TRUE(
      board_
          ->StoreCheckpoint(first->number,
                            {.next_group = 4, .groups_done = 4, .run_seconds = 1.5, .sum_bytes = 3},
                            {{{JobData::kLevel, 2, 0, 0}, "sum"}}, {})
          .ok());
  EXPECT_EQ(board_->Get("", one)->stored_bytes(), 6 + 7 + 3);
  Open();  // killed
  EXPECT_EQ(StateOf(one), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(StateOf(two), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(board_->Get("", one)->groups_done(), 4);
  EXPECT_EQ(board_->Get("", one)->resume_count(), 0);
  const auto again = board_->Claim();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->number, first->number);
  EXPECT_EQ(again->next_group, 4);
  EXPECT_EQ(again->run_seconds, 1.5);
  EXPECT_EQ(board_->Get("", one)->resume_count(), 1);
  EXPECT_EQ(board_->Get("", one)->stored_bytes(), 6 + 7 + 3);
  EXPECT_EQ(board_->counts().resumed, 1);
  EXPECT_EQ("jobs/" + board_->Claim()->id, two);
  board_->Stop();
  EXPECT_FALSE(board_->Claim().has_value());
}

TEST_F(JobBoardTest, OwnersTakeTurns) {
  const std::vector<std::string> queued = {Name("1", "a"), Name("2", "a"), Name("3", "a"),
                                           Name("1", "b"), Name("1", "c"), Name("2", "c")};
  const auto claim = [&] { return "jobs/" + board_->Claim()->id; };
  std::vector<std::string> claimed;
  for (size_t i = 0; i < queued.size(); ++i) claimed.push_back(claim());
  EXPECT_EQ(claimed, (std::vector<std::string>{queued[0], queued[3], queued[4], queued[1],
                                               queued[5], queued[2]}));
}

TEST_F(JobBoardTest, AJobThatWaitsForMemoryLeavesItsTurnsToOtherOwners) {
  const std::string first = Name("1", "a"), second = Name("2", "a"), other = Name("1", "b"),
                    last = Name("2", "b");
  const auto run = board_->Claim();
  ASSERT_EQ("jobs/" + run->id, first);
  board_->SetWaiting(run->number, true);
  EXPECT_EQ("jobs/" + board_->Claim()->id, other);
  EXPECT_EQ("jobs/" + board_->Claim()->id, last);
  EXPECT_EQ(StateOf(second, "a"), v1::JOB_STATE_QUEUED);
  auto next = std::async(std::launch::async, [&] { return board_->Claim(); });
  board_->SetWaiting(run->number, false);
  EXPECT_EQ("jobs/" + next.get()->id, second);
}

TEST_F(JobBoardTest, ACancelledJobDoesNotComeBack) {
  const std::string waiting = Name("waiting"), running = Name("running");
  EXPECT_EQ(board_->Cancel("", waiting)->state(), v1::JOB_STATE_CANCELLED);
  const auto run = board_->Claim();
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ("jobs/" + run->id, running);
  EXPECT_EQ(board_->Cancel("", running)->state(), v1::JOB_STATE_CANCELLING);
  EXPECT_TRUE(run->cancel->cancelled());
  Open();
  EXPECT_EQ(StateOf(waiting), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(StateOf(running), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(board_->Get("", running)->has_expire_time());
  EXPECT_TRUE(board_->store().Parts(run->number, JobData::kOperand)->empty());
}

TEST_F(JobBoardTest, ASuspendedJobWaitsItsTimeAndLetsOthersPass) {
  const std::string one = Name("one"), two = Name("two");
  const auto first = board_->Claim();
  board_->Suspend(first->number, 2.0, std::chrono::hours(1));
  EXPECT_EQ(StateOf(one), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ("jobs/" + board_->Claim()->id, two);
  EXPECT_EQ(board_->Cancel("", one)->state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobBoardTest, ADamagedJobFailsAloneAtTheStart) {
  const std::string damaged = Name("damaged"), sound = Name("sound");
  board_.reset();
  Execute("UPDATE jobs SET next_group = 3 WHERE number = 1");
  Open();
  const auto job = board_->Get("", damaged);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job->error().reason(), "CHECKSUM_MISMATCH");
  EXPECT_EQ(StateOf(sound), v1::JOB_STATE_QUEUED);
  Open();
  EXPECT_EQ(StateOf(damaged), v1::JOB_STATE_FAILED);
  EXPECT_TRUE(board_->Delete("", damaged).ok());
}

TEST_F(JobBoardTest, AResultThatDoesNotFitFailsTheJobAlone) {
  const std::string one = Name("one"), two = Name("two");
  Open(int64_t{1} << 20);
  const auto run = board_->Claim();
  const std::string large(size_t{4} << 20, 'x');
  const absl::Status stored = board_->Succeed(run->number, {}, large, {});
  EXPECT_TRUE(Fails(stored, Reason::kStorageFull));
  board_->Fail(run->number, stored);
  EXPECT_EQ(board_->Get("", one)->error().reason(), "STORAGE_FULL");
  EXPECT_EQ(board_->Claim()->number, 2);
  Open();
  EXPECT_EQ(StateOf(one), v1::JOB_STATE_FAILED);
}

TEST_F(JobBoardTest, AJobThatRanTooLongIsTold) {
  Name("one");
  const auto run = board_->Claim();
  board_->SetRunDeadline(run->number, std::chrono::steady_clock::now());
  board_->Tidy();
  EXPECT_TRUE(Fails(run->cancel->Check(), Reason::kDeadline));
}

TEST_F(JobBoardTest, ListsLeaveTheLargeThingsOut) {
  const std::string one = Name("one"), two = Name("two"), other = Name("three", "other");
  std::vector<std::string> seen;
  const auto take = [&](int64_t, const v1::Job& job) {
    EXPECT_FALSE(job.plan().has_path());
    EXPECT_EQ(job.plan().program_fingerprint(), "print");
    seen.push_back(job.name());
    return true;
  };
  board_->List("", 0, take);
  EXPECT_EQ(seen, (std::vector<std::string>{two, one}));
  seen.clear();
  board_->List(std::nullopt, 3, take);
  EXPECT_EQ(seen, (std::vector<std::string>{two, one}));
  seen.clear();
  board_->List(std::nullopt, 0, take);
  EXPECT_EQ(seen, (std::vector<std::string>{other, two, one}));
}

}  // namespace
}  // namespace tenon::server
