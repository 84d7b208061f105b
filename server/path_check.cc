#include "server/path_check.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_split.h"
#include "backends/core/error.h"

namespace tenon::server {
namespace {

namespace fs = std::filesystem;

absl::Status CheckResolved(const std::string& path, const std::string& root) {
  const bool inside =
      path == root || root == "/" || (path.starts_with(root) && path[root.size()] == '/');
  if (inside) return absl::OkStatus();
  return Error(Reason::kPermissionDenied, "a link leads out of the allowed folder");
}

}  // namespace

absl::Status CheckRelative(std::string_view path) {
  if (path.find('\0') != std::string_view::npos) {
    return Error(Reason::kBadParameter, "the path holds a zero byte");
  }
  if (path.starts_with('/')) {
    return Error(Reason::kPermissionDenied, StrCat("'", path,
                                                   "' is absolute; expected is a path "
                                                   "relative to the server's folder"));
  }
  for (const auto part : absl::StrSplit(ToAbsl(path), '/')) {
    if (part != "..") continue;
    return Error(Reason::kPermissionDenied, StrCat("'", path, "' has '..' in it"));
  }
  return absl::OkStatus();
}

absl::Status CheckInside(const std::string& path, const std::string& root) {
  std::error_code error;
  const fs::path resolved = fs::canonical(path, error);
  return error ? absl::OkStatus() : CheckResolved(resolved.string(), root);
}

absl::Status CheckOpenInside(int descriptor, const std::string& root) {
  std::error_code error;
  const fs::path resolved = fs::read_symlink(StrCat("/proc/self/fd/", descriptor), error);
  if (error) return Error(Reason::kPermissionDenied, "the file can't be told from others");
  return CheckResolved(resolved.string(), root);
}

}  // namespace tenon::server
