#include "server/job_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "backends/core/crc32c.h"
#include "backends/core/error.h"

namespace tenon::server {
namespace {

constexpr int64_t kVersion = 1;               // of the schema below
constexpr int64_t kApplication = 0x74656e6f;  // "teno": the file is ours
constexpr int64_t kPageBytes = 16384;
constexpr int64_t kPiecesPerTransaction = 64;

constexpr char kSchema[] =
    "CREATE TABLE jobs("
    " number INTEGER PRIMARY KEY, id BLOB, owner BLOB, request_id BLOB, header_sha256 BLOB,"
    " plan BLOB, submission BLOB, reserved_bytes INTEGER, ttl_seconds REAL, fixed_crc INTEGER,"
    " description BLOB, next_group INTEGER, run_seconds REAL, changing_crc INTEGER);"
    "CREATE TABLE pieces("
    " job INTEGER, data INTEGER, part INTEGER, piece INTEGER, tag INTEGER, exponent INTEGER,"
    " crc INTEGER, bytes BLOB);"
    "CREATE UNIQUE INDEX pieces_by_place ON pieces(job, data, part, piece);";

absl::Status BadFolder(const std::string& folder, std::string_view what) {
  return Error(Reason::kBadParameter, StrCat("--state_dir: '", folder, "' ", what))
      .Field("state_dir");
}

std::string SystemText(int error) { return std::generic_category().message(error); }

absl::Status Damaged(std::string_view what) {
  return Error(Reason::kChecksumMismatch,
               StrCat("the job store: ", what, " is not what was written"));
}

uint32_t Extend(uint32_t crc, std::string_view bytes) {
  const uint64_t size = bytes.size();
  crc = ExtendCrc32c(crc, &size, sizeof(size));
  return ExtendCrc32c(crc, bytes.data(), bytes.size());
}

int64_t FixedCrc(const JobRow& row) {
  uint32_t crc = 0;
  for (const std::string* text :
       {&row.id, &row.owner, &row.request_id, &row.header_sha256, &row.plan, &row.submission}) {
    crc = Extend(crc, *text);
  }
  crc = ExtendCrc32c(crc, &row.reserved_bytes, sizeof(row.reserved_bytes));
  return ExtendCrc32c(crc, &row.ttl_seconds, sizeof(row.ttl_seconds));
}

int64_t PieceCrc(std::string_view bytes, int64_t tag, int64_t exponent) {
  uint32_t crc = Crc32c(bytes);
  crc = ExtendCrc32c(crc, &tag, sizeof(tag));
  return ExtendCrc32c(crc, &exponent, sizeof(exponent));
}

int64_t ChangingCrc(const JobRow& row) {
  uint32_t crc = Extend(0, row.description);
  crc = ExtendCrc32c(crc, &row.next_group, sizeof(row.next_group));
  return ExtendCrc32c(crc, &row.run_seconds, sizeof(row.run_seconds));
}

absl::Status Prepare(const std::string& folder, const JobStore::Options& options,
                     Database* database) {
  TENON_ASSIGN_OR_RETURN(const int64_t tables,
                         database->QueryInt("SELECT count(*) FROM sqlite_master"));
  if (tables == 0) {
    TENON_RETURN_IF_ERROR(database->Execute(
        StrCat("PRAGMA page_size=", kPageBytes, "; PRAGMA auto_vacuum=INCREMENTAL;")));
  }
  TENON_RETURN_IF_ERROR(
      database->Execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                        "PRAGMA journal_size_limit=67108864; PRAGMA temp_store=MEMORY;"
                        // Removing data must not take as much room in the log as the data have.
                        "PRAGMA secure_delete=FAST;"));
  if (tables == 0) {
    TENON_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database));
    TENON_RETURN_IF_ERROR(database->Execute(StrCat(kSchema, "PRAGMA application_id=", kApplication,
                                                   "; PRAGMA user_version=", kVersion, ";")));
    TENON_RETURN_IF_ERROR(transaction.Commit());
  }
  TENON_ASSIGN_OR_RETURN(const int64_t application, database->QueryInt("PRAGMA application_id"));
  TENON_ASSIGN_OR_RETURN(const int64_t version, database->QueryInt("PRAGMA user_version"));
  if (application != kApplication) return BadFolder(folder, "holds a jobs.db that is not Tenon's");
  if (version != kVersion) {
    return BadFolder(folder, StrCat("holds jobs in version ", version,
                                    " of the store; this server reads version ", kVersion,
                                    ". Let the server that wrote it finish them, or name another "
                                    "folder"));
  }
  if (options.max_bytes == 0) return absl::OkStatus();
  return database->Execute(
      StrCat("PRAGMA max_page_count=", std::max<int64_t>(options.max_bytes / kPageBytes, 1)));
}

}  // namespace

