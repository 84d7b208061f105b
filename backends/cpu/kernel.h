// Implementations of steps: what prepares one and what it leaves behind.

#ifndef TENON_BACKENDS_CPU_KERNEL_H_
#define TENON_BACKENDS_CPU_KERNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "backends/cpu/step_view.h"
#include "backends/cpu/threads.h"

namespace tenon::cpu {

// Where a step's tensors begin now, and with what it may run.
struct StepArguments {
  const void* a = nullptr;
  const void* b = nullptr;  // null for unary steps
  void* c = nullptr;
  bool accumulate = false;  // add to C instead of overwriting it
  ThreadTeam* team = nullptr;
  const int32_t* cancel = nullptr;
};

// A step made ready: everything that can be computed before the first run has been. Immutable.
class StepKernel {
 public:
  virtual ~StepKernel() = default;
  // Leaves C unfinished when the cancel flag rises. Thread-safe on different C and teams.
  virtual void Run(const StepArguments& arguments) const = 0;
  // Scratch each thread of the team needs, in bytes.
  virtual int64_t scratch_bytes() const { return 0; }
  // Whether C, unless it is added to, is written past the caches without being read before. For
  // predictions alone.
  virtual bool streams() const { return false; }
  // What decides the bits beside the name: tile grid, packing. For the fingerprint.
  virtual std::string Describe() const { return ""; }
};

// A kernel, or the readable reason why the implementation does not take the step.
struct Preparation {
  std::unique_ptr<StepKernel> kernel;
  double seconds = 0;  // predicted, of one run on one thread
  std::string refusal;

  static Preparation Refuse(std::string reason) { return {nullptr, 0, std::move(reason)}; }
  static Preparation Accept(std::unique_ptr<StepKernel> kernel, double seconds) {
    return {std::move(kernel), seconds, ""};
  }
};

// One entry of an implementation list.
struct Implementation {
  std::string_view name;  // stands in reports
  Preparation (*prepare)(const StepView& step);
};

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_KERNEL_H_
