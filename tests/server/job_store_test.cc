#include "server/job_store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using ::tenon::testing::Fails;

class JobStoreTest : public ::testing::Test {
 protected:
  JobStoreTest() : folder_(::testing::TempDir() + "/tenon_store_XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE();
    folder_ += "/state";
  }
  ~JobStoreTest() override {
    store_.reset();
    std::filesystem::remove_all(std::filesystem::path(folder_).parent_path());
  }

  void Open(int64_t max_bytes = 0) {
    store_.reset();
    auto store = JobStore::Open(folder_, {max_bytes});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  // Changes the file behind the store's back.
  void Execute(const std::string& sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open((folder_ + "/jobs.db").c_str(), &database), SQLITE_OK);
    sqlite3_busy_timeout(database, 10'000);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_close(database);
  }
  static JobRow Row(int64_t number) {
    JobRow row;
    row.number = number;
    row.id = "id" + std::to_string(number);
    row.owner = "me";
    row.request_id = "request";
    row.header_sha256 = "hash";
    row.plan = std::string("pl\0an", 5);
    row.submission = "";
    row.reserved_bytes = 77;
    row.ttl_seconds = 1.5;
    row.description = "waits";
    row.next_group = 3;
    row.run_seconds = 0.25;
    return row;
  }
  absl::StatusOr<std::string> Read(int64_t number, JobData data, int64_t part, size_t bytes) {
    std::string out(bytes, '\0');
    const absl::Status status =
        store_->Read(number, data, part, std::as_writable_bytes(std::span(out.data(), out.size())));
    if (!status.ok()) return status;
    return out;
  }

  std::string folder_;
  std::unique_ptr<JobStore> store_;
};

TEST_F(JobStoreTest, KeepsWhatItWasGiven) {
  Open();
  // Three pieces, the last one short.
  std::string large(2 * JobStore::kPieceBytes + 17, 'x');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 31 % 251);
  ASSERT_TRUE(store_->Put(1, {JobData::kOperand, 0, 0, 0}, large).ok());
  ASSERT_TRUE(store_->Put(1, {JobData::kOperand, 1, 0, 0}, "").ok());
  ASSERT_TRUE(store_->Put(1, {JobData::kHeader}, "header").ok());
  ASSERT_TRUE(store_->Add(Row(1)).ok());
  JobRow changed = Row(1);
  changed.description = "runs";
  changed.next_group = 9;
  ASSERT_TRUE(store_->Update(changed).ok());
  Open();
  const auto rows = store_->Load();
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 1u);
  const JobRow& row = rows->front();
  EXPECT_TRUE(row.intact);
  EXPECT_EQ(row.id, "id1");
  EXPECT_EQ(row.owner, "me");
  EXPECT_EQ(row.plan, std::string("pl\0an", 5));
  EXPECT_EQ(row.ttl_seconds, 1.5);
  EXPECT_EQ(row.description, "runs");
  EXPECT_EQ(row.next_group, 9);
  EXPECT_EQ(row.stored_bytes, static_cast<int64_t>(large.size()) + 6);
  EXPECT_EQ(*Read(1, JobData::kOperand, 0, large.size()), large);
  EXPECT_EQ(*Read(1, JobData::kOperand, 1, 0), "");
  EXPECT_EQ(*store_->ReadAll(1, JobData::kHeader), "header");
}

TEST_F(JobStoreTest, PiecesOfAResultAreReadOneByOne) {
  Open();
  std::string result(JobStore::kPieceBytes + 5, 'a');
  result.back() = 'z';
  ASSERT_TRUE(store_->Put(1, {JobData::kResult}, result).ok());
  EXPECT_EQ(store_->ReadPiece(1, JobData::kResult, 0)->size(),
            static_cast<size_t>(JobStore::kPieceBytes));
  EXPECT_EQ(*store_->ReadPiece(1, JobData::kResult, 1), "aaaaz");
  EXPECT_TRUE(Fails(store_->ReadPiece(1, JobData::kResult, 2).status(), Reason::kChecksumMismatch));
}

