#include "backends/core/npy_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "backends/core/error.h"

namespace tenon {
namespace {

constexpr int64_t kMaxHeaderBytes = int64_t{16} << 10;
constexpr int64_t kPieceBytes = int64_t{64} << 10;
constexpr int64_t kMaxReadBytes = int64_t{8} << 20;  // without a look at the token

Error Unreadable(std::string_view what) {
  return Error(Reason::kBadParameter, StrCat("the file can't be read: ", what)).Field("data");
}

// Reads up to `bytes` bytes; fewer at the end of the file.
absl::StatusOr<int64_t> ReadUpTo(int descriptor, int64_t offset, void* to, int64_t bytes) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(descriptor, static_cast<char*>(to) + done,
                              static_cast<size_t>(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Unreadable(std::generic_category().message(errno));
    if (got == 0) break;
    done += got;
  }
  return done;
}

}  // namespace

NpyFile::~NpyFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

NpyFile& NpyFile::operator=(NpyFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(header_, other.header_);
  return *this;
}

absl::StatusOr<NpyFile> NpyFile::Open(int descriptor) {
  NpyFile file;
  file.descriptor_ = descriptor;
  struct stat status = {};
  if (fstat(descriptor, &status) != 0) {
    return Unreadable(std::generic_category().message(errno));
  }
  if (!S_ISREG(status.st_mode)) return Unreadable("it is no regular file");
  std::string beginning(static_cast<size_t>(std::min<int64_t>(kMaxHeaderBytes, status.st_size)),
                        '\0');
  TENON_ASSIGN_OR_RETURN(const int64_t got, ReadUpTo(descriptor, 0, beginning.data(),
                                                     static_cast<int64_t>(beginning.size())));
  beginning.resize(static_cast<size_t>(got));
  TENON_ASSIGN_OR_RETURN(file.header_, ParseNpyHeader(beginning));
  TENON_RETURN_IF_ERROR(CheckNpyDataSize(file.header_, status.st_size - file.header_.data_offset));
  return file;
}

absl::Status NpyFile::ReadAt(int64_t offset, std::byte* to, int64_t bytes,
                             const CancelToken* cancel) const {
  for (int64_t done = 0; done < bytes; done += kMaxReadBytes) {
    if (cancel != nullptr) TENON_RETURN_IF_ERROR(cancel->Check());
    const int64_t wanted = std::min(kMaxReadBytes, bytes - done);
    TENON_ASSIGN_OR_RETURN(
        const int64_t got,
        ReadUpTo(descriptor_, header_.data_offset + offset + done, to + done, wanted));
    if (got < wanted) return Unreadable("it has become shorter");
  }
  return absl::OkStatus();
}

// Column after column, in pieces, so that there is no second copy of the array.
absl::Status NpyFile::ReadTransposed(Tensor* tensor, const CancelToken* cancel) const {
  const int64_t rows = header_.spec.shape[0], columns = header_.spec.shape[1];
  const auto size = static_cast<int64_t>(DTypeSize(header_.spec.dtype));
  const int64_t total = rows * columns, per_piece = kPieceBytes / size;
  std::vector<std::byte> piece(static_cast<size_t>(kPieceBytes));
  std::byte* values = tensor->buffer.data();
  for (int64_t first = 0; first < total; first += per_piece) {
    const int64_t count = std::min(per_piece, total - first);
    TENON_RETURN_IF_ERROR(ReadAt(first * size, piece.data(), count * size, cancel));
    int64_t row = first % rows, column = first / rows;
    for (int64_t p = 0; p < count; ++p) {
      std::memcpy(values + (row * columns + column) * size, piece.data() + p * size,
                  static_cast<size_t>(size));
      if (++row < rows) continue;
      row = 0;
      ++column;
    }
  }
  return absl::OkStatus();
}

absl::Status NpyFile::Read(Tensor* tensor, const CancelToken* cancel) const {
  const size_t axes = header_.spec.shape.size();
  if (header_.fortran_order && axes > 2) {
    return Error(Reason::kUnsupportedDtype,
                 StrCat("the array has ", axes, " axes in Fortran order; expected at most 2"))
        .Field("fortran_order");
  }
  TENON_RETURN_IF_ERROR(
      header_.fortran_order && axes == 2
          ? ReadTransposed(tensor, cancel)
          : ReadAt(0, tensor->buffer.data(), tensor->buffer.size_bytes(), cancel));
  if (header_.spec.dtype != DType::kBool) return absl::OkStatus();
  auto* values = tensor->buffer.as<uint8_t>();
  std::transform(values, values + tensor->buffer.size_bytes(), values,
                 [](uint8_t value) { return value != 0; });
  return absl::OkStatus();
}

}  // namespace tenon
