// Each implementation of the cpu provider, by itself.

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "backends/core/error.h"
#include "backends/cpu/gate_kernels.h"
#include "backends/cpu/gett_plan.h"
#include "backends/cpu/product_kernels.h"
#include "backends/cpu/provider.h"
#include "oneapi/tbb/global_control.h"
#include "tests/backends/conformance/provider_run.h"
#include "tests/backends/conformance/random_step.h"
#include "tests/backends/cpu/highway_target.h"

namespace tenon::testing {
namespace {

constexpr tenon_mode M(int64_t extent, int64_t a, int64_t b, int64_t c) {
  return {extent, a, b, c};
}

using Group = std::vector<tenon_mode>;

// One step from operands to the result; `slices` of them are summed, each shifting A by one.
struct OneStep {
  OneStep(int32_t dtype, const Group& batch, const Group& m, const Group& n, const Group& k,
          int64_t slices = 1)
      : builder(dtype) {
    const tenon_slice_term term = {builder.AddSliced(slices, false), 0, 1};
    builder.AddContract(TENON_PHASE_SLICE, 1, builder.Operand(0, {term}), builder.Operand(1),
                        ProgramBuilder::In(TENON_SPACE_RESULT), batch, m, n, k);
  }
  ProgramBuilder builder;
};

class KernelChecks : public ::testing::Test {
 protected:
  virtual int32_t dtype() const = 0;

  // Runs the program with one of the cpu provider's kernels alone, on one thread and on three, and
  // compares with the oracle; the kernel that ran.
  std::string Check(const tenon_program& program, int64_t terms, const std::string& options = "") {
    const tbb::global_control maybe_more_than_cores(tbb::global_control::max_allowed_parallelism,
                                                    3);
    const auto provider = MakeProvider(cpu::CpuProviderApi(), options);
    const auto compiled = CompileOrDie(*provider, program, 3);
    const auto operands = RandomOperands(program, 17);
    const auto bytes = RunGroup(*compiled, program, operands);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    ExpectOracle(program, operands, *bytes, terms);
    const auto threaded = RunGroup(*compiled, program, operands, {.threads_per_worker = 3});
    EXPECT_TRUE(threaded.ok()) << threaded.status();
    EXPECT_EQ(*threaded, *bytes);
    return compiled->info().kernels[0];
  }

