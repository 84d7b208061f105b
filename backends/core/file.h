// Whole files, read and written with errors that say what happened to which path.

#ifndef TENON_BACKENDS_CORE_FILE_H_
#define TENON_BACKENDS_CORE_FILE_H_

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/tensor.h"

namespace tenon {

// The bytes of a regular file. NOT_FOUND when it cannot be opened, BAD_PARAMETER when it is no
// regular file or reading fails, EXCEEDS_MEMORY_BUDGET when it does not fit in memory. Messages
// carry the path.
absl::StatusOr<Buffer> ReadFile(const std::string& path);

// Writes `parts` one after the other to a temporary name beside `path`, then renames it, so that
// readers see the old file or the new one. Symbolic links stay and their target is replaced; what
// is no regular file (a pipe, a device) is written to directly. NOT_FOUND when the folder does not
// exist, PERMISSION_DENIED, STORAGE_FULL, or INTERNAL with the system's text; nothing is left
// behind.
absl::Status WriteFile(const std::string& path, std::initializer_list<std::string_view> parts);

// The bytes of a buffer as text.
inline std::string_view AsText(const Buffer& buffer) {
  return {buffer.as<char>(), static_cast<size_t>(buffer.size_bytes())};
}

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_FILE_H_
