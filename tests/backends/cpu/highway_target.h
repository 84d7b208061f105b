// Runs vector kernels for each instruction set of the machine.

#ifndef TENON_TESTS_BACKENDS_CPU_HIGHWAY_TARGET_H_
#define TENON_TESTS_BACKENDS_CPU_HIGHWAY_TARGET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cpu/highway_targets.h"  // must come before highway.h
#include "hwy/highway.h"

namespace tenon::testing {

// Those that the kernels are compiled for and this machine has, best first.
inline std::vector<int64_t> MachineTargets() { return hwy::SupportedAndGeneratedTargets(); }

inline std::string TargetName(int64_t target) { return hwy::TargetName(target); }

// While it lives, all vector kernels of the process are those of `target`. Plans are made for a
// vector's length: make them within.
class TargetScope {
 public:
  explicit TargetScope(int64_t target) { Choose(target); }
  ~TargetScope() { Choose(0); }
  TargetScope(const TargetScope&) = delete;
  TargetScope& operator=(const TargetScope&) = delete;

 private:
  static void Choose(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_CPU_HIGHWAY_TARGET_H_