  // Random steps on one kernel; how many of them it took.
  int CheckRandom(const std::string& kernel, bool is_unary, bool accumulate_double = false) {
    std::mt19937_64 random(5);
    int taken = 0;
    for (int round = 0; round < 60; ++round) {
      SCOPED_TRACE(kernel + " round " + std::to_string(round));
      const int64_t slices = 1 + round % 3, extent = 3 + round % 5;
      const RandomStep step = is_unary ? RandomUnary(dtype(), random, extent, slices)
                                       : RandomContract(dtype(), random, extent, slices);
      step.builder->set_accumulate_double(accumulate_double);
      const std::string name = Check(step.builder->Build(), step.terms, "kernels=" + kernel);
      EXPECT_TRUE(name == kernel || name == "reference") << name;
      if (name == kernel) ++taken;
    }
    return taken;
  }
};

class KernelTest : public KernelChecks, public ::testing::WithParamInterface<int32_t> {
 protected:
  int32_t dtype() const override { return GetParam(); }
};

// Those that have kernels for each instruction set, with plans for each.
class VectorKernelTest : public KernelChecks,
                         public ::testing::WithParamInterface<std::tuple<int64_t, int32_t>> {
 protected:
  int32_t dtype() const override { return std::get<1>(GetParam()); }

  const TargetScope target_{std::get<0>(GetParam())};
};

int64_t VectorElementsOf(int32_t dtype) {
  return cpu::DispatchDType(
      dtype, [](auto type) { return cpu::VectorElements<typename decltype(type)::type>(); });
}

TEST_P(KernelTest, RandomElementwise) { EXPECT_GE(CheckRandom("elementwise", false), 5); }
TEST_P(KernelTest, RandomSmall) { EXPECT_GE(CheckRandom("small", false), 15); }
TEST_P(VectorKernelTest, RandomGett) { EXPECT_EQ(CheckRandom("gett", false), 60); }
TEST_P(KernelTest, RandomReduce) { EXPECT_GE(CheckRandom("reduce", true), 20); }
TEST_P(VectorKernelTest, RandomCopy) { EXPECT_GE(CheckRandom("copy", true), 10); }
TEST_P(KernelTest, RandomReference) { EXPECT_EQ(CheckRandom("reference", false), 60); }
TEST_P(KernelTest, RandomDoubleSums) {
  const bool is_single = dtype() == TENON_DTYPE_FLOAT32 || dtype() == TENON_DTYPE_COMPLEX64;
  EXPECT_EQ(CheckRandom("double sums", false, true), is_single ? 60 : 0);
}

TEST_P(KernelTest, LargeMatricesInPlaceCanUseTheLibrary) {
  constexpr int64_t kM = 193, kN = 192, kK = 200;
  const auto check = [this](OneStep step, int64_t terms) {
    EXPECT_EQ(Check(step.builder.Build(), terms, "kernels=gemm"), "gemm");
  };
  check({dtype(), {}, {M(kM, kK, 0, kN)}, {M(kN, 0, 1, 1)}, {M(kK, 1, kN, 0)}, 2}, 2 * kK);
  check({dtype(), {}, {M(kM, 1, 0, kN)}, {M(kN, 0, kK, 1)}, {M(kK, kM, 1, 0)}, 2}, 2 * kK);
  check({dtype(), {}, {M(kM, 1, 0, 1)}, {M(kN, 0, 1, kM)}, {M(kK, kM, kN, 0)}}, kK);
  check({dtype(), {}, {M(kM, 2 * kK, 0, 3 * kN)}, {M(kN, 0, 1, 1)}, {M(kK, 1, kN + 5, 0)}}, kK);
  check({dtype(),
         {M(2, kM * kK, kK * kN, kM * kN)},
         {M(kM, kK, 0, kN)},
         {M(kN, 0, 1, 1)},
         {M(kK, 1, kN, 0)}},
        kK);
  OneStep below(dtype(), {}, {M(kM, kK, 0, 9)}, {M(9, 0, 1, 1)}, {M(kK, 1, 9, 0)});
  EXPECT_EQ(Check(below.builder.Build(), kK, "kernels=gemm"), "reference");
  OneStep no_matrix(dtype(), {}, {M(kM, 2 * kK, 0, 2 * kN)}, {M(kN, 0, 2, 2)},
                    {M(kK, 2, 2 * kN, 0)});
  EXPECT_EQ(Check(no_matrix.builder.Build(), kK, "kernels=gemm"), "reference");
}

TEST_P(VectorKernelTest, MatrixVectorProducts) {
  constexpr int64_t kM = 150, kK = 130;
  for (const int64_t c_step : {1, 3}) {
    OneStep by_rows(dtype(), {}, {M(kM, kK, 0, c_step)}, {}, {M(kK, 1, 2, 0)}, 2);
    EXPECT_EQ(Check(by_rows.builder.Build(), 2 * kK, "kernels=gett"), "gett");
    OneStep by_columns(dtype(), {}, {}, {M(kM, 0, 1, c_step)}, {M(kK, 3, kM, 0)}, 2);
    EXPECT_EQ(Check(by_columns.builder.Build(), 2 * kK, "kernels=gett"), "gett");
  }
  OneStep dot(dtype(), {}, {}, {}, {M(10000, 1, 1, 0)}, 2);
  EXPECT_EQ(Check(dot.builder.Build(), 20000, "kernels=gett"), "gett");
}

TEST_P(VectorKernelTest, DotProducts) {
  const auto check = [this](OneStep step, int64_t terms, const std::string& kernel = "dot") {
    EXPECT_EQ(Check(step.builder.Build(), terms, "kernels=dot"), kernel);
  };
  check({dtype(), {}, {}, {}, {M(10007, 1, 1, 0)}, 2}, 2 * 10007);
  for (const int64_t c_step : {1, 3}) {
    check({dtype(), {}, {M(11, 133, 0, c_step)}, {}, {M(133, 1, 1, 0)}, 2}, 2 * 133);
    check({dtype(), {}, {}, {M(6, 0, 140, c_step)}, {M(133, 1, 1, 0)}, 2}, 2 * 133);
  }
  check({dtype(), {M(3, 700, 600, 35)}, {M(5, 140, 0, 7)}, {M(7, 0, 80, 1)}, {M(17, 1, 1, 0)}}, 17);
  // Two loops of terms, the outer one in another order.
  check({dtype(), {}, {M(5, 1000, 0, 1)}, {M(2, 0, 900, 5)}, {M(4, 50, 200, 0), M(40, 1, 1, 0)}},
        160);
  check({dtype(), {}, {M(5, 15, 0, 1)}, {}, {M(15, 1, 1, 0)}}, 15, "reference");
  check({dtype(), {}, {M(5, 40, 0, 1)}, {}, {M(20, 2, 1, 0)}}, 20, "reference");
}

// More than one tile along every axis, with short last tiles.
TEST_P(VectorKernelTest, TilesHaveTails) {
  constexpr int64_t kM = 530, kN = 541, kK = 5;
  OneStep in_place(dtype(), {}, {M(kM, kK, 0, kN)}, {M(kN, 0, 1, 1)}, {M(kK, 1, kN, 0)});
  EXPECT_EQ(Check(in_place.builder.Build(), kK, "kernels=gett"), "gett");
  // No stride is 1, so everything is packed.
  OneStep packed(dtype(), {}, {M(kM, 2 * kK, 0, 2 * kN)}, {M(kN, 0, 2, 2)}, {M(kK, 2, 2 * kN, 0)},
                 2);
  EXPECT_EQ(Check(packed.builder.Build(), 2 * kK, "kernels=gett"), "gett");
  constexpr int64_t kLong = 40000;
  OneStep long_sum(dtype(), {}, {M(3, 2 * kLong, 0, 8)}, {M(4, 0, 2, 2)}, {M(kLong, 2, 8, 0)});
  EXPECT_EQ(Check(long_sum.builder.Build(), kLong, "kernels=gett"), "gett");
  OneStep long_rows(dtype(), {}, {M(kLong, 6, 0, 8)}, {M(4, 0, 2, 2)}, {M(3, 2, 8, 0)});
  EXPECT_EQ(Check(long_rows.builder.Build(), 3, "kernels=gett"), "gett");
  OneStep long_columns(dtype(), {}, {M(3, 8, 0, 2 * kLong)}, {M(kLong, 0, 8, 2)}, {M(4, 2, 2, 0)});
  EXPECT_EQ(Check(long_columns.builder.Build(), 4, "kernels=gett"), "gett");
  // Many items in a tile, the last one short of some.
  OneStep items(dtype(), {M(1031, 12, 20, 15)}, {M(3, 4, 0, 5)}, {M(5, 0, 1, 1)}, {M(4, 1, 5, 0)},
                2);
  EXPECT_EQ(Check(items.builder.Build(), 8, "kernels=gett"), "gett");
  OneStep scattered(dtype(), {M(1031, 1, 1, 1)}, {M(3, 4124, 0, 5155)}, {M(5, 0, 1031, 1031)},
                    {M(4, 1031, 5155, 0)}, 2);
  EXPECT_EQ(Check(scattered.builder.Build(), 8, "kernels=gett"), "gett");
}

// Terms in several tiles, V without vectors: it is packed once for all rows.
TEST_P(VectorKernelTest, PackedDepthsAreKept) {
  constexpr int64_t kM = 600, kN = 90, kK = 350;
  OneStep step(dtype(), {}, {M(kM, 3, 0, kN)}, {M(kN, 0, 2, 1)}, {M(kK, 3 * kM, 2 * kN, 0)}, 2);
  const tenon_program program = step.builder.Build();
  const cpu::GettPlan plan = cpu::PlanGett(cpu::ViewStep(program, program.steps[0]));
  const bool has_vectors = cpu::VectorElements<double>() > 1;
  if (has_vectors && dtype() != TENON_DTYPE_FLOAT32) {
    EXPECT_GT(plan.v.slots, 1) << plan.Describe();
  }
  EXPECT_EQ(Check(program, 2 * kK, "kernels=gett"), "gett");
}

// Operands larger than a cache: what tiles need is fetched while the one before is computed.
TEST_P(VectorKernelTest, LargeOperandsAreFetchedAhead) {
  constexpr int64_t kBatch = 40, kM = 45, kN = 83, kK = 50;
  OneStep step(dtype(), {M(kBatch, kM * kK, kK * kN, kM * kN)}, {M(kM, kK, 0, kN)},
               {M(kN, 0, 1, 1)}, {M(kK, 1, kN, 0)}, 2);
  const tenon_program program = step.builder.Build();
  const cpu::GettPlan plan = cpu::PlanGett(cpu::ViewStep(program, program.steps[0]));
  if (dtype() == TENON_DTYPE_COMPLEX128) {
    EXPECT_FALSE(plan.s.lines.empty()) << plan.Describe();
    EXPECT_FALSE(plan.v.lines.empty()) << plan.Describe();
  }
  EXPECT_EQ(Check(program, 2 * kK, "kernels=gett"), "gett");
}

// Items of the batch and pairs of columns that share lines of C, or of A, but are far apart in the
// other: their tiles follow each other.
TEST_P(VectorKernelTest, TilesThatShareLinesFollowEachOther) {
  OneStep step(dtype(), {M(4, 131072, 16, 2)},
               {M(2, 1, 0, 262144), M(2, 2, 0, 131072), M(3, 32768, 0, 32768), M(13, 2048, 0, 1024),
                M(61, 32, 0, 8), M(2, 16, 0, 1)},
               {M(2, 0, 8, 16384), M(2, 0, 1, 512)}, {M(2, 8, 2, 0), M(2, 4, 4, 0)}, 2);
  const tenon_program program = step.builder.Build();
  const cpu::GettPlan plan = cpu::PlanGett(cpu::ViewStep(program, program.steps[0]));
  const bool has_vectors = cpu::VectorElements<double>() > 1;
  if (has_vectors && dtype() == TENON_DTYPE_COMPLEX128) {
    ASSERT_GT(plan.order.size(), 2u) << plan.Describe();
    EXPECT_NE(plan.order.front().role, cpu::TileLoop::kBatch) << plan.Describe();
  }
  EXPECT_EQ(Check(program, 8, "kernels=gett"), "gett");
}

// Runs of columns with several partial vectors of one length, which are taken together.
TEST_P(VectorKernelTest, PartialVectorsOfManyRuns) {
  for (const int64_t runs : {1, 2, 3, 5, 9}) {
    constexpr int64_t kRun = 37, kK = 20;
    OneStep step(dtype(), {}, {M(30, kK, 0, 2 * runs * kRun)},
                 {M(runs, 0, 2 * kRun, 2 * kRun), M(kRun, 0, 1, 1)},
                 {M(kK, 1, 2 * runs * kRun, 0)});
    EXPECT_EQ(Check(step.builder.Build(), kK, "kernels=gett"), "gett") << runs;
  }
}

// A gate on two axes of a state, wherever they are: vectors lie in one piece, in several, or must
// be packed.
TEST_P(KernelTest, GatesOnAnyAxes) {
  constexpr int kAxes = 9;
  for (int x = 0; x < kAxes; ++x) {
    for (int y = 0; y < x; ++y) {
      Group kept;
      for (int axis = kAxes; axis-- > 0;) {
        const int64_t stride = int64_t{1} << axis;
        if (axis != x && axis != y) kept.push_back(M(2, stride, 0, stride));
      }
      const int64_t sx = int64_t{1} << x, sy = int64_t{1} << y;
      OneStep step(dtype(), {}, kept, {M(2, 0, 8, sx), M(2, 0, 4, sy)},
                   {M(2, sx, 2, 0), M(2, sy, 1, 0)}, 2);
      EXPECT_EQ(Check(step.builder.Build(), 8, "kernels=gett"), "gett");
    }
  }
}

// Binary loops in mixed order, as quantum circuits have them: tiles are boxes of them.
// Gates on every set of up to three of a state's indices, of which some lie inside a vector.
TEST_P(VectorKernelTest, GatesInsideVectors) {
  constexpr int kBits = 7;
  const int64_t vector = VectorElementsOf(dtype());
  for (int gate = 1; gate < 1 << kBits; ++gate) {
    const int n_bits = std::popcount(static_cast<unsigned>(gate));
    if (n_bits > 3) continue;
    SCOPED_TRACE(gate);
    Group m = {M(3, 1 << kBits, 0, 1 << kBits)}, n, k;
    for (int bit = 0, next = 1; bit < kBits; ++bit) {
      const int64_t stride = int64_t{1} << bit;
      if ((gate & stride) == 0) {
        m.push_back(M(2, stride, 0, stride));
        continue;
      }
      k.push_back(M(2, stride, next, 0));
      n.push_back(M(2, 0, int64_t{next} << n_bits, stride));
      next *= 2;
    }
    const int64_t slices = 1 + gate % 2;
    OneStep step(dtype(), {}, m, n, k, slices);
    const bool inside = (gate & (vector - 1)) != 0;
    EXPECT_EQ(Check(step.builder.Build(), slices << n_bits, "kernels=gate"),
              inside ? "gate" : "reference");
  }
}

// The gate on the left, loops over several bits at once, outputs unlike inputs in number.
TEST_P(VectorKernelTest, OtherGates) {
  const int64_t vector = VectorElementsOf(dtype());
  if (vector < 4) GTEST_SKIP() << "the vectors of this machine hold less than two bits";
  const auto check = [this](OneStep step, const std::string& kernel = "gate") {
    EXPECT_EQ(Check(step.builder.Build(), 8, "kernels=gate"), kernel);
  };
  check({dtype(),
         {},
         {M(4, 4, 0, 1)},
         {M(50, 0, 8 * vector, 4 * vector), M(vector, 0, 4, 4)},
         {M(4, 1, 1, 0)}});
  check({dtype(),
         {},
         {M(2 * vector, 2, 0, 2), M(5, 6 * vector, 0, 8 * vector)},
         {M(2, 0, 2, 1)},
         {M(2, 1, 1, 0)}});
  // Two in, eight out, six of them elsewhere.
  check({dtype(),
         {},
         {M(vector, 2, 0, 2), M(3, 2 * vector, 0, 2 * vector)},
         {M(2, 0, 2, 1), M(4, 0, 4, 6 * vector)},
         {M(2, 1, 1, 0)}});
  // A run that is cut unevenly.
  check({dtype(),
         {},
         {M(2500 * vector / 2 + vector / 2, 2, 0, 2)},
         {M(2, 0, 2, 1)},
         {M(2, 1, 1, 0)}});
  // The new index does not take the place of the old one.
  check({dtype(),
         {},
         {M(vector, 2, 0, 1), M(3, 2 * vector, 0, vector)},
         {M(2, 0, 2, 3 * vector)},
         {M(2, 1, 1, 0)}},
        "reference");
}

// Tiny matrices in a batch: those that fill no vector with a row, and fit in two vectors.
TEST_P(VectorKernelTest, BatchesOfTinyMatrices) {
  const int64_t vector = VectorElementsOf(dtype());
  const bool has_kernel = cpu::HasGateLookups();
  for (const int64_t n : {2, 4, 8}) {
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(n);
      const int64_t size = n * n, row = transposed ? 1 : n, term = transposed ? n : 1;
      OneStep step(dtype(), {M(64, size, size, size)}, {M(n, row, 0, n)}, {M(n, 0, 1, 1)},
                   {M(n, term, n, 0)}, 2);
      const int64_t matrices = std::max<int64_t>(vector / size, 1);  // of a position
      const int64_t inside = std::min(n, vector / n), terms = n;     // terms of a position
      const bool fits = has_kernel && n < vector && inside > 1 && matrices * size <= 2 * vector &&
                        terms <= cpu::kMostGateTerms;
      EXPECT_EQ(Check(step.builder.Build(), 2 * n, "kernels=gate"), fits ? "gate" : "reference");
    }
  }
}

TEST_P(VectorKernelTest, ManyShortLoops) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 6; ++round) {
    Group m(6, {2, 0, 0, 0}), n(5, {2, 0, 0, 0}), k(4, {2, 0, 0, 0});
    const auto lay_out = [&random](std::vector<tenon_mode*> axes, int64_t tenon_mode::*stride) {
      std::shuffle(axes.begin(), axes.end(), random);
      int64_t next = 1;
      for (tenon_mode* axis : axes) {
        axis->*stride = next;
        next *= 2;
      }
    };
    const auto join = [](Group& x, Group& y) {
      std::vector<tenon_mode*> axes;
      for (Group* group : {&x, &y}) {
        for (tenon_mode& mode : *group) axes.push_back(&mode);
      }
      return axes;
    };
    lay_out(join(m, k), &tenon_mode::stride_a);
    lay_out(join(k, n), &tenon_mode::stride_b);
    lay_out(join(m, n), &tenon_mode::stride_c);
    OneStep step(dtype(), {}, m, n, k, 2);
    EXPECT_EQ(Check(step.builder.Build(), 32, "kernels=gett"), "gett");
    EXPECT_EQ(Check(step.builder.Build(), 32, "kernels=reference"), "reference");
  }
}

