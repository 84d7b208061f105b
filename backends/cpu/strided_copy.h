// Copies between two strided layouts: permutations, packing for matrix products, and back.

#ifndef TENON_BACKENDS_CPU_STRIDED_COPY_H_
#define TENON_BACKENDS_CPU_STRIDED_COPY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cpu/copy_kernels.h"
#include "backends/cpu/threads.h"

namespace tenon::cpu {

// A copy prepared for one set of loops. Immutable, so any number of threads may run it. The element
// is moved as bytes, so its size is all that matters of its type: 4, 8 or 16. Source and target are
// aligned to 4 bytes at least and don't overlap; every bit arrives as it was.
class StridedCopy {
 public:
  // Copies nothing.
  StridedCopy() = default;
  // Extents are at least 1; no two iterations may have the same target. Strides in elements; those
  // of the source may repeat or be 0.
  StridedCopy(const std::vector<CopyLoop>& loops, int64_t element_bytes);

  // On the calling thread.
  void Run(const void* source, void* target) const;
  // On a team; stops early when cancelled.
  void Run(const void* source, void* target, ThreadTeam& team, const int32_t* cancel) const;
  // On the calling thread: target += source, for numbers of a contraction's dtype (TENON_DTYPE_*)
  // that is as long as the element.
  void Add(const void* source, void* target, int32_t dtype) const;

  // How it moves the data, for reports.
  std::string Describe() const;

 private:
  // How to copy one part to this target.
  CopyMode ModeFor(const CopyPart& part, const void* target) const;

  const CopyKernels* kernels_ = nullptr;  // never null if there are parts
  int64_t total_bytes_ = 0;               // that are written
  std::vector<CopyPart> parts_;
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_STRIDED_COPY_H_
