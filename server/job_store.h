// Jobs on the disk: what must survive the server's process.
//
// One SQLite file in write-ahead mode. A job is a row, with messages that the store does not look
// into, and data (operands, blocks, nodes of the sum, the result) in pieces of bounded size, so
// that nothing needs one large allocation. Rows and pieces carry a CRC-32C that is checked when
// they are read. What a function has written is on the disk when it returns OK.

#ifndef TENON_SERVER_JOB_STORE_H_
#define TENON_SERVER_JOB_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/fair_mutex.h"
#include "server/sqlite.h"

namespace tenon::server {

// Bytes that are free on the file system of a folder, or of the one above it if it is not there.
int64_t FreeStateBytes(const std::string& path);

// Whether a server that runs holds the job store in a folder. False where there is none, or nobody
// may look.
bool IsStateFolderInUse(const std::string& folder);

struct JobRow {
  int64_t number = 0;  // in order of making; never used twice
  std::string id, owner, request_id;
  std::string header_sha256;  // of the header that made the job
  std::string plan, submission;
  int64_t reserved_bytes = 0;
  double ttl_seconds = 0;  // after its end
  // What changes.
  std::string description;
  int64_t next_group = 0;
  double run_seconds = 0;
  // Filled by Load alone.
  int64_t stored_bytes = 0;  // of the job's data
  bool intact = true;        // false: what was read is not what was written
};

enum class JobData {
  kHeader = 0,
  kOperand = 1,
  kBlock = 2,
  kLevel = 3,
  kResultHead = 4,
  kResult = 5
};

// Names one of a job's data, and two figures that its owner keeps with it.
struct JobPart {
  JobData data = JobData::kOperand;
  int64_t part = 0;  // operand, block or level; else 0
  int64_t tag = 0;
  int64_t exponent = 0;
};

// Thread-safe. Errors as those of Statement. Reading does not wait for writing.
//
// A little of the disk is kept for what ends jobs and removes them: their end can be stored, and
// their data be dropped, when something has filled the disk.
class JobStore {
 public:
  static constexpr int64_t kPieceBytes = int64_t{1} << 20;  // all pieces but the last
  // What a row and its places take beside its data and messages.
  static constexpr int64_t kRowBytes = int64_t{64} << 10;
  // What is kept of the disk, where it can be had.
  static constexpr int64_t kReserveBytes = int64_t{4} << 20;

  struct Options {
    int64_t max_bytes = 0;  // of the file; more is STORAGE_FULL. 0: no limit
  };
  // Makes the folder (mode 0700) if it is not there and locks it. BAD_PARAMETER with field
  // "state_dir" when it can't be used, another server has it, or its file is of another version.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& folder, Options options);
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // All jobs, the oldest first. Drops data that belong to none: of submissions that were not
  // finished.
  absl::StatusOr<std::vector<JobRow>> Load();

  // Data of a job that need not be there yet; what was there of the same name is replaced.
  absl::Status Put(int64_t number, const JobPart& part, std::string_view bytes);
  absl::Status Add(const JobRow& row);
  // What changes.
  absl::Status Update(const JobRow& row);
  // The same together with new data, and without these levels.
  struct NewPart {
    JobPart part;
    std::string_view bytes;
  };
  absl::Status Checkpoint(const JobRow& row, const std::vector<NewPart>& parts,
                          const std::vector<int64_t>& dropped_levels);
  // The same when the job has ended: of its data only the result stays, if at all.
  absl::Status Finish(const JobRow& row, bool keep_result);
  absl::Status Remove(int64_t number);

  // CHECKSUM_MISMATCH unless exactly `bytes.size()` bytes are there and are what was written.
  absl::Status Read(int64_t number, JobData data, int64_t part, std::span<std::byte> bytes);
  // The same of data of any size, at most 1 GiB.
  absl::StatusOr<std::string> ReadAll(int64_t number, JobData data);
  // The bytes from piece * kPieceBytes on, kPieceBytes or to the end.
  absl::StatusOr<std::string> ReadPiece(int64_t number, JobData data, int64_t piece);
  // With their sizes in bytes.
  absl::StatusOr<std::vector<std::pair<JobPart, int64_t>>> Parts(int64_t number, JobData data);

  // Gives a little of the file's unused space back to the file system, and takes the reserve again
  // if it was used; whether something is left to do.
  absl::StatusOr<bool> Shrink();

 private:
  // Holds the folder's lock, and gives it back when destroyed. Movable.
  class FolderLock {
   public:
    static absl::StatusOr<FolderLock> Take(const std::string& folder);
    ~FolderLock();
    FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    FolderLock& operator=(FolderLock&&) = delete;

   private:
    explicit FolderLock(int descriptor) : descriptor_(descriptor) {}
    int descriptor_;
  };

  // A file whose only use is that it can be removed.
  class Reserve {
   public:
    explicit Reserve(const std::string& folder) : path_(folder + "/reserve") {}
    // Whether it is there now; nothing of it is if not.
    bool Take();
    void Release();

   private:
    const std::string path_;
    bool taken_ = false;
  };

  JobStore(FolderLock lock, Reserve reserve, Database writer, Database reader)
      : lock_(std::move(lock)),
        reserve_(std::move(reserve)),
        writer_(std::move(writer)),
        reader_(std::move(reader)) {}
  // Does `write`, which stores little and may be done again after a failure, with write_mutex_
  // held; a full disk gets the reserve.
  absl::Status WithReserve(const std::function<absl::Status()>& write);
  // With write_mutex_ held and within a transaction.
  absl::Status PutPiece(int64_t number, const JobPart& part, int64_t piece, std::string_view bytes);
  absl::Status DropPart(int64_t number, const JobPart& part);
  absl::Status UpdateRow(const JobRow& row);

  const FolderLock lock_;  // given back when the file is closed
  FairMutex write_mutex_;
  std::mutex read_mutex_;
  Reserve reserve_;  // with write_mutex_ held
  Database writer_, reader_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_STORE_H_