TEST_P(KernelTest, SmallProducts) {
  OneStep tiny(dtype(), {}, {M(4, 4, 0, 4)}, {M(4, 0, 1, 1)}, {M(4, 1, 4, 0)}, 2);
  EXPECT_EQ(Check(tiny.builder.Build(), 8, "kernels=small"), "small");
  OneStep items(dtype(), {M(1000, 9, 9, 9)}, {M(3, 3, 0, 3)}, {M(3, 0, 1, 1)}, {M(3, 1, 3, 0)});
  EXPECT_EQ(Check(items.builder.Build(), 3, "kernels=small"), "small");
  // The batch is contiguous: vectors run across it.
  OneStep across(dtype(), {M(3000, 1, 1, 1)}, {M(5, 27000, 0, 18000)}, {M(6, 0, 3000, 3000)},
                 {M(9, 3000, 18000, 0)});
  EXPECT_EQ(Check(across.builder.Build(), 9, "kernels=small"), "small");
}

TEST_P(KernelTest, ProductsWithoutSums) {
  OneStep outer(dtype(), {}, {M(300, 1, 0, 70)}, {M(70, 0, 1, 1)}, {}, 2);
  EXPECT_EQ(Check(outer.builder.Build(), 2, "kernels=elementwise"), "elementwise");
  OneStep hadamard(dtype(), {M(3000, 1, 1, 1)}, {}, {}, {});
  EXPECT_EQ(Check(hadamard.builder.Build(), 1, "kernels=elementwise"), "elementwise");
  OneStep transposed(dtype(), {M(60, 1, 90, 90), M(90, 60, 1, 1)}, {}, {}, {}, 3);
  EXPECT_EQ(Check(transposed.builder.Build(), 3, "kernels=elementwise"), "elementwise");
}

