// What a compiled program's predictions take from its kernels.

#include <gtest/gtest.h>

#include <memory>

#include "backends/cpu/compiled_program.h"
#include "tests/backends/conformance/test_program.h"

namespace tenon::testing {
namespace {

template <bool kStreams>
cpu::Preparation Prepare(const cpu::StepView&) {
  struct Kernel final : cpu::StepKernel {
    void Run(const cpu::StepArguments&) const override {}
    bool streams() const override { return kStreams; }
  };
  return cpu::Preparation::Accept(std::make_unique<Kernel>(), 1e-3);
}

// Of a product of two large matrices that is the result, as the sum of `slices`.
template <bool kStreams>
double PredictedSliceSeconds(int64_t slices) {
  constexpr int64_t kSize = 2048;
  ProgramBuilder builder(TENON_DTYPE_FLOAT64);
  const tenon_slice_term term = {builder.AddSliced(slices, false), 0, 1};
  builder.AddContract(TENON_PHASE_SLICE, 1, builder.Operand(0, {term}), builder.Operand(1),
                      ProgramBuilder::In(TENON_SPACE_RESULT), {}, {{kSize, kSize, 0, kSize}},
                      {{kSize, 0, 1, 1}}, {{kSize, 1, kSize, 0}});
  const auto compiled = cpu::CompiledProgram::Compile(
      builder.Build(), {}, {{{"fake", Prepare<kStreams>}}, {{"fake", Prepare<kStreams>}}}, "");
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  (*compiled)->SetTimes(std::make_shared<cpu::MachineTimes>());
  return (*compiled)->Predict(1, 1).slice_seconds;
}

TEST(PredictionTest, WhatIsWrittenPastTheCachesCostsLess) {
  EXPECT_LT(PredictedSliceSeconds<true>(1), PredictedSliceSeconds<false>(1));
}

// What is added to has to be read, so kernels do not write it past the caches.
TEST(PredictionTest, SumsOfSlicesNeverStream) {
  EXPECT_EQ(PredictedSliceSeconds<true>(2), PredictedSliceSeconds<false>(2));
}

}  // namespace
}  // namespace tenon::testing
