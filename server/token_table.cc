#include "server/token_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "backends/core/error.h"
#include "backends/core/sha256.h"

namespace tenon::server {
namespace {

constexpr size_t kDigestDigits = 64;

bool All(std::string_view text, bool (*is)(unsigned char)) {
  return std::all_of(text.begin(), text.end(),
                     [is](char c) { return is(static_cast<unsigned char>(c)); });
}

absl::Status BadLine(std::string what) { return Error(Reason::kBadParameter, std::move(what)); }

}  // namespace

absl::StatusOr<TokenTable> TokenTable::Parse(std::string_view text, const std::string& file) {
  TokenTable table;
  int64_t number = 0;
  for (const absl::string_view whole : absl::StrSplit(ToAbsl(text), '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(whole);
    if (line.empty() || line[0] == '#') continue;
    const absl::Status added = table.Add({line.data(), line.size()});
    if (!added.ok()) return PrefixMessage(added, StrCat(file, ", line ", number, ": "));
  }
  if (table.entries_.empty()) return BadLine(StrCat(file, ": there is no token in it"));
  return table;
}

absl::Status TokenTable::Add(std::string_view line) {
  const std::vector<std::string> parts =
      absl::StrSplit(ToAbsl(line), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  // What stands there is not repeated: it could be a token.
  if (parts.size() != 3) {
    return BadLine(StrCat("expected three words, name role digest; found ", parts.size()));
  }
  Entry entry;
  entry.name = parts[0];
  if (entry.name.size() > kMaxNameBytes || !All(entry.name, absl::ascii_isgraph)) {
    return BadLine(StrCat("a name has at most ", kMaxNameBytes, " printable ASCII characters"));
  }
  if (parts[1] != "compute" && parts[1] != "admin") {
    return BadLine("the role is neither 'compute' nor 'admin'");
  }
  entry.administrator = parts[1] == "admin";
  if (parts[2].size() != kDigestDigits || !All(parts[2], absl::ascii_isxdigit)) {
    return BadLine("the digest is not a SHA-256 of 64 hexadecimal digits");
  }
  const std::string bytes = absl::HexStringToBytes(parts[2]);
  std::copy(bytes.begin(), bytes.end(), entry.digest.begin());
  for (const Entry& other : entries_) {
    if (other.digest == entry.digest) {
      return BadLine(StrCat("the same token stands for '", other.name, "' already"));
    }
    if (other.name == entry.name && other.administrator != entry.administrator) {
      return BadLine(StrCat("'", entry.name, "' has another role above"));
    }
  }
  if (entries_.size() == kMaxTokens) {
    return BadLine(StrCat("there are more than ", kMaxTokens, " tokens"));
  }
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

const TokenTable::Entry* TokenTable::Find(std::string_view token) const {
  if (token.empty() || token.size() > kMaxTokenBytes) return nullptr;
  const std::array<uint8_t, 32> digest = Sha256(token);
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    unsigned difference = 0;
    for (size_t i = 0; i < digest.size(); ++i) {
      difference |= static_cast<unsigned>(digest[i] ^ entry.digest[i]);
    }
    found = difference == 0 ? &entry : found;  // no early end
  }
  return found;
}

}  // namespace tenon::server
