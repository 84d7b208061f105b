// Random networks, paths and slices against the definition.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "backends/contraction/program.h"
#include "backends/core/strings.h"
#include "tests/backends/contraction/program_evaluator.h"
#include "tests/backends/contraction/test_networks.h"
#include "tests/support/naive_einsum.h"

namespace tenon {
namespace {

using contraction::Expression;
using contraction::LoweringOptions;
using contraction::Path;
using contraction::Program;
using testing::Element;

std::string Describe(const Network& network, const Path& path, const std::vector<int>& sliced,
                     const Expression& expression) {
  std::string text;
  for (const auto& input : network.inputs) {
    for (const std::string& name : input) text += name + StrCat(":", network.sizes.at(name), " ");
    text += ", ";
  }
  text += "-> ";
  for (const std::string& name : network.output) text += name + " ";
  for (const auto& [a, b] : path.pairs) text += StrCat("(", a, ",", b, ")");
  text += " sliced ";
  for (const int index : sliced) text += expression.names[index] + " ";
  return text;
}

bool StridesDescend(const tenon_mode* modes, int count, int64_t tenon_mode::*stride) {
  return std::is_sorted(modes, modes + count, [&](const tenon_mode& x, const tenon_mode& y) {
    return x.*stride > y.*stride;
  });
}

bool CanFuse(const tenon_mode& outer, const tenon_mode& inner) {
  return outer.stride_a == inner.extent * inner.stride_a &&
         outer.stride_b == inner.extent * inner.stride_b &&
         outer.stride_c == inner.extent * inner.stride_c;
}

// What abi.h says of every step, beside its result.
void CheckStepForm(const tenon_program& program, const tenon_step& step) {
  const tenon_mode* batch = step.modes;
  const tenon_mode* m = batch + step.n_batch;
  const tenon_mode* n = m + step.n_m;
  const tenon_mode* k = n + step.n_n;
  for (const auto& [modes, count] : {std::pair(batch, step.n_batch), std::pair(m, step.n_m),
                                     std::pair(n, step.n_n), std::pair(k, step.n_k)}) {
    EXPECT_TRUE(
        StridesDescend(modes, count, modes == k ? &tenon_mode::stride_a : &tenon_mode::stride_c));
    for (int i = 0; i < count; ++i) {
      EXPECT_NE(modes[i].extent, 1);
      EXPECT_FALSE(i > 0 && CanFuse(modes[i - 1], modes[i]));
    }
  }
  if (step.kind == TENON_STEP_UNARY) {
    EXPECT_EQ(step.n_batch + step.n_n, 0);
    EXPECT_EQ(step.b.space, 0);
  }
  EXPECT_EQ(step.c.n_slice_terms, 0);
  EXPECT_TRUE(step.phase == TENON_PHASE_SLICE || step.level == 0);
  const int64_t alignment = 64 / DTypeSize(static_cast<DType>(program.dtype));
  EXPECT_EQ(step.c.offset % alignment, 0);
}

// Every result is overwritten or consumed once; phases come in order; one step writes the result.
void CheckProgramForm(const Program& program) {
  const tenon_program& descriptor = program.descriptor();
  int last_phase = TENON_PHASE_CONSTANT;
  for (int i = 0; i < descriptor.n_steps; ++i) {
    const tenon_step& step = descriptor.steps[i];
    CheckStepForm(descriptor, step);
    EXPECT_GE(step.phase, last_phase);
    last_phase = step.phase;
    EXPECT_EQ(step.c.space == TENON_SPACE_RESULT, i + 1 == descriptor.n_steps);
  }
  EXPECT_EQ(descriptor.steps[descriptor.n_steps - 1].level, descriptor.n_sliced);
  EXPECT_EQ(descriptor.struct_size, sizeof(tenon_program));
}

class RandomLowering : public ::testing::TestWithParam<int> {};

TEST_P(RandomLowering, GivesTheSumOverTheJointSpace) {
  std::mt19937_64 random(GetParam());
  for (int repeat = 0; repeat < 100; ++repeat) {
    const Network network = testing::RandomNetwork(random);
    const Expression expression = testing::ExpressionOf(network);
    const auto operands = testing::IntegerOperands(network, random);
    const std::vector<Element> expected = testing::NaiveEinsum(network, operands);
    for (int variant = 0; variant < 4; ++variant) {
      const Path path = variant == 0 ? contraction::GreedyPath(expression)
                                     : testing::RandomPath(network.inputs.size(), random);
      const std::vector<int> sliced =
          variant == 1 ? std::vector<int>() : testing::RandomSliced(expression, random);
      SCOPED_TRACE(Describe(network, path, sliced, expression));
      LoweringOptions options;
      options.dtype = variant % 2 ? DType::kFloat64 : DType::kFloat32;
      if (variant > 1) options.intermediate_bytes = variant == 2 ? 1 : random() % 2048;
      const auto program = contraction::LowerProgram(expression, path, sliced, options);
      ASSERT_TRUE(program.ok()) << program.status();
      CheckProgramForm(**program);
      testing::ProgramEvaluator evaluator(**program);
      evaluator.Begin(operands);
      evaluator.BindSet(operands);
      ASSERT_EQ(evaluator.RunGroups(), expected);
      EXPECT_EQ(evaluator.flops(), (*program)->total_flops());
      if (HasFailure()) return;
    }
  }
}

// Constant results serve all sets; set results and what depends on them are made anew.
TEST_P(RandomLowering, VaryingOperandsReachTheResultOfTheirSet) {
  std::mt19937_64 random(1000 + GetParam());
  for (int repeat = 0; repeat < 60; ++repeat) {
    const Network network = testing::RandomNetwork(random);
    const Expression expression = testing::ExpressionOf(network);
    const Path path = testing::RandomPath(network.inputs.size(), random);
    const std::vector<int> sliced = testing::RandomSliced(expression, random);
    SCOPED_TRACE(Describe(network, path, sliced, expression));
    LoweringOptions options;
    for (size_t k = 0; k < network.inputs.size(); ++k) options.varying.push_back(random() % 2);
    options.intermediate_bytes = random() % 2;
    const auto program = contraction::LowerProgram(expression, path, sliced, options);
    ASSERT_TRUE(program.ok()) << program.status();
    auto operands = testing::IntegerOperands(network, random);
    auto unbound = operands;
    for (size_t k = 0; k < operands.size(); ++k) {
      if (options.varying[k]) std::fill(unbound[k].begin(), unbound[k].end(), std::nan(""));
    }
    testing::ProgramEvaluator evaluator(**program);
    evaluator.Begin(unbound);
    for (int set = 0; set < 2; ++set) {
      const auto fresh = testing::IntegerOperands(network, random);
      for (size_t k = 0; k < operands.size(); ++k) {
        if (options.varying[k]) operands[k] = fresh[k];
      }
      evaluator.BindSet(operands);
      ASSERT_EQ(evaluator.RunGroups(), testing::NaiveEinsum(network, operands));
    }
  }
}

// Group ranges of more than one group need many slices: chains with all bonds sliced.
TEST(LoweringGroups, ManyGroupsGiveTheSum) {
  std::mt19937_64 random(5);
  Network network;
  for (int k = 0; k < 10; ++k) network.inputs.push_back({StrCat("b", k), StrCat("b", k + 1)});
  for (int k = 0; k <= 10; ++k) network.sizes[StrCat("b", k)] = 2;
  network.output = {"b10"};
  const Expression expression = testing::ExpressionOf(network);
  const auto operands = testing::IntegerOperands(network, random);
  const std::vector<Element> expected = testing::NaiveEinsum(network, operands);
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::vector<int> sliced;
    for (int index = 0; index <= 10; ++index) sliced.push_back(index);
    std::shuffle(sliced.begin(), sliced.end(), random);
    const Path path = testing::RandomPath(network.inputs.size(), random);
    const auto program = contraction::LowerProgram(expression, path, sliced, {});
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ((*program)->descriptor().n_blocks, 2);
    EXPECT_EQ((*program)->descriptor().slices_per_block, 1024);
    EXPECT_EQ((*program)->groups_per_block(), 256);
    testing::ProgramEvaluator evaluator(**program);
    evaluator.Begin(operands);
    evaluator.BindSet(operands);
    EXPECT_EQ(evaluator.RunGroups(), expected);
    EXPECT_EQ(evaluator.flops(), (*program)->total_flops());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomLowering, ::testing::Range(0, 12));

}  // namespace
}  // namespace tenon
