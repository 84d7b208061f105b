// Paths that come from callers must stay below a root.

#ifndef TENON_SERVER_PATH_CHECK_H_
#define TENON_SERVER_PATH_CHECK_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tenon::server {

// PERMISSION_DENIED when a path is absolute or has "..", BAD_PARAMETER when it holds a zero byte.
absl::Status CheckRelative(std::string_view path);

// PERMISSION_DENIED when what `path` stands for, all links followed, is not below `root`, which is
// canonical, or not the root itself. OK when it does not exist.
absl::Status CheckInside(const std::string& path, const std::string& root);

// The same of a file that is open.
absl::Status CheckOpenInside(int descriptor, const std::string& root);

}  // namespace tenon::server

#endif  // TENON_SERVER_PATH_CHECK_H_
