// Projections that are files of the server.

#ifndef TENON_SERVER_SERVER_FILES_H_
#define TENON_SERVER_SERVER_FILES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "backends/core/npy_file.h"

namespace tenon::server {

// Files that one glob may name, and names in folders that are looked at for it; more are refused.
inline constexpr int64_t kMaxServerFiles = 100'000;
inline constexpr int64_t kMaxVisitedNames = 1'000'000;

// Whether a name matches a pattern of "*", "?" (one code point) and "[...]" (with ranges; "!" or
// "^" first negates). Takes time of at most the product of the lengths. A leading dot is matched
// only by a dot.
bool MatchesGlob(std::string_view pattern, std::string_view name);

// Runs of digits count as numbers ("run2" before "run10"); otherwise by bytes.
bool NaturalLess(std::string_view a, std::string_view b);

// The files below `root` (canonical) that match `glob`, relative to it, in natural order, at most
// `limit` of them. Folders are no files. Fields are "glob". MISSING_FIELD: empty;
// PERMISSION_DENIED: an absolute glob, one with "..", or a link that leads out of the root;
// BAD_FILE: nothing matches; EXCEEDS_SERVER_LIMIT: more than kMaxServerFiles, or more than
// `max_visited` names to look at; the token's. Takes its time: not for gRPC's threads.
absl::StatusOr<std::vector<std::string>> ListServerFiles(const std::string& root,
                                                         const std::string& glob, int64_t limit,
                                                         const CancelToken* cancel = nullptr,
                                                         int64_t max_visited = kMaxVisitedNames);

// Opens a listed file; never waits. BAD_FILE: gone, unreadable, not regular, malformed;
// PERMISSION_DENIED: it leads out of the root by now.
absl::StatusOr<NpyFile> OpenServerFile(const std::string& root, const std::string& name);

// An error of reading such a file, as BAD_FILE with its name in the message.
absl::Status BadFile(const std::string& name, const absl::Status& status);

}  // namespace tenon::server

#endif  // TENON_SERVER_SERVER_FILES_H_
