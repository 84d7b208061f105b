#include "backends/cpu/spill_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"

namespace tenon::cpu {
namespace {

absl::Status SystemError(const char* what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Error(full ? Reason::kStorageFull : Reason::kInternal,
               absl::StrCat(what, ": ", std::strerror(error)));
}

// All of `bytes` bytes by a system call that may do a part; 0, or the error.
template <typename Call>
int Repeat(int64_t bytes, const Call& call) {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t part = call(done);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return part < 0 ? errno : EIO;
    done += part;
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SpillFile>> SpillFile::Open(const std::string& folder,
                                                           int64_t block_bytes, int64_t max_bytes) {
  std::string path = absl::StrCat(folder, "/pairs-XXXXXX");
  const int descriptor = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0) return SystemError("a temporary file cannot be created", errno);
  ::unlink(path.c_str());
  return std::unique_ptr<SpillFile>(new SpillFile(descriptor, block_bytes, max_bytes));
}

SpillFile::~SpillFile() { ::close(descriptor_); }

int32_t SpillFile::Write(const void* block) {
  const int64_t number = next_.fetch_add(1);
  if ((number + 1) * block_bytes_ > max_bytes_) {
    Fail(Error(Reason::kExceedsTemporaryBudget,
               absl::StrCat("temporary files grew beyond the ", max_bytes_, " bytes planned")));
    return 0;
  }
  if (!status().ok()) return 0;
  const auto* bytes = static_cast<const char*>(block);
  const int error = Repeat(block_bytes_, [&](int64_t done) {
    return ::pwrite(descriptor_, bytes + done, block_bytes_ - done, number * block_bytes_ + done);
  });
  if (error != 0) Fail(SystemError("a temporary file cannot be written", error));
  return static_cast<int32_t>(number);
}

absl::Status SpillFile::Read(int32_t block, void* out) const {
  auto* bytes = static_cast<char*>(out);
  const int64_t start = block * block_bytes_;
  const int error = Repeat(block_bytes_, [&](int64_t done) {
    return ::pread(descriptor_, bytes + done, block_bytes_ - done, start + done);
  });
  return error == 0 ? absl::OkStatus() : SystemError("a temporary file cannot be read", error);
}

absl::Status SpillFile::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

void SpillFile::Fail(absl::Status status) {
  std::lock_guard lock(mutex_);
  status_.Update(std::move(status));
}

}  // namespace tenon::cpu