int64_t FreeStateBytes(const std::string& path) {
  struct statvfs status = {};
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (statvfs(path.c_str(), &status) != 0 && statvfs(parent.c_str(), &status) != 0) return 0;
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

bool IsStateFolderInUse(const std::string& folder) {
  const std::string path = StrCat(folder, "/lock");
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;
  const bool used = flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(descriptor);
  return used;
}

absl::StatusOr<JobStore::FolderLock> JobStore::FolderLock::Take(const std::string& folder) {
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return BadFolder(folder, StrCat("can't be made: ", SystemText(errno)));
  }
  const std::string path = StrCat(folder, "/lock");
  const int descriptor =
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (descriptor < 0) return BadFolder(folder, StrCat("can't be used: ", SystemText(errno)));
  FolderLock lock(descriptor);
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return lock;
  return BadFolder(folder, "is used by another server");
}

JobStore::FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool JobStore::Reserve::Take() {
  if (taken_) return true;
  const int descriptor =
      open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (descriptor < 0) return false;
  taken_ = posix_fallocate(descriptor, 0, kReserveBytes) == 0;
  close(descriptor);
  if (!taken_) unlink(path_.c_str());
  return taken_;
}

void JobStore::Reserve::Release() {
  unlink(path_.c_str());
  taken_ = false;
}

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::string& folder,
                                                         Options options) {
  TENON_ASSIGN_OR_RETURN(FolderLock lock, FolderLock::Take(folder));
  Reserve reserve(folder);
  reserve.Release();  // opening the file takes room for its log: it must succeed on a full disk
  const std::string path = StrCat(folder, "/jobs.db");
  const auto open = [&](bool read_only) -> absl::StatusOr<Database> {
    auto database = Database::Open(path, read_only);
    if (!database.ok())
      return BadFolder(folder, StrCat("can't be used: ", database.status().message()));
    const absl::Status prepared =
        read_only ? absl::OkStatus() : Prepare(folder, options, &*database);
    if (prepared.ok()) return database;
    if (!GetErrorDetails(prepared).fields.empty()) return prepared;
    return BadFolder(folder, StrCat("can't be used: ", prepared.message()));
  };
  TENON_ASSIGN_OR_RETURN(Database writer, open(false));
  TENON_ASSIGN_OR_RETURN(Database reader, open(true));
  return std::unique_ptr<JobStore>(
      new JobStore(std::move(lock), std::move(reserve), std::move(writer), std::move(reader)));
}

absl::Status JobStore::WithReserve(const std::function<absl::Status()>& write) {
  absl::Status status = write();
  if (GetErrorDetails(status).reason != Reason::kStorageFull) return status;
  // The log may hold room for what is in the file by now.
  const std::string empty_log = "PRAGMA wal_checkpoint(TRUNCATE)";
  writer_.Execute(empty_log).IgnoreError();
  status = write();
  if (GetErrorDetails(status).reason != Reason::kStorageFull) return status;
  reserve_.Release();
  status = write();
  writer_.Execute(empty_log).IgnoreError();
  return status;
}

