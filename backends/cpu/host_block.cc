#include "backends/cpu/host_block.h"

#include <utility>

#include "backends/core/error.h"

namespace tenon::cpu {

HostBlock::~HostBlock() {
  if (data_ != nullptr) host_->release(host_->context, data_, bytes_);
}

HostBlock::HostBlock(HostBlock&& other) noexcept { *this = std::move(other); }

HostBlock& HostBlock::operator=(HostBlock&& other) noexcept {
  std::swap(host_, other.host_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

absl::StatusOr<HostBlock> HostBlock::Allocate(const tenon_host& host, int64_t bytes,
                                              std::string_view what) {
  constexpr int64_t kAlignment = 64;
  HostBlock block;
  if (bytes <= 0) return block;
  block.host_ = &host;
  block.data_ = static_cast<std::byte*>(host.allocate(host.context, bytes, kAlignment));
  block.bytes_ = bytes;
  if (block.data_ == nullptr) {
    return Error(Reason::kExceedsMemoryBudget, StrCat(what, " need ", bytes,
                                                      " bytes, which the request's memory budget "
                                                      "does not hold"))
        .Meta("needed_bytes", bytes);
  }
  return block;
}

}  // namespace tenon::cpu
