#include "server/scratch_space.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_split.h"
#include "backends/core/error.h"
#include "server/path_check.h"

namespace tenon::server {
namespace {

namespace fs = std::filesystem;

// Folders of this program, and of no other, begin with this.
constexpr std::string_view kPrefix = "tenond-call-";
constexpr std::string_view kTemplate = "tenond-call-XXXXXX";
// Leftovers are looked for this far below the root.
constexpr int kMaxDepth = 8;
// Another call may take away a folder above when it ends, between the making of both.
constexpr int kTries = 5;

std::string SystemText(int error) { return std::generic_category().message(error); }

// A locked descriptor of the folder; -1 when another process holds it, or it is gone.
int LockFolder(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) return -1;
  struct stat status = {};
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0 && fstat(descriptor, &status) == 0 &&
      status.st_nlink > 0) {
    return descriptor;
  }
  close(descriptor);
  return -1;
}

}  // namespace

// A descriptor of a folder. Movable.
class OpenFolder {
 public:
  // Below the folder `at`, or anywhere; the descriptor is negative and errno set if it can't be.
  OpenFolder(int at, const std::string& name)
      : descriptor_(openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}
  ~OpenFolder() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenFolder(OpenFolder&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OpenFolder& operator=(OpenFolder&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  int descriptor() const { return descriptor_; }
  // Leads to this folder whatever its name is by now.
  std::string Path() const { return StrCat("/proc/self/fd/", descriptor_); }

 private:
  int descriptor_;
};

namespace {

absl::Status CheckOwner(const std::string& root) {
  struct stat status = {};
  const bool usable = lstat(root.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                      status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (usable) return absl::OkStatus();
  return Error(Reason::kBadParameter,
               StrCat("--scratch_dir: '", root, "' is not a folder of this user alone"))
      .Field("scratch_dir");
}

}  // namespace

ScratchFolder& ScratchFolder::operator=(ScratchFolder&& other) noexcept {
  if (this != &other) {
    Remove();
    path_ = std::exchange(other.path_, {});
    lock_ = std::exchange(other.lock_, -1);
    above_ = std::exchange(other.above_, {});
  }
  return *this;
}

void ScratchFolder::Remove() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
  for (auto folder = above_.rbegin(); folder != above_.rend(); ++folder) rmdir(folder->c_str());
  path_.clear();
  lock_ = -1;
  above_.clear();
}

absl::StatusOr<std::unique_ptr<ScratchSpace>> ScratchSpace::Create(const std::string& root,
                                                                   bool own, int64_t budget_bytes,
                                                                   size_t max_waiting) {
  if (mkdir(root.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return Error(Reason::kBadParameter,
                 StrCat("--scratch_dir: '", root, "' can't be made: ", SystemText(errno)))
        .Field("scratch_dir");
  }
  if (own) TENON_RETURN_IF_ERROR(CheckOwner(root));
  std::error_code error;
  const fs::path canonical = fs::canonical(root, error);
  if (error || !fs::is_directory(canonical, error)) {
    return Error(Reason::kBadParameter, StrCat("--scratch_dir: '", root, "' is not a directory"))
        .Field("scratch_dir");
  }
  std::unique_ptr<ScratchSpace> space(
      new ScratchSpace(canonical.string(), budget_bytes, max_waiting));
  space->RemoveLeftovers();
  return space;
}

void ScratchSpace::RemoveLeftovers() const {
  std::error_code error;
  std::vector<std::string> found;
  fs::recursive_directory_iterator entry(root_, fs::directory_options::skip_permission_denied,
                                         error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (entry.depth() >= kMaxDepth) entry.disable_recursion_pending();
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    if (entry->is_symlink(ignored) || !entry->is_directory(ignored)) continue;
    entry.disable_recursion_pending();
    found.push_back(entry->path().string());
  }
  for (const std::string& folder : found) {
    const int lock = LockFolder(folder);
    if (lock < 0) continue;  // a call of another server works in it
    fs::remove_all(folder, error);
    close(lock);
  }
}

// Goes from folder to folder by descriptors, so that what was checked is what is used, whoever
// renames folders meanwhile.
absl::StatusOr<OpenFolder> ScratchSpace::MakeAbove(const std::string& directory,
                                                   ScratchFolder* folder) const {
  const auto depth = std::count(directory.begin(), directory.end(), '/');
  if (depth >= kMaxDepth) {
    return Error(Reason::kBadParameter, StrCat("the folder for temporary files is ", depth + 1,
                                               " levels deep; at most ", kMaxDepth, " are made"));
  }
  OpenFolder at(AT_FDCWD, root_);
  std::string path = root_;
  for (const auto part : absl::StrSplit(directory, '/', absl::SkipEmpty())) {
    if (part == ".") continue;
    const std::string name(part.data(), part.size());
    if (name.starts_with(kPrefix)) {
      return Error(Reason::kBadParameter, StrCat("'", directory, "': names that begin with ",
                                                 kPrefix, " are the server's own"));
    }
    path += StrCat("/", name);
    if (mkdirat(at.descriptor(), name.c_str(), S_IRWXU) == 0) {
      folder->above_.push_back(path);
    } else if (errno != EEXIST) {
      return Error(Reason::kStorageFull,
                   StrCat("the folder '", directory, "' can't be made: ", SystemText(errno)));
    }
    OpenFolder next(at.descriptor(), name);
    if (next.descriptor() < 0) {
      return Error(Reason::kStorageFull,
                   StrCat("the folder '", directory, "' can't be opened: ", SystemText(errno)));
    }
    // A link may lead anywhere.
    TENON_RETURN_IF_ERROR(CheckOpenInside(next.descriptor(), root_));
    at = std::move(next);
  }
  return at;
}

absl::StatusOr<ScratchFolder> ScratchSpace::Make(const std::string& directory) const {
  TENON_RETURN_IF_ERROR(CheckRelative(directory));
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    ScratchFolder folder;
    TENON_ASSIGN_OR_RETURN(const OpenFolder above, MakeAbove(directory, &folder));
    std::string path = StrCat(above.Path(), "/", kTemplate);
    if (mkdtemp(path.data()) == nullptr) {
      error = errno;
      continue;
    }
    folder.lock_ = LockFolder(path);
    if (folder.lock_ < 0) continue;
    std::error_code unknown;
    folder.path_ = fs::read_symlink(StrCat("/proc/self/fd/", folder.lock_), unknown).string();
    if (!unknown) return folder;
  }
  return Error(Reason::kStorageFull, StrCat("no folder for temporary files can be made in '",
                                            directory, "': ", SystemText(error)));
}

std::string DefaultScratchRoot() {
  std::error_code error;
  fs::path base = fs::temp_directory_path(error);
  if (error) base = "/tmp";
  return (base / StrCat("tenond-", geteuid())).string();
}

int64_t FreeScratchBytes(const std::string& path) {
  struct statfs status = {};
  const std::string parent = fs::path(path).parent_path().string();
  if (statfs(path.c_str(), &status) != 0 && statfs(parent.c_str(), &status) != 0) return 0;
  const bool in_memory = status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
  return in_memory ? 0 : static_cast<int64_t>(status.f_bavail) * status.f_bsize;
}

}  // namespace tenon::server