absl::StatusOr<std::vector<JobRow>> JobStore::Load() {
  std::lock_guard lock(write_mutex_);
  const absl::Status tidied = WithReserve([&] {
    return writer_.Execute("DELETE FROM pieces WHERE job NOT IN (SELECT number FROM jobs)");
  });
  // What a full disk keeps takes room until the next start, and nothing else.
  if (GetErrorDetails(tidied).reason != Reason::kStorageFull) TENON_RETURN_IF_ERROR(tidied);
  reserve_.Take();
  TENON_ASSIGN_OR_RETURN(
      Statement rows,
      writer_.Prepare("SELECT number, id, owner, request_id, header_sha256, plan, submission,"
                      " reserved_bytes, fixed_crc, description, next_group, run_seconds,"
                      " changing_crc, (SELECT coalesce(sum(length(bytes)), 0) FROM pieces"
                      " WHERE job = number), ttl_seconds FROM jobs ORDER BY number"));
  std::vector<JobRow> jobs;
  for (;;) {
    TENON_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return jobs;
    JobRow& row = jobs.emplace_back();
    row.number = rows.Int(0);
    std::string* const texts[] = {&row.id,   &row.owner,     &row.request_id, &row.header_sha256,
                                  &row.plan, &row.submission};
    for (int i = 0; i < 6; ++i) *texts[i] = rows.Bytes(i + 1);
    row.reserved_bytes = rows.Int(7);
    row.ttl_seconds = rows.Double(14);
    row.description = rows.Bytes(9);
    row.next_group = rows.Int(10);
    row.run_seconds = rows.Double(11);
    row.intact = FixedCrc(row) == rows.Int(8) && ChangingCrc(row) == rows.Int(12);
    row.stored_bytes = rows.Int(13);
  }
}

absl::Status JobStore::PutPiece(int64_t number, const JobPart& part, int64_t piece,
                                std::string_view bytes) {
  TENON_ASSIGN_OR_RETURN(Statement insert,
                         writer_.Prepare("INSERT OR REPLACE INTO pieces(job, data, part, piece,"
                                         " tag, exponent, crc, bytes)"
                                         " VALUES(?, ?, ?, ?, ?, ?, ?, ?)"));
  insert.Bind(1, number).Bind(2, static_cast<int64_t>(part.data)).Bind(3, part.part).Bind(4, piece);
  insert.Bind(5, part.tag).Bind(6, part.exponent).Bind(7, PieceCrc(bytes, part.tag, part.exponent));
  return insert.BindBlob(8, bytes).Run();
}

absl::Status JobStore::DropPart(int64_t number, const JobPart& part) {
  TENON_ASSIGN_OR_RETURN(
      Statement drop,
      writer_.Prepare("DELETE FROM pieces WHERE job = ? AND data = ? AND part = ?"));
  return drop.Bind(1, number).Bind(2, static_cast<int64_t>(part.data)).Bind(3, part.part).Run();
}

absl::Status JobStore::Put(int64_t number, const JobPart& part, std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t pieces = std::max<int64_t>((size + kPieceBytes - 1) / kPieceBytes, 1);
  for (int64_t piece = 0; piece < pieces;) {
    // The lock is free between transactions, so that what is small need not wait for what is large.
    std::lock_guard lock(write_mutex_);
    TENON_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_));
    if (piece == 0) TENON_RETURN_IF_ERROR(DropPart(number, part));
    const int64_t end = std::min(piece + kPiecesPerTransaction, pieces);
    for (; piece < end; ++piece) {
      TENON_RETURN_IF_ERROR(
          PutPiece(number, part, piece, bytes.substr(piece * kPieceBytes, kPieceBytes)));
    }
    TENON_RETURN_IF_ERROR(transaction.Commit());
  }
  return absl::OkStatus();
}