TEST_P(VectorKernelTest, UnarySteps) {
  const auto check = [this](const Group& m, const Group& k, int64_t terms) {
    ProgramBuilder builder(dtype());
    builder.AddUnary(TENON_PHASE_SLICE, 0, builder.Operand(0),
                     ProgramBuilder::In(TENON_SPACE_RESULT), m, k);
    return Check(builder.Build(), terms);
  };
  EXPECT_EQ(check({M(300, 400, 0, 1)}, {M(400, 1, 0, 0)}, 400), "reduce");  // rows
  EXPECT_EQ(check({M(3000, 1, 0, 1)}, {M(50, 3000, 0, 0)}, 50), "reduce");  // columns
  EXPECT_EQ(check({}, {M(300, 301, 0, 0)}, 300), "reduce");                 // trace
  EXPECT_EQ(check({M(300, 301, 0, 1)}, {}, 1), "copy");                     // diagonal
  EXPECT_EQ(check({M(200, 1, 0, 150), M(150, 200, 0, 1)}, {}, 1), "copy");  // transpose
  EXPECT_EQ(check({M(5, 20, 0, 40), M(4, 5, 0, 10), M(5, 1, 0, 1)}, {}, 1), "copy");
}

TEST_P(KernelTest, RefusalsAreReadable) {
  OneStep step(dtype(), {}, {M(40, 80, 0, 80)}, {M(40, 0, 2, 2)}, {M(40, 2, 80, 0)});
  const auto provider = MakeProvider(cpu::CpuProviderApi());
  const auto compiled = CompileOrDie(*provider, step.builder.Build());
  EXPECT_STREQ(compiled->info().kernels[0], "gett");
  EXPECT_STREQ(compiled->info().refusals[0],
               "empty: no extent is 0; elementwise: an index is summed; double sums: sums are not "
               "asked for in double; dot: no long loop of the sum is contiguous in both operands; "
               "gate: neither operand is a gate; "
               "small: predicted to take longer than gett; gemm: a product "
               "of 40 x 40 x 40 is below 192 on one side");
}

