#include "backends/cpu/nest_kernels.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backends/core/strings.h"
#include "backends/cpu/calibration.h"
#include "backends/cpu/loop_nest.h"
#include "backends/cpu/scalar.h"
#include "backends/cpu/strided_copy.h"

namespace tenon::cpu {
namespace {

constexpr double kGrainWork = 65536;  // innermost iterations that pay for handing work over

int64_t GrainOf(double work_per_index) {
  return static_cast<int64_t>(std::max(1.0, kGrainWork / std::max(work_per_index, 1.0)));
}

std::vector<tenon_mode> ResultModes(const StepView& step) {
  std::vector<tenon_mode> modes;
  for (const Modes group : {step.batch, step.m, step.n}) {
    modes.insert(modes.end(), group.begin(), group.end());
  }
  return modes;
}

// Sums over k for a block of results at once: the block's sums stay in the first cache.
template <typename T, typename Acc>
class BlockKernel final : public StepKernel {
 public:
  explicit BlockKernel(const StepView& step)
      : is_contract_(step.is_contract()),
        results_(MakeLoopNest(ResultModes(step), NestBy::kC)),
        sums_(MakeLoopNest({step.k.begin(), step.k.end()}, NestBy::kA)),
        grain_(GrainOf(static_cast<double>(results_.block) * static_cast<double>(step.k_size))) {}

  const LoopNest& results() const { return results_; }

  void Run(const StepArguments& arguments) const override {
    arguments.team->For(results_.outer_count, grain_, [&](int64_t begin, int64_t end, Scratch) {
      RunBlocks(arguments, begin, end);
    });
  }

 private:
  void RunBlocks(const StepArguments& arguments, int64_t begin, int64_t end) const {
    const T* a = static_cast<const T*>(arguments.a);
    const T* b = static_cast<const T*>(arguments.b);
    T* c = static_cast<T*>(arguments.c);
    Acc sums[kLargestBlock];
    Odometer result(results_.outer, begin), term(sums_.outer);
    for (int64_t i = begin; i < end; ++i, result.Next()) {
      const int64_t count = results_.BlockSize(i);
      std::fill_n(sums, count, Acc{});
      for (int64_t j = 0; j < sums_.outer_count; ++j, term.Next()) {
        if (IsCancelled(arguments.cancel)) return;
        AddTerms(sums_.BlockSize(j), count, a + result.a() + term.a(),
                 is_contract_ ? b + result.b() + term.b() : nullptr, sums);
      }
      StoreSums(count, sums, c + result.c(), results_.c(), arguments.accumulate);
    }
  }

  void AddTerms(int64_t n_terms, int64_t count, const T* a, const T* b, Acc* sums) const {
    for (int64_t k = 0; k < n_terms; ++k) {
      const T* next_a = a + (sums_.is_affine ? k * sums_.stride_a : sums_.offsets_a[k]);
      if (is_contract_) {
        const T* next_b = b + (sums_.is_affine ? k * sums_.stride_b : sums_.offsets_b[k]);
        MultiplyAccumulate(count, next_a, results_.a(), next_b, results_.b(), sums);
      } else {
        Accumulate(count, next_a, results_.a(), sums);
      }
    }
  }

  const bool is_contract_;
  const LoopNest results_, sums_;
  const int64_t grain_;
};

// Sums of one tensor, one result after the other: for terms that are contiguous.
template <typename T, typename Acc>
class RowSumKernel final : public StepKernel {
 public:
  explicit RowSumKernel(const StepView& step)
      : results_(NestedLoops(ResultModes(step), NestBy::kC)),
        n_results_(LoopCount(results_)),
        sums_(MakeLoopNest({step.k.begin(), step.k.end()}, NestBy::kA)),
        grain_(GrainOf(static_cast<double>(step.k_size))) {}

  void Run(const StepArguments& arguments) const override {
    arguments.team->For(n_results_, grain_, [&](int64_t begin, int64_t end, Scratch) {
      const T* a = static_cast<const T*>(arguments.a);
      T* c = static_cast<T*>(arguments.c);
      Odometer result(results_, begin), term(sums_.outer);
      for (int64_t i = begin; i < end; ++i, result.Next()) {
        Acc sum{};
        for (int64_t j = 0; j < sums_.outer_count; ++j, term.Next()) {
          if (IsCancelled(arguments.cancel)) return;
          SumBlock(sums_.BlockSize(j), a + result.a() + term.a(), sums_.a(), sum);
        }
        const T value = ScalarCast<T>(sum);
        T& element = c[result.c()];
        element = arguments.accumulate ? element + value : value;
      }
    });
  }

