// Room for temporary files, and the folders that calls make there.

#ifndef TENON_SERVER_SCRATCH_SPACE_H_
#define TENON_SERVER_SCRATCH_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/admission.h"

namespace tenon::server {

// A folder that one call has for itself. Removed with all that is in it when destroyed, and so are
// the folders above that were made for it and are empty then. Movable.
class ScratchFolder {
 public:
  ScratchFolder() = default;
  ~ScratchFolder() { Remove(); }
  ScratchFolder(ScratchFolder&& other) noexcept { *this = std::move(other); }
  ScratchFolder& operator=(ScratchFolder&& other) noexcept;

  const std::string& path() const { return path_; }  // empty: there is none

 private:
  friend class ScratchSpace;
  void Remove();

  std::string path_;
  int lock_ = -1;                   // a descriptor of the folder, locked while it is in use
  std::vector<std::string> above_;  // made for it, the innermost last
};

class OpenFolder;  // in the .cc

// Thread-safe. Several servers may share a root.
class ScratchSpace {
 public:
  // The root is made if it does not exist, for this user alone; an existing one must be a folder,
  // and of this user when it is `own` (one in a directory that others write to as well).
  // Folders that processes left which have ended are removed. `max_waiting` requests of each class
  // may wait for room. BAD_PARAMETER.
  static absl::StatusOr<std::unique_ptr<ScratchSpace>> Create(const std::string& root, bool own,
                                                              int64_t budget_bytes,
                                                              size_t max_waiting);

  // A new folder below `directory`, which is relative to the root; empty: the root itself.
  // BAD_PARAMETER: it can't be a name, or only calls' own folders have such a name;
  // PERMISSION_DENIED: it is absolute, has "..", or leads out of the root; STORAGE_FULL: it can't
  // be made.
  absl::StatusOr<ScratchFolder> Make(const std::string& directory) const;

  // Bytes of all files together; what calls plan is reserved here.
  MemoryBudget& budget() { return budget_; }
  const std::string& root() const { return root_; }

 private:
  ScratchSpace(std::string root, int64_t budget_bytes, size_t max_waiting)
      : root_(std::move(root)), budget_(budget_bytes, max_waiting) {}
  // The folder that the new one goes into; what is made of it is noted in `folder`.
  absl::StatusOr<OpenFolder> MakeAbove(const std::string& directory, ScratchFolder* folder) const;
  void RemoveLeftovers() const;

  const std::string root_;  // canonical
  MemoryBudget budget_;
};

// Where temporary files go unless told otherwise: a folder of this user in the system's directory
// of temporary files.
std::string DefaultScratchRoot();

// Free bytes of the file system that holds `path` or, if it does not exist yet, its parent; 0 for
// one that lies in memory, whose files would take what the memory budget promises to others.
int64_t FreeScratchBytes(const std::string& path);

}  // namespace tenon::server

#endif  // TENON_SERVER_SCRATCH_SPACE_H_