absl::Status JobStore::Add(const JobRow& row) {
  std::lock_guard lock(write_mutex_);
  TENON_ASSIGN_OR_RETURN(
      Statement insert,
      writer_.Prepare("INSERT INTO jobs(number, id, owner, request_id, header_sha256, plan,"
                      " submission, reserved_bytes, fixed_crc, description, next_group,"
                      " run_seconds, changing_crc, ttl_seconds)"
                      " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  insert.Bind(1, row.number).BindBlob(2, row.id).BindBlob(3, row.owner).BindBlob(4, row.request_id);
  insert.BindBlob(5, row.header_sha256).BindBlob(6, row.plan).BindBlob(7, row.submission);
  insert.Bind(8, row.reserved_bytes).Bind(9, FixedCrc(row)).BindBlob(10, row.description);
  insert.Bind(11, row.next_group).Bind(12, row.run_seconds).Bind(13, ChangingCrc(row));
  insert.Bind(14, row.ttl_seconds);
  return insert.Run();
}

absl::Status JobStore::UpdateRow(const JobRow& row) {
  TENON_ASSIGN_OR_RETURN(Statement update,
                         writer_.Prepare("UPDATE jobs SET description = ?, next_group = ?,"
                                         " run_seconds = ?, changing_crc = ? WHERE number = ?"));
  update.BindBlob(1, row.description).Bind(2, row.next_group).Bind(3, row.run_seconds);
  return update.Bind(4, ChangingCrc(row)).Bind(5, row.number).Run();
}

absl::Status JobStore::Update(const JobRow& row) {
  std::lock_guard lock(write_mutex_);
  return WithReserve([&] { return UpdateRow(row); });
}

absl::Status JobStore::Checkpoint(const JobRow& row, const std::vector<NewPart>& parts,
                                  const std::vector<int64_t>& dropped_levels) {
  std::lock_guard lock(write_mutex_);
  TENON_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_));
  for (const int64_t level : dropped_levels) {
    TENON_RETURN_IF_ERROR(DropPart(row.number, {JobData::kLevel, level, 0, 0}));
  }
  for (const auto& [part, bytes] : parts) {
    TENON_RETURN_IF_ERROR(DropPart(row.number, part));
    for (size_t offset = 0, piece = 0; piece == 0 || offset < bytes.size();
         offset += kPieceBytes, ++piece) {
      TENON_RETURN_IF_ERROR(PutPiece(row.number, part, static_cast<int64_t>(piece),
                                     bytes.substr(offset, kPieceBytes)));
    }
  }
  TENON_RETURN_IF_ERROR(UpdateRow(row));
  return transaction.Commit();
}

absl::Status JobStore::Finish(const JobRow& row, bool keep_result) {
  std::lock_guard lock(write_mutex_);
  return WithReserve([&]() -> absl::Status {
    TENON_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_));
    TENON_ASSIGN_OR_RETURN(Statement drop,
                           writer_.Prepare("DELETE FROM pieces WHERE job = ? AND data < ?"));
    const int64_t end = static_cast<int64_t>(JobData::kResult) + 1;
    drop.Bind(1, row.number)
        .Bind(2, keep_result ? static_cast<int64_t>(JobData::kResultHead) : end);
    TENON_RETURN_IF_ERROR(drop.Run());
    TENON_RETURN_IF_ERROR(UpdateRow(row));
    return transaction.Commit();
  });
}

absl::Status JobStore::Remove(int64_t number) {
  std::lock_guard lock(write_mutex_);
  return WithReserve([&]() -> absl::Status {
    TENON_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_));
    for (const char* sql :
         {"DELETE FROM pieces WHERE job = ?", "DELETE FROM jobs WHERE number = ?"}) {
      TENON_ASSIGN_OR_RETURN(Statement drop, writer_.Prepare(sql));
      TENON_RETURN_IF_ERROR(drop.Bind(1, number).Run());
    }
    return transaction.Commit();
  });
}

