#include "server/server_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "server/path_check.h"

namespace tenon::server {
namespace {

namespace fs = std::filesystem;

// The code point that `text` begins with; an ill-formed byte is one by itself.
std::string_view First(std::string_view text) {
  return text.substr(0, std::max<size_t>(1, Utf8Length(text)));
}

std::string_view TakeFirst(std::string_view& text) {
  const std::string_view first = First(text);
  text.remove_prefix(first.size());
  return first;
}

// Reads a bracket expression from `pattern`, which begins with '['. False when it has no end: the
// bracket then stands for itself. UTF-8 orders as code points do, so that ranges compare bytes.
bool TakeBracket(std::string_view& pattern, std::string_view character, bool* matches) {
  std::string_view rest = pattern.substr(1);
  const bool negated = rest.starts_with('!') || rest.starts_with('^');
  if (negated) rest.remove_prefix(1);
  bool found = false, is_first = true;
  while (!rest.empty() && (is_first || rest[0] != ']')) {
    is_first = false;
    const std::string_view low = TakeFirst(rest);
    std::string_view high = low;
    if (rest.size() >= 2 && rest[0] == '-' && rest[1] != ']') {
      rest.remove_prefix(1);
      high = TakeFirst(rest);
    }
    found |= low <= character && character <= high;
  }
  if (rest.empty()) return false;
  pattern = rest.substr(1);
  *matches = found != negated;
  return true;
}

// Matches one character of a name against the next element of a pattern, which is not '*'.
bool TakeElement(std::string_view& pattern, std::string_view character) {
  if (pattern.empty()) return false;
  bool matches = false;
  if (pattern[0] == '[' && TakeBracket(pattern, character, &matches)) return matches;
  const std::string_view element = TakeFirst(pattern);
  return element == "?" || element == character;
}

std::string_view TakeDigits(std::string_view& text) {
  size_t count = 0;
  while (count < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[count]))) {
    ++count;
  }
  std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  return digits;
}

bool StartsWithDigit(std::string_view text) {
  return !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text[0]));
}

Error BadGlob(Reason reason, std::string message) {
  return Error(reason, std::move(message)).Field("glob");
}

// Walks the folders that a pattern names, part by part.
class Lister {
 public:
  Lister(std::string root, const std::string& glob, const CancelToken* cancel, int64_t max_visited)
      : root_(std::move(root)), cancel_(cancel), max_visited_(max_visited) {
    for (const auto part : absl::StrSplit(glob, '/', absl::SkipEmpty())) {
      if (part != ".") parts_.emplace_back(part.data(), part.size());
    }
  }

  absl::StatusOr<std::vector<std::string>> List() {
    if (!parts_.empty()) TENON_RETURN_IF_ERROR(Walk("", 0));
    std::sort(found_.begin(), found_.end(), NaturalLess);
    return std::move(found_);
  }

 private:
  static bool IsPattern(const std::string& part) {
    return part.find_first_of("*?[") != std::string::npos;
  }

  // `folder` is relative to the root, with a '/' at its end unless it is the root.
  absl::Status Walk(const std::string& folder, size_t depth) {
    const std::string& part = parts_[depth];
    if (!IsPattern(part)) return Visit(folder + part, depth);
    std::error_code error;
    fs::directory_iterator entry(StrCat(root_, "/", folder), error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      TENON_RETURN_IF_ERROR(CountVisit());
      const std::string name = entry->path().filename().string();
      if (MatchesGlob(part, name)) TENON_RETURN_IF_ERROR(Visit(folder + name, depth));
    }
    return absl::OkStatus();
  }

  absl::Status CountVisit() {
    if (cancel_ != nullptr) TENON_RETURN_IF_ERROR(cancel_->Check());
    if (++visited_ <= max_visited_) return absl::OkStatus();
    return BadGlob(Reason::kExceedsServerLimit,
                   StrCat("more than ", max_visited_, " names lie in the folders of the pattern"))
        .Meta("limit", max_visited_);
  }

  absl::Status Visit(const std::string& name, size_t depth) {
    const std::string path = StrCat(root_, "/", name);
    const bool is_last = depth + 1 == parts_.size();
    std::error_code error;
    if (fs::is_symlink(path, error)) {
      const absl::Status inside = CheckInside(path, root_);
      // It gets its error in its place, when it is opened: so one link in many folders does not
      // spoil the rest. A folder that was asked for by its name leaves no rest.
      if (!inside.ok() && (is_last || IsPattern(parts_[depth]))) return Add(name);
      if (!inside.ok()) {
        return BadGlob(GetErrorDetails(inside).reason,
                       StrCat("'", ReplaceInvalidUtf8(name), "': ", inside.message()));
      }
    }
    const bool is_folder = fs::is_directory(path, error);
    if (!is_last) return is_folder ? Walk(name + "/", depth + 1) : absl::OkStatus();
    if (is_folder || !fs::exists(fs::symlink_status(path, error))) return absl::OkStatus();
    return Add(name);
  }

