// Copies between two strided layouts: permutations, packing for matrix products, and back.

#ifndef TENON_BACKENDS_CPU_STRIDED_COPY_H_
#define TENON_BACKENDS_CPU_STRIDED_COPY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cpu/step_view.h"
#include "backends/cpu/threads.h"

namespace tenon::cpu {

// One loop of a copy; strides in elements.
struct CopyLoop {
  int64_t extent;
  int64_t source;
  int64_t target;
};

// A copy prepared for one set of loops. Immutable. The element is moved as bytes, so its size is
// all that matters of its type: 4, 8 or 16.
class StridedCopy {
 public:
  StridedCopy() = default;
  // Extents are at least 1; no two iterations may have the same target.
  StridedCopy(const std::vector<CopyLoop>& loops, int64_t element_bytes);

  // On the calling thread.
  void Run(const void* source, void* target) const;
  // On a team; stops early when cancelled.
  void Run(const void* source, void* target, ThreadTeam& team, const int32_t* cancel) const;

  // How it moves the data, for reports.
  std::string Describe() const;

 private:
  // All loops of one part, in bytes. What stands in a block depends on `form`.
  enum class Form {
    kRuns,       // runs of run_bytes contiguous bytes; tables say where they start
    kTranspose,  // contiguous in the source along one table, in the target along the other
    kGather      // single units; tables say where they are
  };
  struct Part {
    Form form = Form::kGather;
    int64_t source = 0, target = 0;  // where the part begins
    std::vector<CopyLoop> outer;
    std::vector<tenon_mode> walk;  // `outer`, ready for an odometer
    int64_t outer_count = 1;
    int64_t unit = 0;  // bytes moved at once; of a run in kRuns
    // kTranspose: sources of the target-contiguous loop, targets of the source-contiguous one.
    // Otherwise entry i of both is iteration i.
    std::vector<int64_t> sources, targets;
  };

  void Plan(std::vector<CopyLoop> loops, int64_t unit, int64_t source, int64_t target);
  void PlanBlock(std::vector<CopyLoop> loops, int64_t unit, int64_t source, int64_t target);
  static bool PlanTranspose(Part& part);
  static void PlanTables(Part& part);
  static void RunPart(const Part& part, int64_t begin, int64_t end, const char* source,
                      char* target, const int32_t* cancel);

  std::vector<Part> parts_;
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_STRIDED_COPY_H_
