#include "backends/core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "backends/core/error.h"

namespace tenon {
namespace {

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  int Close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 ? 0 : close(fd);
  }

 private:
  int fd_;
};

absl::Status FileError(Reason reason, std::string_view what, const std::string& path, int error) {
  return Error(reason, StrCat("cannot ", what, " '", path, "': ", std::strerror(error)))
      .Field("path")
      .Meta("path", path);
}

absl::Status WriteError(const std::string& path, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT;
  const Reason reason = error == ENOENT   ? Reason::kNotFound
                        : error == EACCES ? Reason::kPermissionDenied
                        : is_full         ? Reason::kStorageFull
                                          : Reason::kInternal;
  return FileError(reason, "write", path, error);
}

// 0, or the error number.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) bytes.remove_prefix(written);
  }
  return 0;
}

// 0, or the error number. `flags` say how to open the file, beside writing.
int WriteParts(const std::string& path, int flags, std::initializer_list<std::string_view> parts) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666));
  if (file.get() < 0) return errno;
  for (const std::string_view part : parts) {
    if (const int error = WriteAll(file.get(), part); error != 0) return error;
  }
  return file.Close() == 0 ? 0 : errno;
}

// What `path` names through symbolic links, so that the link stays and its target is replaced.
std::string FinalTarget(const std::string& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  return error ? path : target.string();
}

}  // namespace

absl::StatusOr<Buffer> ReadFile(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not wait for its writer.
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return FileError(Reason::kNotFound, "open", path, errno);
  struct stat status;
  if (fstat(file.get(), &status) != 0) {
    return FileError(Reason::kBadParameter, "examine", path, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return Error(Reason::kBadParameter, StrCat("'", path, "' is not a regular file"))
        .Field("path")
        .Meta("path", path);
  }
  TENON_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(status.st_size));
  int64_t done = 0;
  while (done < buffer.size_bytes()) {
    const ssize_t count = read(file.get(), buffer.data() + done, buffer.size_bytes() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      // The file became shorter while it was read, or the device failed.
      return FileError(Reason::kBadParameter, "read all of", path, count == 0 ? EIO : errno);
    }
    done += count;
  }
  return buffer;
}

absl::Status WriteFile(const std::string& path, std::initializer_list<std::string_view> parts) {
  // Devices, pipes and the like are written to, never replaced by a file.
  struct stat status;
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {
    const int error = WriteParts(path, O_TRUNC, parts);
    return error == 0 ? absl::OkStatus() : WriteError(path, error);
  }
  static std::atomic<uint64_t> counter{0};
  const std::string target = FinalTarget(path);
  const std::string temporary = StrCat(target, ".", getpid(), ".", counter.fetch_add(1), ".tmp");
  int error = WriteParts(temporary, O_CREAT | O_EXCL, parts);
  if (error == 0 && std::rename(temporary.c_str(), target.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  unlink(temporary.c_str());
  return WriteError(path, error);
}

}  // namespace tenon