TEST_F(JobStoreTest, TheFolderIsMadeForThisUserAlone) {
  Open();
  struct stat status = {};
  ASSERT_EQ(stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(JobStoreTest, TwoServersDoNotShareAFolder) {
  Open();
  EXPECT_TRUE(Fails(JobStore::Open(folder_, {}).status(), Reason::kBadParameter, "state_dir"));
}

TEST_F(JobStoreTest, AnotherVersionIsRefused) {
  Open();
  store_.reset();
  Execute("PRAGMA user_version=2");
  const absl::Status status = JobStore::Open(folder_, {}).status();
  EXPECT_TRUE(Fails(status, Reason::kBadParameter, "state_dir"));
  EXPECT_NE(status.message().find("version 2"), absl::string_view::npos) << status;
}

TEST_F(JobStoreTest, AForeignFileIsRefused) {
  Open();
  store_.reset();
  Execute("PRAGMA application_id=1");
  EXPECT_TRUE(Fails(JobStore::Open(folder_, {}).status(), Reason::kBadParameter, "state_dir"));
  ASSERT_EQ(truncate((folder_ + "/jobs.db").c_str(), 100), 0);
  EXPECT_TRUE(Fails(JobStore::Open(folder_, {}).status(), Reason::kBadParameter, "state_dir"));
}

TEST_F(JobStoreTest, ChangedBytesAreNoticed) {
  Open();
  ASSERT_TRUE(store_->Put(1, {JobData::kOperand, 0, 0, 0}, "operand").ok());
  ASSERT_TRUE(store_->Put(1, {JobData::kOperand, 1, 0, 0}, "another").ok());
  ASSERT_TRUE(store_->Put(1, {JobData::kLevel, 0, 4, -7}, "level").ok());
  Execute("UPDATE pieces SET bytes = CAST('Operand' AS BLOB) WHERE data = 1 AND part = 0");
  EXPECT_TRUE(Fails(Read(1, JobData::kOperand, 0, 7).status(), Reason::kChecksumMismatch));
  EXPECT_EQ(*Read(1, JobData::kOperand, 1, 7), "another");
  // What stands beside the bytes is covered too.
  Execute("UPDATE pieces SET exponent = 7 WHERE data = 3");
  EXPECT_TRUE(Fails(Read(1, JobData::kLevel, 0, 5).status(), Reason::kChecksumMismatch));
}

TEST_F(JobStoreTest, OtherSizesAndMissingPiecesAreNoticed) {
  Open();
  ASSERT_TRUE(
      store_->Put(1, {JobData::kOperand, 0, 0, 0}, std::string(3 * JobStore::kPieceBytes, 'x'))
          .ok());
  const auto size = static_cast<size_t>(3 * JobStore::kPieceBytes);
  EXPECT_TRUE(Read(1, JobData::kOperand, 0, size).ok());
  EXPECT_TRUE(Fails(Read(1, JobData::kOperand, 0, size - 1).status(), Reason::kChecksumMismatch));
  EXPECT_TRUE(Fails(Read(1, JobData::kOperand, 0, size + 1).status(), Reason::kChecksumMismatch));
  EXPECT_TRUE(Fails(Read(1, JobData::kOperand, 5, size).status(), Reason::kChecksumMismatch));
  Execute("DELETE FROM pieces WHERE piece = 1");
  EXPECT_TRUE(Fails(Read(1, JobData::kOperand, 0, size).status(), Reason::kChecksumMismatch));
}

TEST_F(JobStoreTest, ADamagedRowIsToldAndTheOthersAreRead) {
  Open();
  ASSERT_TRUE(store_->Add(Row(1)).ok());
  ASSERT_TRUE(store_->Add(Row(2)).ok());
  ASSERT_TRUE(store_->Add(Row(3)).ok());
  Execute("UPDATE jobs SET next_group = 4 WHERE number = 1");
  Execute("UPDATE jobs SET plan = CAST('other' AS BLOB) WHERE number = 3");
  const auto rows = store_->Load();
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 3u);
  EXPECT_FALSE((*rows)[0].intact);
  EXPECT_TRUE((*rows)[1].intact);
  EXPECT_FALSE((*rows)[2].intact);
}

TEST_F(JobStoreTest, DataOfNoJobAreDroppedAtTheStart) {
  Open();
  ASSERT_TRUE(store_->Put(1, {JobData::kOperand, 0, 0, 0}, "lost").ok());
  ASSERT_TRUE(store_->Put(2, {JobData::kOperand, 0, 0, 0}, "kept").ok());
  ASSERT_TRUE(store_->Add(Row(2)).ok());
  ASSERT_TRUE(store_->Load().ok());
  EXPECT_TRUE(store_->Parts(1, JobData::kOperand)->empty());
  EXPECT_EQ(*Read(2, JobData::kOperand, 0, 4), "kept");
}

TEST_F(JobStoreTest, ACheckpointReplacesDropsAndUpdatesTogether) {
  Open();
  ASSERT_TRUE(store_->Add(Row(1)).ok());
  JobRow row = Row(1);
  row.next_group = 6;
  ASSERT_TRUE(store_
                  ->Checkpoint(row,
                               {{{JobData::kLevel, 1, 4, 0}, "two"},
                                {{JobData::kLevel, 2, 0, 0}, "four"},
                                {{JobData::kBlock, 0, 0, 11}, "block"}},
                               {})
                  .ok());
  row.next_group = 7;
  ASSERT_TRUE(store_->Checkpoint(row, {{{JobData::kLevel, 0, 6, 0}, "one"}}, {2}).ok());
  const auto levels = store_->Parts(1, JobData::kLevel);
  ASSERT_TRUE(levels.ok());
  ASSERT_EQ(levels->size(), 2u);
  EXPECT_EQ((*levels)[0].first.tag, 6);
  EXPECT_EQ((*levels)[1].first.tag, 4);
  EXPECT_EQ((*levels)[1].second, 3);
  EXPECT_EQ((*store_->Parts(1, JobData::kBlock))[0].first.exponent, 11);
  EXPECT_EQ(store_->Load()->front().next_group, 7);
}

TEST_F(JobStoreTest, AnEndedJobKeepsItsResultAlone) {
  Open();
  for (const int64_t number : {1, 2}) {
    for (const JobData data : {JobData::kHeader, JobData::kOperand, JobData::kBlock,
                               JobData::kLevel, JobData::kResultHead, JobData::kResult}) {
      ASSERT_TRUE(store_->Put(number, {data, 0, 0, 0}, "bytes").ok());
    }
    ASSERT_TRUE(store_->Add(Row(number)).ok());
  }
  ASSERT_TRUE(store_->Finish(Row(1), true).ok());
  ASSERT_TRUE(store_->Finish(Row(2), false).ok());
  EXPECT_TRUE(store_->Parts(1, JobData::kOperand)->empty());
  EXPECT_TRUE(store_->Parts(1, JobData::kLevel)->empty());
  EXPECT_EQ(store_->Parts(1, JobData::kResult)->size(), 1u);
  EXPECT_EQ(store_->Parts(1, JobData::kResultHead)->size(), 1u);
  EXPECT_TRUE(store_->Parts(2, JobData::kResult)->empty());
  ASSERT_TRUE(store_->Remove(1).ok());
  EXPECT_TRUE(store_->Parts(1, JobData::kResult)->empty());
  EXPECT_EQ(store_->Load()->size(), 1u);
}

TEST_F(JobStoreTest, AFullStoreSaysSoAndGoesOnAfterwards) {
  Open(int64_t{3} << 20);
  ASSERT_TRUE(store_->Add(Row(1)).ok());
  ASSERT_TRUE(store_->Put(1, {JobData::kOperand, 0, 0, 0}, std::string(1 << 20, 'x')).ok());
  EXPECT_TRUE(Fails(store_->Put(1, {JobData::kOperand, 1, 0, 0}, std::string(4 << 20, 'y')),
                    Reason::kStorageFull));
  EXPECT_TRUE(Read(1, JobData::kOperand, 0, 1 << 20).ok());
  EXPECT_TRUE(store_->Update(Row(1)).ok());
  ASSERT_TRUE(store_->Finish(Row(1), false).ok());
  EXPECT_TRUE(store_->Put(1, {JobData::kOperand, 0, 0, 0}, std::string(1 << 20, 'z')).ok());
}

TEST_F(JobStoreTest, KeepsALittleOfTheDiskForTheEndsOfJobs) {
  Open();
  ASSERT_TRUE(store_->Load().ok());
  const std::string reserve = folder_ + "/reserve";
  EXPECT_EQ(std::filesystem::file_size(reserve), JobStore::kReserveBytes);
  Open(int64_t{1} << 20);
  ASSERT_TRUE(store_->Add(Row(1)).ok());
  JobRow large = Row(1);
  large.description = std::string(size_t{4} << 20, 'x');
  EXPECT_TRUE(Fails(store_->Update(large), Reason::kStorageFull));
  EXPECT_FALSE(std::filesystem::exists(reserve)) << "it is given when there is no room";
  EXPECT_FALSE(*store_->Shrink());
  EXPECT_EQ(std::filesystem::file_size(reserve), JobStore::kReserveBytes);
}

TEST_F(JobStoreTest, UnusedSpaceIsGivenBack) {
  Open();
  ASSERT_TRUE(
      store_->Put(1, {JobData::kOperand, 0, 0, 0}, std::string(size_t{40} << 20, 'x')).ok());
  ASSERT_TRUE(store_->Load().ok());  // it belongs to no job
  absl::StatusOr<bool> more = true;
  for (int i = 0; i < 100 && more.ok() && *more; ++i) more = store_->Shrink();
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_FALSE(*more);
  store_.reset();  // copies the log into the file
  EXPECT_LT(std::filesystem::file_size(folder_ + "/jobs.db"), size_t{20} << 20);
}

}  // namespace
}  // namespace tenon::server
