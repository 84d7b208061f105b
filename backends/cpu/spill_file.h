// A temporary file of equal blocks.

#ifndef TENON_BACKENDS_CPU_SPILL_FILE_H_
#define TENON_BACKENDS_CPU_SPILL_FILE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"

namespace tenon::cpu {

// Blocks are written once and read any number of times. The file has no name in its folder once it
// is open, so that nothing remains of it whatever happens to the process. Thread-safe.
class SpillFile {
 public:
  // In `folder`, which exists. At most `max_bytes` are written. INTERNAL with the system's text.
  static absl::StatusOr<std::unique_ptr<SpillFile>> Open(const std::string& folder,
                                                         int64_t block_bytes, int64_t max_bytes);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Writes a block and returns its number. After a failure (a full disk) writes nothing more;
  // status() then tells why.
  int32_t Write(const void* block);
  absl::Status Read(int32_t block, void* out) const;

  absl::Status status() const;
  int64_t bytes() const { return next_.load() * block_bytes_; }

 private:
  SpillFile(int descriptor, int64_t block_bytes, int64_t max_bytes)
      : descriptor_(descriptor), block_bytes_(block_bytes), max_bytes_(max_bytes) {}
  void Fail(absl::Status status);

  const int descriptor_;
  const int64_t block_bytes_, max_bytes_;
  std::atomic<int64_t> next_{0};
  mutable std::mutex mutex_;
  absl::Status status_;
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_SPILL_FILE_H_