 private:
  const std::vector<tenon_mode> results_;
  const int64_t n_results_;
  const LoopNest sums_;
  const int64_t grain_;
};

class CopyKernel final : public StepKernel {
 public:
  explicit CopyKernel(const StepView& step) {
    std::vector<CopyLoop> loops;
    for (const tenon_mode& mode : step.m)
      loops.push_back({mode.extent, mode.stride_a, mode.stride_c});
    copy_ = StridedCopy(loops, step.element_bytes());
    // The copy moves bytes and cannot add.
    if (step.may_accumulate) {
      add_ = DispatchDType(step.dtype, [&step](auto type) -> std::unique_ptr<StepKernel> {
        using T = typename decltype(type)::type;
        return std::make_unique<BlockKernel<T, T>>(step);
      });
    }
  }

  void Run(const StepArguments& arguments) const override {
    if (arguments.accumulate) {
      add_->Run(arguments);
    } else {
      copy_.Run(arguments.a, arguments.c, *arguments.team, arguments.cancel);
    }
  }

 private:
  StridedCopy copy_;
  std::unique_ptr<StepKernel> add_;
};

// The sum over no terms.
template <typename T>
class ZeroKernel final : public StepKernel {
 public:
  explicit ZeroKernel(const StepView& step) : results_(ResultModes(step)) {}

  void Run(const StepArguments& arguments) const override {
    if (arguments.accumulate) return;
    T* c = static_cast<T*>(arguments.c);
    const int64_t count = LoopCount(results_);
    Odometer result(results_);
    for (int64_t i = 0; i < count; ++i, result.Next()) c[result.c()] = T{};
  }

 private:
  const std::vector<tenon_mode> results_;
};

// Seconds for a loop nest with `terms` sums: vectors where the block is one loop, single
// elements where it needs tables.
double NestSeconds(const LoopNest& results, const StepView& step) {
  const Calibration::Nest& rates = MachineCalibration().nest;
  const auto blocks = static_cast<double>(results.outer_count);
  const double terms = static_cast<double>(step.k_size);
  const double bytes = step.work() * static_cast<double>(step.element_bytes());
  return 1e-9 * (rates.step + blocks * (rates.block + terms * rates.term) +
                 (results.is_affine ? bytes / rates.bytes : step.work() * rates.tabulated));
}

Preparation MakeBlockKernel(const StepView& step) {
  return DispatchAccumulator(step.dtype, step.accumulate_double, [&](auto type, auto accumulator) {
    using T = typename decltype(type)::type;
    using Acc = typename decltype(accumulator)::type;
    auto kernel = std::make_unique<BlockKernel<T, Acc>>(step);
    const double seconds = NestSeconds(kernel->results(), step);
    return Preparation::Accept(std::move(kernel), seconds);
  });
}

int64_t SmallestStrideA(Modes modes) {
  int64_t smallest = INT64_MAX;
  for (const tenon_mode& mode : modes) {
    if (mode.extent > 1) smallest = std::min(smallest, mode.stride_a);
  }
  return smallest;
}

}  // namespace

Preparation PrepareEmpty(const StepView& step) {
  if (step.work() != 0) return Preparation::Refuse("no extent is 0");
  return DispatchDType(step.dtype, [&step](auto type) {
    using T = typename decltype(type)::type;
    return Preparation::Accept(std::make_unique<ZeroKernel<T>>(step), 0);
  });
}

Preparation PrepareElementwise(const StepView& step) {
  if (step.k_size != 1) return Preparation::Refuse("an index is summed");
  return MakeBlockKernel(step);
}

Preparation PrepareSmall(const StepView& step) {
  constexpr int64_t kMostTerms = 64;
  if (step.k_size > kMostTerms) {
    return Preparation::Refuse(StrCat("sums of ", step.k_size, " terms want blocks of registers"));
  }
  return MakeBlockKernel(step);
}

Preparation PrepareDouble(const StepView& step) {
  if (!step.accumulate_double) return Preparation::Refuse("sums are not asked for in double");
  return MakeBlockKernel(step);
}

Preparation PrepareReduce(const StepView& step) {
  if (step.k_size == 1) return Preparation::Refuse("no index is summed");
  const bool by_rows = SmallestStrideA(step.k) < SmallestStrideA(step.m);
  if (!by_rows) return MakeBlockKernel(step);
  return DispatchAccumulator(step.dtype, step.accumulate_double, [&](auto type, auto accumulator) {
    using T = typename decltype(type)::type;
    using Acc = typename decltype(accumulator)::type;
    return Preparation::Accept(std::make_unique<RowSumKernel<T, Acc>>(step),
                               1e-9 * step.work() * MachineCalibration().nest.row_sum);
  });
}

Preparation PrepareCopy(const StepView& step) {
  if (step.k_size != 1) return Preparation::Refuse("an index is summed");
  return Preparation::Accept(std::make_unique<CopyKernel>(step),
                             1e-9 * step.work() * MachineCalibration().copy.element);
}

}  // namespace tenon::cpu
