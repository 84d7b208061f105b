// Memory for tests of the same-host transport, as a client makes it.

#ifndef TENON_TESTS_SERVER_SHARED_MEMORY_SUPPORT_H_
#define TENON_TESTS_SERVER_SHARED_MEMORY_SUPPORT_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "tenon/v1/tensor.pb.h"

namespace tenon::server {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// A memfd and this process's view of it.
class TestMemory {
 public:
  TestMemory(const char* name, int64_t bytes, int seals = kSeals)
      : fd_(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)), bytes_(bytes) {
    if (ftruncate(fd_, bytes) == 0 && bytes > 0) {
      data_ = static_cast<std::byte*>(
          mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    }
    // Write seals are refused while there is a mapping that writes.
    if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) Unmap();
    fcntl(fd_, F_ADD_SEALS, seals);
  }
  ~TestMemory() {
    Unmap();
    close(fd_);
  }
  TestMemory(const TestMemory&) = delete;
  TestMemory& operator=(const TestMemory&) = delete;

  int fd() const { return fd_; }
  std::byte* data() { return data_; }
  void Put(int64_t offset, const std::string& bytes) {
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(data_) + offset);
  }
  std::string Get(int64_t offset, size_t size) const {
    return {reinterpret_cast<const char*>(data_) + offset, size};
  }
  // Gives up this process's own view.
  void Unmap() {
    if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
    data_ = nullptr;
  }

 private:
  const int fd_;
  const int64_t bytes_;
  std::byte* data_ = nullptr;
};

// How often the process has a memfd of this name mapped.
inline int MappingsOf(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:" + name) != std::string::npos) ++count;
  }
  return count;
}

// Whether it comes to be mapped no more than `count` times: a call lets go a moment after its end.
inline bool ComesToMappings(const std::string& name, int count) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (MappingsOf(name) > count && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  return MappingsOf(name) == count;
}

inline v1::SharedRegion Region(int64_t offset_bytes, int64_t size_bytes) {
  v1::SharedRegion region;
  region.set_offset_bytes(offset_bytes);
  region.set_size_bytes(size_bytes);
  return region;
}

}  // namespace tenon::server

#endif  // TENON_TESTS_SERVER_SHARED_MEMORY_SUPPORT_H_
