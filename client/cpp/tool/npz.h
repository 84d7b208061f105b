// NumPy's .npz files: ZIP archives of .npy files. And arrays by name, whatever file holds them.

#ifndef TENON_CLIENT_CPP_TOOL_NPZ_H_
#define TENON_CLIENT_CPP_TOOL_NPZ_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/tensor.h"

namespace tenon::tool {

// An archive whose directory has been read; arrays are read one by one. Members may be stored or
// deflated, with ZIP64 sizes. Errors carry the path: NOT_FOUND when the file can't be opened,
// BAD_PARAMETER for what is no such archive, is damaged (checksums are compared), encrypted or
// compressed otherwise; EXCEEDS_MEMORY_BUDGET; those of ParseNpy.
class NpzFile {
 public:
  static absl::StatusOr<NpzFile> Open(const std::string& path);

  // Without ".npy", in the order of the file; members of other kinds are left out.
  std::vector<std::string> names() const;
  // NOT_FOUND, with the names that there are, for another one.
  absl::StatusOr<Tensor> Read(const std::string& name) const;

 private:
  struct Member {
    std::string name;
    uint16_t method = 0;
    uint32_t crc = 0;
    uint64_t packed_bytes = 0, bytes = 0, offset = 0;  // of the local header
  };
  explicit NpzFile(std::string path) : path_(std::move(path)) {}
  absl::Status ReadDirectory();
  absl::StatusOr<Member> ParseMember(std::string_view record) const;
  absl::StatusOr<Tensor> ReadMember(const Member& member) const;

  std::string path_;
  uint64_t size_bytes_ = 0;
  std::vector<Member> members_;
};

// Writes arrays, stored, under their names (without ".npy"). Takes memory for a copy of them all.
// `zip64_from`: sizes from here on are written as ZIP64; for tests. Errors as WriteFile.
absl::Status WriteNpzFile(const std::string& path,
                          const std::vector<std::pair<std::string, const Tensor*>>& arrays,
                          uint64_t zip64_from = 0xffffffff);

// Whether the path names an archive, or an array in one: "FILE.npz" or "FILE.npz:NAME".
bool IsNpz(const std::string& path);

// What LoadArrayFile takes for each array of an archive, in its order; the path itself for any
// other file, or for one array of an archive. NOT_FOUND when there is no such file.
absl::StatusOr<std::vector<std::string>> ArraysIn(const std::string& path);

// The array of "FILE.npy", of "FILE.npz:NAME", or the only one of "FILE.npz" (BAD_PARAMETER when it
// has others).
absl::StatusOr<Tensor> LoadArrayFile(const std::string& path);

// Writes one array: as "FILE.npz", under the name `name`, or as .npy.
absl::Status WriteArrayFile(const std::string& path, const std::string& name, const Tensor& tensor);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_NPZ_H_
