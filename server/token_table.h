// Bearer tokens and whom they stand for: the file that --token_file names.

#ifndef TENON_SERVER_TOKEN_TABLE_H_
#define TENON_SERVER_TOKEN_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tenon::server {

// One token per line: `name role digest`. The role is "compute" or "admin", which may do all that
// "compute" may; the digest is the token's SHA-256 in 64 hexadecimal digits, so that who reads the
// file has no token. Empty lines and lines that begin with '#' are skipped. A name may have several
// tokens, so that one can be replaced while both are valid; its role must be the same in all.
// Immutable, so thread-safe.
class TokenTable {
 public:
  struct Entry {
    std::string name;
    bool administrator = false;
    std::array<uint8_t, 32> digest{};
  };
  static constexpr size_t kMaxTokens = 10'000;
  static constexpr size_t kMaxNameBytes = 128;    // printable ASCII without spaces
  static constexpr size_t kMaxTokenBytes = 1024;  // longer ones are never right

  // BAD_PARAMETER that names `file` and the line: a line of another form, a token or a role that
  // contradicts an earlier line, no token at all, or too many.
  static absl::StatusOr<TokenTable> Parse(std::string_view text, const std::string& file);

  // Whom the token stands for; null: nobody. Takes as long for any token of the same length,
  // whatever it has in common with those of the table.
  const Entry* Find(std::string_view token) const;

  size_t size() const { return entries_.size(); }

 private:
  absl::Status Add(std::string_view line);

  std::vector<Entry> entries_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_TOKEN_TABLE_H_
