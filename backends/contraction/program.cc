#include "backends/contraction/program.h"

#include "backends/core/sha256.h"

namespace tenon::contraction {

int64_t Program::BlockOffset(int64_t block) const {
  int64_t offset = 0;
  for (int i = descriptor_.n_sliced; i-- > 0;) {
    const tenon_sliced_index& index = sliced_[i];
    if (!index.is_output) continue;
    offset += block % index.extent * index.result_stride;
    block /= index.extent;
  }
  return offset;
}

std::string Program::FingerprintHex() const {
  return HexDigits(descriptor_.fingerprint, sizeof descriptor_.fingerprint);
}

}  // namespace tenon::contraction
