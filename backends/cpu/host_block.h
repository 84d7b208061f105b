// Memory that a provider takes from its host.

#ifndef TENON_BACKENDS_CPU_HOST_BLOCK_H_
#define TENON_BACKENDS_CPU_HOST_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "backends/plugin/abi.h"

namespace tenon::cpu {

// Memory from a host's allocator, given back when it goes.
class HostBlock {
 public:
  HostBlock() = default;
  ~HostBlock();
  HostBlock(HostBlock&& other) noexcept;
  HostBlock& operator=(HostBlock&& other) noexcept;
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  // EXCEEDS_MEMORY_BUDGET when the host refuses; `what` names the use. 0 bytes take nothing.
  static absl::StatusOr<HostBlock> Allocate(const tenon_host& host, int64_t bytes,
                                            std::string_view what);
  std::byte* data() const { return data_; }

 private:
  const tenon_host* host_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_HOST_BLOCK_H_
