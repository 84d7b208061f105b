#include "server/sqlite.h"

#include <sqlite3.h>

#include "backends/core/error.h"

namespace tenon::server {
namespace {

// How long a statement waits for another connection that copies the log into the file.
constexpr int kBusyMilliseconds = 10'000;

absl::Status ErrorOf(int code, sqlite3* database) {
  constexpr int kPrimaryMask = 0xff;
  Reason reason = Reason::kInternal;
  switch (code & kPrimaryMask) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      reason = Reason::kStorageFull;
      break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      reason = Reason::kChecksumMismatch;
      break;
    case SQLITE_NOMEM:
      reason = Reason::kOverloaded;
      break;
    default:
      break;
  }
  const char* text = database == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(database);
  const char* advice = reason == Reason::kChecksumMismatch
                           ? "; put a copy in its place, or move jobs.db* out of --state_dir and "
                             "lose the jobs"
                           : "";
  return Error(reason, StrCat("the job store: ", text, advice)).Meta("sqlite_code", code);
}

}  // namespace

void Statement::Finalizer::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

void Database::Closer::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Statement& Statement::Bind(int parameter, int64_t value) {
  Note(sqlite3_bind_int64(statement_.get(), parameter, value));
  return *this;
}

Statement& Statement::Bind(int parameter, double value) {
  Note(sqlite3_bind_double(statement_.get(), parameter, value));
  return *this;
}

Statement& Statement::BindText(int parameter, std::string_view text) {
  Note(sqlite3_bind_text64(statement_.get(), parameter, text.data() == nullptr ? "" : text.data(),
                           text.size(), SQLITE_STATIC, SQLITE_UTF8));
  return *this;
}

Statement& Statement::BindBlob(int parameter, std::string_view bytes) {
  // A null pointer would be NULL and not an empty blob.
  Note(sqlite3_bind_blob64(statement_.get(), parameter, bytes.data() == nullptr ? "" : bytes.data(),
                           bytes.size(), SQLITE_STATIC));
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  sqlite3* const database = sqlite3_db_handle(statement_.get());
  if (bind_error_ != SQLITE_OK) return ErrorOf(bind_error_, nullptr);
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  const absl::Status error = ErrorOf(code, database);
  sqlite3_reset(statement_.get());
  return error;
}

absl::Status Statement::Run() {
  absl::StatusOr<bool> row = true;
  while (row.ok() && *row) row = Step();
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
  bind_error_ = SQLITE_OK;
  return row.status();
}

int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }

double Statement::Double(int column) const {
  return sqlite3_column_double(statement_.get(), column);
}

std::string_view Statement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  if (data == nullptr) return {};
  return {static_cast<const char*>(data),
          static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

absl::StatusOr<Database> Database::Open(const std::string& path, bool read_only) {
  sqlite3* handle = nullptr;
  const int access = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int code =
      sqlite3_open_v2(path.c_str(), &handle, access | SQLITE_OPEN_NOMUTEX, /*zVfs=*/nullptr);
  Database database(handle);  // to be closed after a failure too
  if (code != SQLITE_OK) return ErrorOf(code, handle);
  sqlite3_busy_timeout(handle, kBusyMilliseconds);
  sqlite3_extended_result_codes(handle, 1);
  return database;
}

absl::StatusOr<Statement> Database::Prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(database_.get(), sql.data(), static_cast<int>(sql.size()),
                                      &statement, /*pzTail=*/nullptr);
  if (code != SQLITE_OK) return ErrorOf(code, database_.get());
  return Statement(statement);
}

absl::Status Database::Execute(const std::string& sql) {
  const int code = sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ErrorOf(code, database_.get());
}

absl::StatusOr<int64_t> Database::QueryInt(std::string_view sql) {
  TENON_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  TENON_ASSIGN_OR_RETURN(const bool row, statement.Step());
  return row ? statement.Int(0) : 0;
}

absl::StatusOr<Transaction> Transaction::Begin(Database* database) {
  TENON_RETURN_IF_ERROR(database->Execute("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Transaction::~Transaction() {
  if (database_ == nullptr) return;
  // A full disk may have rolled it back already.
  if (sqlite3_get_autocommit(database_->database_.get()) == 0) {
    database_->Execute("ROLLBACK").IgnoreError();
  }
}

absl::Status Transaction::Commit() {
  TENON_RETURN_IF_ERROR(database_->Execute("COMMIT"));
  database_ = nullptr;
  return absl::OkStatus();
}

}  // namespace tenon::server