TEST_P(KernelTest, KernelsAreInTheFingerprint) {
  OneStep step(dtype(), {}, {M(40, 40, 0, 40)}, {M(40, 0, 1, 1)}, {M(40, 1, 40, 0)});
  const tenon_program& program = step.builder.Build();
  const auto fingerprint = [&program](const std::string& options) {
    return CompileOrDie(*MakeProvider(cpu::CpuProviderApi(), options), program)->FingerprintHex();
  };
  EXPECT_EQ(fingerprint(""), fingerprint("kernels=gett"));
  EXPECT_NE(fingerprint(""), fingerprint("kernels=reference"));
}

// Steps that would run for hours return soon after the flag rises.
TEST_P(KernelTest, LongStepsStopWhenCancelled) {
  constexpr int64_t kForever = int64_t{1} << 44;
  for (const char* kernel : {"small", "gett", "gett sum", "dot", "reference", "reduce"}) {
    SCOPED_TRACE(kernel);
    ProgramBuilder builder(dtype());
    // Operands of one element, read again and again.
    if (std::string(kernel) == "reduce") {
      builder.AddUnary(TENON_PHASE_SLICE, 0, builder.Operand(0),
                       ProgramBuilder::In(TENON_SPACE_RESULT), {M(2, 0, 0, 1)},
                       {M(kForever, 0, 0, 0)});
    } else if (std::string(kernel) == "dot") {
      builder.AddContract(TENON_PHASE_SLICE, 0, builder.Operand(0), builder.Operand(1),
                          ProgramBuilder::In(TENON_SPACE_RESULT), {M(kForever, 0, 0, 0)},
                          {M(2, 0, 0, 1)}, {}, {M(16, 1, 1, 0)});
    } else if (std::string(kernel) == "gett sum") {
      builder.AddContract(TENON_PHASE_SLICE, 0, builder.Operand(0), builder.Operand(1),
                          ProgramBuilder::In(TENON_SPACE_RESULT), {}, {M(2, 0, 0, 1)}, {},
                          {M(kForever, 0, 0, 0)});
    } else {
      builder.AddContract(TENON_PHASE_SLICE, 0, builder.Operand(0), builder.Operand(1),
                          ProgramBuilder::In(TENON_SPACE_RESULT), {M(kForever, 0, 0, 0)},
                          {M(2, 2, 0, 2)}, {M(2, 0, 1, 1)}, {M(2, 1, 2, 0)});
    }
    const tenon_program& program = builder.Build();
    const auto operands = RandomOperands(program, 1);
    const std::string name = kernel == std::string("gett sum") ? "gett" : kernel;
    const auto provider = MakeProvider(cpu::CpuProviderApi(), "kernels=" + name);
    const auto compiled = CompileOrDie(*provider, program);
    EXPECT_EQ(compiled->info().kernels[0], name);
    plugin::HostMemory memory(INT64_MAX);
    std::atomic<int32_t> cancel = 0;
    const tenon_execution_options options = {sizeof(options), 1, 1, 0,
                                             reinterpret_cast<const int32_t*>(&cancel)};
    const auto execution = compiled->Begin(memory, Pointers(operands), options);
    ASSERT_TRUE(execution.ok()) << execution.status();
    ASSERT_TRUE((*execution)->BindSet(Pointers(operands)).ok());
    std::vector<char> bytes(program.block_elements * ElementBytes(dtype()));
    std::thread stopper([&cancel] { cancel = 1; });
    const absl::Status status = (*execution)->RunGroup(0, 0, 0, 1, bytes.data());
    stopper.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  }
}

TEST(CpuProviderOptionsTest, UnknownKernelsAndOptionsAreRefused) {
  for (const std::string options : {"kernels=gemm,fast", "threads=3"}) {
    const auto provider = plugin::Provider::Create(cpu::CpuProviderApi(), options);
    EXPECT_EQ(GetErrorDetails(provider.status()).reason, Reason::kBadParameter) << options;
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, KernelTest,
                         ::testing::Values(TENON_DTYPE_FLOAT32, TENON_DTYPE_FLOAT64,
                                           TENON_DTYPE_COMPLEX64, TENON_DTYPE_COMPLEX128));

INSTANTIATE_TEST_SUITE_P(
    Targets, VectorKernelTest,
    ::testing::Combine(::testing::ValuesIn(MachineTargets()),
                       ::testing::Values(TENON_DTYPE_FLOAT32, TENON_DTYPE_FLOAT64,
                                         TENON_DTYPE_COMPLEX64, TENON_DTYPE_COMPLEX128)),
    [](const auto& info) {
      return TargetName(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
    });

}  // namespace
}  // namespace tenon::testing