  absl::Status Add(const std::string& name) {
    if (static_cast<int64_t>(found_.size()) == kMaxServerFiles) {
      return BadGlob(Reason::kExceedsServerLimit,
                     StrCat("more than ", kMaxServerFiles, " files match"))
          .Meta("limit", kMaxServerFiles);
    }
    found_.push_back(name);
    return absl::OkStatus();
  }

  const std::string root_;
  const CancelToken* const cancel_;
  const int64_t max_visited_;
  int64_t visited_ = 0;
  std::vector<std::string> parts_, found_;
};

}  // namespace

bool MatchesGlob(std::string_view pattern, std::string_view name) {
  if (name.starts_with('.') && !pattern.starts_with('.')) return false;
  // Where to go on after the latest '*' took one more character.
  std::string_view star_pattern, star_name;
  bool has_star = false;
  for (;;) {
    if (pattern.starts_with('*')) {
      pattern.remove_prefix(1);
      has_star = true;
      star_pattern = pattern;
      star_name = name;
      continue;
    }
    if (name.empty() && pattern.empty()) return true;
    std::string_view rest = name;
    if (!name.empty() && TakeElement(pattern, TakeFirst(rest))) {
      name = rest;
      continue;
    }
    if (!has_star || star_name.empty()) return false;
    TakeFirst(star_name);
    pattern = star_pattern;
    name = star_name;
  }
}

bool NaturalLess(std::string_view a, std::string_view b) {
  std::string_view x = a, y = b;
  while (!x.empty() && !y.empty()) {
    if (StartsWithDigit(x) && StartsWithDigit(y)) {
      const std::string_view m = TakeDigits(x), n = TakeDigits(y);
      if (m.size() != n.size()) return m.size() < n.size();
      if (m != n) return m < n;
      continue;
    }
    if (x[0] != y[0]) return static_cast<unsigned char>(x[0]) < static_cast<unsigned char>(y[0]);
    x.remove_prefix(1);
    y.remove_prefix(1);
  }
  return x.empty() != y.empty() ? x.empty() : a < b;
}

absl::StatusOr<std::vector<std::string>> ListServerFiles(const std::string& root,
                                                         const std::string& glob, int64_t limit,
                                                         const CancelToken* cancel,
                                                         int64_t max_visited) {
  if (glob.empty()) return BadGlob(Reason::kMissingField, "the pattern of the files is required");
  // Matching costs the product of a name's and a pattern's length.
  constexpr size_t kLongestGlob = 1024;
  if (glob.size() > kLongestGlob) {
    return BadGlob(
        Reason::kExceedsServerLimit,
        StrCat("the pattern has ", glob.size(), " bytes; at most ", kLongestGlob, " are taken"));
  }
  const absl::Status relative = CheckRelative(glob);
  if (!relative.ok()) {
    return BadGlob(GetErrorDetails(relative).reason, std::string(relative.message()));
  }
  TENON_ASSIGN_OR_RETURN(std::vector<std::string> files,
                         Lister(root, glob, cancel, max_visited).List());
  if (files.empty()) {
    return BadGlob(Reason::kBadFile, StrCat("no file below the server's data root matches '",
                                            ReplaceInvalidUtf8(glob), "'"));
  }
  if (static_cast<int64_t>(files.size()) > limit) files.resize(static_cast<size_t>(limit));
  return files;
}

absl::StatusOr<NpyFile> OpenServerFile(const std::string& root, const std::string& name) {
  const std::string path = StrCat(root, "/", name);
  // Before it is opened, since opening a device may do something; and after, since names change.
  TENON_RETURN_IF_ERROR(CheckInside(path, root));
  // Without O_NONBLOCK a pipe would wait for its writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) {
    return BadFile(name, Error(Reason::kBadFile, std::generic_category().message(errno)));
  }
  const absl::Status inside = CheckOpenInside(descriptor, root);
  if (!inside.ok()) {
    close(descriptor);
    return inside;
  }
  auto file = NpyFile::Open(descriptor);
  if (!file.ok()) return BadFile(name, file.status());
  return file;
}

absl::Status BadFile(const std::string& name, const absl::Status& status) {
  Error error(Reason::kBadFile, StrCat("'", ReplaceInvalidUtf8(name), "': ", status.message()));
  for (const auto& [key, value] : GetErrorDetails(status).metadata) {
    std::move(error).Meta(key, value);
  }
  return error;
}

}  // namespace tenon::server