absl::Status JobStore::Read(int64_t number, JobData data, int64_t part,
                            std::span<std::byte> bytes) {
  std::lock_guard lock(read_mutex_);
  TENON_ASSIGN_OR_RETURN(
      Statement pieces,
      reader_.Prepare("SELECT piece, crc, bytes, tag, exponent FROM pieces WHERE job = ? AND"
                      " data = ? AND part = ? ORDER BY piece"));
  pieces.Bind(1, number).Bind(2, static_cast<int64_t>(data)).Bind(3, part);
  size_t filled = 0;
  for (int64_t piece = 0;; ++piece) {
    TENON_ASSIGN_OR_RETURN(const bool more, pieces.Step());
    if (!more) break;
    const std::string_view found = pieces.Bytes(2);
    if (pieces.Int(0) != piece || pieces.Int(1) != PieceCrc(found, pieces.Int(3), pieces.Int(4)) ||
        found.size() > bytes.size() - filled) {
      return Damaged(StrCat("piece ", piece));
    }
    if (!found.empty()) std::memcpy(bytes.data() + filled, found.data(), found.size());
    filled += found.size();
  }
  return filled == bytes.size() ? absl::OkStatus() : Damaged("a tensor");
}

absl::StatusOr<std::string> JobStore::ReadAll(int64_t number, JobData data) {
  constexpr int64_t kMost = int64_t{1} << 30;
  TENON_ASSIGN_OR_RETURN(const auto parts, Parts(number, data));
  if (parts.size() != 1 || parts[0].second > kMost) return Damaged("a message");
  std::string bytes(static_cast<size_t>(parts[0].second), '\0');
  TENON_RETURN_IF_ERROR(Read(number, data, parts[0].first.part,
                             std::as_writable_bytes(std::span(bytes.data(), bytes.size()))));
  return bytes;
}

absl::StatusOr<std::string> JobStore::ReadPiece(int64_t number, JobData data, int64_t piece) {
  std::lock_guard lock(read_mutex_);
  TENON_ASSIGN_OR_RETURN(
      Statement pieces,
      reader_.Prepare("SELECT crc, bytes, tag, exponent FROM pieces WHERE job = ? AND data = ?"
                      " AND part = 0 AND piece = ?"));
  pieces.Bind(1, number).Bind(2, static_cast<int64_t>(data)).Bind(3, piece);
  TENON_ASSIGN_OR_RETURN(const bool found, pieces.Step());
  if (!found) return Damaged(StrCat("piece ", piece));
  std::string bytes(pieces.Bytes(1));
  if (pieces.Int(0) != PieceCrc(bytes, pieces.Int(2), pieces.Int(3))) {
    return Damaged(StrCat("piece ", piece));
  }
  return bytes;
}

absl::StatusOr<std::vector<std::pair<JobPart, int64_t>>> JobStore::Parts(int64_t number,
                                                                         JobData data) {
  std::lock_guard lock(read_mutex_);
  TENON_ASSIGN_OR_RETURN(
      Statement rows,
      reader_.Prepare("SELECT part, min(tag), min(exponent), sum(length(bytes)) FROM"
                      " pieces WHERE job = ? AND data = ? GROUP BY part"));
  rows.Bind(1, number).Bind(2, static_cast<int64_t>(data));
  std::vector<std::pair<JobPart, int64_t>> parts;
  for (;;) {
    TENON_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return parts;
    parts.push_back({{data, rows.Int(0), rows.Int(1), rows.Int(2)}, rows.Int(3)});
  }
}

absl::StatusOr<bool> JobStore::Shrink() {
  constexpr int64_t kKept = 1024, kPagesAtOnce = 2048;
  std::lock_guard lock(write_mutex_);
  const bool reserved = reserve_.Take();
  TENON_ASSIGN_OR_RETURN(const int64_t unused, writer_.QueryInt("PRAGMA freelist_count"));
  if (unused <= kKept) return !reserved;
  TENON_RETURN_IF_ERROR(writer_.Execute(StrCat("PRAGMA incremental_vacuum(", kPagesAtOnce, ")")));
  return !reserved || unused > kKept + kPagesAtOnce;
}

}  // namespace tenon::server
