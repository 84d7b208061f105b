// The little of SQLite that the job store needs, with statuses for errors.

#ifndef TENON_SERVER_SQLITE_H_
#define TENON_SERVER_SQLITE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tenon::server {

// One prepared statement. Not thread-safe; goes before its database.
//
// Errors: STORAGE_FULL when the disk, or what the database may have of it, is full or can't be read
// or written; CHECKSUM_MISMATCH when the file is damaged; OVERLOADED without memory; else INTERNAL.
class Statement {
 public:
  // Parameters count from 1. Texts and blobs must stay until the statement is reset.
  Statement& Bind(int parameter, int64_t value);
  Statement& Bind(int parameter, double value);
  Statement& BindText(int parameter, std::string_view text);
  Statement& BindBlob(int parameter, std::string_view bytes);

  // True when there is a row; its columns are valid until the next step.
  absl::StatusOr<bool> Step();
  // Steps to the end and resets, so that the statement may be bound and run again.
  absl::Status Run();

  // Of the current row; columns count from 0. A column of another type gives 0 or nothing.
  int64_t Int(int column) const;
  double Double(int column) const;
  std::string_view Bytes(int column) const;

 private:
  friend class Database;
  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const;
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  void Note(int code) {
    if (bind_error_ == 0) bind_error_ = code;
  }

  std::unique_ptr<sqlite3_stmt, Finalizer> statement_;
  int bind_error_ = 0;
};

// One connection. Not thread-safe. Errors as Statement.
class Database {
 public:
  // Makes the file where there is none, unless `read_only`.
  static absl::StatusOr<Database> Open(const std::string& path, bool read_only);

  absl::StatusOr<Statement> Prepare(std::string_view sql);
  // Statements without parameters, separated by semicolons; rows are dropped.
  absl::Status Execute(const std::string& sql);
  // The first column of the first row of a statement without parameters.
  absl::StatusOr<int64_t> QueryInt(std::string_view sql);

 private:
  friend class Transaction;
  struct Closer {
    void operator()(sqlite3* database) const;
  };
  explicit Database(sqlite3* database) : database_(database) {}
  std::unique_ptr<sqlite3, Closer> database_;
};

// What is done between Begin and Commit is done together or not at all.
class Transaction {
 public:
  // `database` outlives it.
  static absl::StatusOr<Transaction> Begin(Database* database);
  ~Transaction();
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;

  // Everything is on the disk when this returns OK.
  absl::Status Commit();

 private:
  explicit Transaction(Database* database) : database_(database) {}
  Database* database_;  // null once it is over
};

}  // namespace tenon::server

#endif  // TENON_SERVER_SQLITE_H_
