// A stack of blocks of a fit whose lower part lies in a file when it grows large.

#ifndef TENON_BACKENDS_CPU_SPILLED_STACK_H_
#define TENON_BACKENDS_CPU_SPILLED_STACK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/cpu/isotonic.h"
#include "backends/cpu/spill_file.h"

namespace tenon::cpu {

// For one thread. After a failure of the file it goes on with wrong blocks; status() tells.
class SpilledStack {
 public:
  static constexpr int64_t kPart = 1 << 15;  // blocks that go to the file together
  static constexpr int64_t kBytes = 2 * kPart * static_cast<int64_t>(sizeof(FitBlock));
  // Of the file, when at most so many blocks are pushed in all.
  static int64_t FileBytes(int64_t pushes) {
    return (pushes / kPart + 1) * kPart * static_cast<int64_t>(sizeof(FitBlock));
  }

  static absl::StatusOr<SpilledStack> Create(const std::string& folder, int64_t pushes);

  bool empty() const { return top_.empty() && parts_.empty(); }
  int64_t size() const {
    return static_cast<int64_t>(top_.size()) + static_cast<int64_t>(parts_.size()) * kPart;
  }
  FitBlock Top();
  void Pop();
  void Push(FitBlock block);

  absl::Status status() const;
  int64_t file_bytes() const { return file_->bytes(); }

 private:
  void Refill();

  std::unique_ptr<SpillFile> file_;
  std::vector<FitBlock> top_;
  std::vector<int32_t> parts_;  // in the file, the lowest first
  absl::Status status_;
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_SPILLED_STACK_H_
