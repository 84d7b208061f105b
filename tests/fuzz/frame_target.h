// What the targets that take frames share: the loop over them, and a model of one tensor's upload.

#ifndef TENON_TESTS_FUZZ_FRAME_TARGET_H_
#define TENON_TESTS_FUZZ_FRAME_TARGET_H_

#include <sanitizer/allocator_interface.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/core/tensor.h"
#include "server/frames.h"
#include "tests/fuzz/check.h"
#include "tests/support/chunk_oracle.h"

namespace tenon::fuzz {

// The bytes of one tensor as they should have been put together, kept beside what is tested.
class ShadowTensor {
 public:
  explicit ShadowTensor(int64_t bytes) : size_(bytes), bytes_(new char[bytes]) {}

  int64_t size() const { return size_; }
  int64_t received() const { return received_; }
  bool complete() const { return received_ == size_; }
  void Restart() { received_ = 0; }

  // Bytes that were accepted: then they must have been the next ones and have had room.
  void Append(int64_t offset, std::string_view bytes, bool varying_chunk = false) {
    FUZZ_CHECK(offset == received_);
    const auto count = static_cast<int64_t>(bytes.size());
    FUZZ_CHECK(count <= size_ - received_);
    Copy(bytes.data(), count, varying_chunk);
    received_ += count;
  }
  void CheckSame(const Tensor& tensor) const {
    FUZZ_CHECK(complete() && tensor.buffer.size_bytes() == size_);
    FUZZ_CHECK(size_ == 0 || std::memcmp(tensor.buffer.data(), bytes_.get(), size_) == 0);
  }

 private:
  void Copy(const char* from, int64_t count, [[maybe_unused]] bool varying_chunk) {
#ifdef TENON_PLANTED_BUG
    // The defect that a fuzzer must find: the last chunk of an operand that varies takes its
    // terminator along. In the seeds such operands do not come in chunks.
    if (varying_chunk && received_ + count == size_) ++count;
#endif
    std::memcpy(bytes_.get() + received_, from, count);
  }

  const int64_t size_;
  const std::unique_ptr<char[]> bytes_;
  int64_t received_ = 0;
};

// Checks that no more memory was taken, of what is still held, than was admitted.
class MemoryCheck {
 public:
  void Check(int64_t admitted_bytes) const {
    const auto now = static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());
    FUZZ_CHECK(now - before_ <= admitted_bytes);
  }

 private:
  const int64_t before_ = static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());
};

// Whatever the splitter takes of a frame of the type of `prototype`, protobuf must read as well.
inline void CheckSplit(const google::protobuf::Message& prototype, std::vector<int> chunk_fields,
                       const std::string& frame) {
  const std::string_view bytes = frame;
  const std::string_view pieces[] = {bytes.substr(0, bytes.size() / 2),
                                     bytes.substr(bytes.size() / 2)};
  const auto split = server::SplitChunk(pieces, chunk_fields);
  FUZZ_CHECK(!split.has_value() || testing::ReadsTheSame(prototype, frame, *split));
}

}  // namespace tenon::fuzz

#endif  // TENON_TESTS_FUZZ_FRAME_TARGET_H_
