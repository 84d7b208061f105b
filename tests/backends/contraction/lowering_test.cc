// Single properties of lowered programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/contraction/program.h"
#include "backends/core/error.h"
#include "tests/backends/contraction/program_evaluator.h"
#include "tests/backends/contraction/test_networks.h"

namespace tenon::contraction {
namespace {

using ::testing::ElementsAre;
using testing::ExpressionOf;
using testing::NetworkOf;

std::shared_ptr<const Program> Lower(const Network& network, const Path& path,
                                     const std::vector<int>& sliced = {},
                                     const LoweringOptions& options = {}) {
  const auto program = LowerProgram(ExpressionOf(network), path, sliced, options);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

std::vector<std::vector<int64_t>> ModesOf(const tenon_step& step) {
  std::vector<std::vector<int64_t>> modes;
  for (int i = 0; i < step.n_batch + step.n_m + step.n_n + step.n_k; ++i) {
    const tenon_mode& mode = step.modes[i];
    modes.push_back({mode.extent, mode.stride_a, mode.stride_b, mode.stride_c});
  }
  return modes;
}

TEST(LowerProgram, MatrixProductIsOneStep) {
  const auto program =
      Lower(NetworkOf({"ij", "jk"}, "ik", {{"i", 2}, {"j", 3}, {"k", 4}}), Path{{{0, 1}}});
  const tenon_program& descriptor = program->descriptor();
  ASSERT_EQ(descriptor.n_steps, 1);
  const tenon_step& step = descriptor.steps[0];
  EXPECT_EQ(step.kind, TENON_STEP_CONTRACT);
  EXPECT_EQ(step.phase, TENON_PHASE_SLICE);
  EXPECT_EQ(step.c.space, TENON_SPACE_RESULT);
  EXPECT_THAT(ModesOf(step), ElementsAre(ElementsAre(2, 3, 0, 4), ElementsAre(4, 0, 1, 1),
                                         ElementsAre(3, 1, 4, 0)));
  EXPECT_EQ(descriptor.arena_elements + descriptor.constant_elements, 0);
  EXPECT_EQ(program->total_flops(), 2 * 24);
  EXPECT_EQ(program->hoisted_flops(), 0);
  EXPECT_EQ(program->largest_intermediate_elements(), 8);
}

TEST(LowerProgram, TransposedOutputIsWrittenInPlace) {
  const auto program =
      Lower(NetworkOf({"ij", "jk"}, "ki", {{"i", 2}, {"j", 3}, {"k", 4}}), Path{{{0, 1}}});
  EXPECT_EQ(program->descriptor().n_steps, 1);
  EXPECT_THAT(
      ModesOf(program->descriptor().steps[0]),
      ElementsAre(ElementsAre(2, 3, 0, 1), ElementsAre(4, 0, 1, 2), ElementsAre(3, 1, 4, 0)));
}

TEST(LowerProgram, DiagonalsAreViews) {
  const auto program = Lower(NetworkOf({"iiij", "i"}, "j", {{"i", 3}, {"j", 2}}), Path{{{0, 1}}});
  ASSERT_EQ(program->descriptor().n_steps, 1);
  EXPECT_THAT(ModesOf(program->descriptor().steps[0]),
              ElementsAre(ElementsAre(2, 1, 0, 1), ElementsAre(3, 18 + 6 + 2, 1, 0)));
}

TEST(LowerProgram, TracesAndPrivateIndicesAreSummedFirst) {
  const auto program =
      Lower(NetworkOf({"iijp", "j"}, "", {{"i", 3}, {"j", 2}, {"p", 5}}), Path{{{1, 0}}});
  const tenon_program& descriptor = program->descriptor();
  ASSERT_EQ(descriptor.n_steps, 2);
  EXPECT_EQ(descriptor.steps[0].kind, TENON_STEP_UNARY);
  EXPECT_EQ(descriptor.steps[0].phase, TENON_PHASE_CONSTANT);
  EXPECT_EQ(descriptor.steps[0].c.space, TENON_SPACE_CONSTANT);
  EXPECT_THAT(
      ModesOf(descriptor.steps[0]),
      ElementsAre(ElementsAre(2, 5, 0, 1), ElementsAre(3, 40, 0, 0), ElementsAre(5, 1, 0, 0)));
  EXPECT_EQ(program->hoisted_flops(), 30);
  EXPECT_EQ(program->total_flops(), 30 + 2 * 2);
}

TEST(LowerProgram, SingleOperandIsCopied) {
  const auto program = Lower(NetworkOf({"ab"}, "ab", {{"a", 2}, {"b", 3}}), Path{});
  ASSERT_EQ(program->descriptor().n_steps, 1);
  EXPECT_EQ(program->descriptor().steps[0].kind, TENON_STEP_UNARY);
  EXPECT_THAT(ModesOf(program->descriptor().steps[0]), ElementsAre(ElementsAre(6, 1, 0, 1)));
}

TEST(LowerProgram, PhasesFollowWhatVaries) {
  LoweringOptions options;
  options.varying = {false, false, true, false, false};
  const auto program = Lower(NetworkOf({"ab", "bc", "cd", "de", "ea"}, "",
                                       {{"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}, {"e", 2}}),
                             Path{{{0, 1}, {2, 5}, {3, 6}, {4, 7}}}, {/*e=*/4}, options);
  std::vector<std::pair<int, int>> phases;
  for (int i = 0; i < program->descriptor().n_steps; ++i) {
    phases.emplace_back(program->descriptor().steps[i].phase, program->descriptor().steps[i].level);
  }
  using ::testing::Pair;
  EXPECT_THAT(phases, ElementsAre(Pair(0, 0), Pair(1, 0), Pair(2, 1), Pair(2, 1)));
  EXPECT_EQ(program->descriptor().steps[0].c.space, TENON_SPACE_CONSTANT);
  EXPECT_EQ(program->descriptor().steps[1].c.space, TENON_SPACE_SET);
  EXPECT_EQ(program->hoisted_flops(), 2 * 16);
}

// Without work to keep, summed loops stand by number.
TEST(LowerProgram, OutputLoopsStandFirstInOutputOrder) {
  const Network network =
      NetworkOf({"abcd", "ce"}, "dab", {{"a", 2}, {"b", 3}, {"c", 4}, {"d", 5}, {"e", 6}});
  const auto program = Lower(network, Path{{{0, 1}}}, {/*e=*/4, /*a=*/0, /*c=*/2, /*d=*/3});
  EXPECT_THAT(program->sliced_order(), ElementsAre(3, 0, 2, 4));
  const tenon_program& descriptor = program->descriptor();
  ASSERT_EQ(descriptor.n_sliced, 4);
  std::vector<std::vector<int64_t>> loops;
  for (int i = 0; i < 4; ++i) {
    loops.push_back({descriptor.sliced[i].extent, descriptor.sliced[i].is_output,
                     descriptor.sliced[i].result_stride});
  }
  EXPECT_THAT(loops, ElementsAre(ElementsAre(5, 1, 6), ElementsAre(2, 1, 3), ElementsAre(4, 0, 0),
                                 ElementsAre(6, 0, 0)));
  EXPECT_EQ(descriptor.n_blocks, 10);
  EXPECT_EQ(descriptor.slices_per_block, 24);
  EXPECT_EQ(descriptor.block_elements, 3);
  EXPECT_THAT(program->block_shape(), ElementsAre(3));
  EXPECT_THAT(program->block_strides(), ElementsAre(1));
  EXPECT_THAT(program->output_spec().shape, ElementsAre(5, 2, 3));
  EXPECT_EQ(program->BlockOffset(0), 0);
  EXPECT_EQ(program->BlockOffset(3), 6 + 3);  // d = 1, a = 1
  EXPECT_EQ(program->BlockOffset(9), 4 * 6 + 3);
  EXPECT_EQ(program->n_groups(), 10 * program->groups_per_block());
}

TEST(LowerProgram, SlicedDiagonalsAddTheirStrides) {
  const auto program =
      Lower(NetworkOf({"iji", "j"}, "", {{"i", 3}, {"j", 2}}), Path{{{0, 1}}}, {/*i=*/0});
  const tenon_tensor_ref& a = program->descriptor().steps[0].a;
  ASSERT_EQ(a.n_slice_terms, 1);
  EXPECT_EQ(a.slice_terms[0].stride, 6 + 1);
  EXPECT_EQ(a.extent_elements, 18);
  EXPECT_EQ(program->descriptor().steps[0].b.n_slice_terms, 0);
}

TEST(LowerProgram, SlicedIndicesWithoutValuesAreNoLoops) {
  const auto program = Lower(NetworkOf({"ij", "jk"}, "ik", {{"i", 3}, {"j", 0}, {"k", 4}}),
                             Path{{{0, 1}}}, {/*j=*/1, /*k=*/2});
  EXPECT_EQ(program->descriptor().n_sliced, 1);
  EXPECT_EQ(program->descriptor().n_blocks, 4);
  EXPECT_EQ(program->descriptor().slices_per_block, 1);
  EXPECT_THAT(program->sliced_order(), ElementsAre(2, 1));
  testing::ProgramEvaluator evaluator(*program);
  evaluator.Begin({{}, {}});
  evaluator.BindSet({{}, {}});
  EXPECT_EQ(evaluator.RunGroups(), std::vector<testing::Element>(12));
}

// In a ring cut at one bond, everything but the last products can be kept or hoisted.
TEST(LowerProgram, KeptTensorsSaveFlops) {
  const Network ring =
      NetworkOf({"ab", "bc", "cd", "da"}, "", {{"a", 4}, {"b", 4}, {"c", 4}, {"d", 4}});
  const Path path{{{0, 1}, {2, 3}, {4, 5}}};
  const auto program = Lower(ring, path, {/*b=*/1, /*d=*/3});
  // ac (level 1: 4 times), ca (level 2: 16 times), dot (16 times), in groups of at least one run.
  EXPECT_EQ(program->groups_per_block(), 16);
  EXPECT_EQ(program->total_flops(), 16 * (2 * 16 + 2 * 16 + 2 * 16));
  // Many slices per group: the outer loop's step runs once per group of whole turns.
  const Network wide =
      NetworkOf({"ab", "bc", "cd", "da"}, "", {{"a", 2}, {"b", 64}, {"c", 2}, {"d", 16}});
  const auto nested = Lower(wide, path, {/*b=*/1, /*d=*/3});
  EXPECT_EQ(nested->groups_per_block(), 64);
  EXPECT_EQ(nested->group_slices(), 16);
  EXPECT_EQ(nested->total_flops(), 64 * 2 * 4 + 1024 * (2 * 4 + 2 * 4));
}

TEST(LowerProgram, ComplexOperationsCountEight) {
  LoweringOptions options;
  options.dtype = DType::kComplex64;
  const auto program = Lower(NetworkOf({"ij", "jp"}, "i", {{"i", 2}, {"j", 3}, {"p", 4}}),
                             Path{{{0, 1}}}, {}, options);
  EXPECT_EQ(program->total_flops(), 2 * 12 + 8 * 6);
}

void ExpectRefused(const Network& network, const Path& path, const std::vector<int>& sliced,
                   const LoweringOptions& options, Reason reason) {
  const auto program = LowerProgram(ExpressionOf(network), path, sliced, options);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(ReasonName(GetErrorDetails(program.status()).reason), ReasonName(reason));
}

TEST(LowerProgram, RefusesTensorsBeyond63Bits) {
  const int64_t large = int64_t{1} << 31;
  const Network pairs = NetworkOf({"a", "b", "a", "b"}, "", {{"a", large}, {"b", large / 4}});
  const Path outer{{{0, 1}, {2, 4}, {3, 5}}};
  ExpectRefused(pairs, outer, {}, {}, Reason::kOverflow);  // 2^63 bytes
  EXPECT_TRUE(LowerProgram(ExpressionOf(pairs), outer, {0}, {}).ok());
  EXPECT_TRUE(LowerProgram(ExpressionOf(pairs), Path{{{0, 2}, {1, 3}, {4, 5}}}, {}, {}).ok());
  LoweringOptions complex;
  complex.dtype = DType::kComplex128;
  ExpectRefused(NetworkOf({"ab"}, "", {{"a", large}, {"b", large / 4}}), Path{}, {}, complex,
                Reason::kOverflow);  // the operand
  ExpectRefused(NetworkOf({"a", "b"}, "ab", {{"a", large}, {"b", large / 4}}), Path{{{0, 1}}}, {},
                complex, Reason::kOverflow);  // the result
}

TEST(LowerProgram, RefusesTooManySlices) {
  Network network;
  for (int k = 0; k < 70; ++k) {
    network.inputs.push_back({StrCat("x", k)});
    network.sizes[StrCat("x", k)] = 2;
  }
  const Expression expression = ExpressionOf(network);
  std::vector<int> sliced;
  for (int index = 0; index < 70; ++index) sliced.push_back(index);
  const auto program = LowerProgram(expression, GreedyPath(expression), sliced, {});
  EXPECT_EQ(GetErrorDetails(program.status()).reason, Reason::kOverflow);
}

TEST(LowerProgram, RefusesUncheckedArguments) {
  const Network network = NetworkOf({"ij", "jk", "k"}, "i", {{"i", 2}, {"j", 2}, {"k", 2}});
  LoweringOptions integer;
  integer.dtype = DType::kInt32;
  const Path path{{{0, 1}, {2, 3}}};
  ExpectRefused(network, path, {}, integer, Reason::kUnsupportedDtype);
  ExpectRefused(network, Path{{{0, 1}}}, {}, {}, Reason::kBadPath);
  ExpectRefused(network, Path{{{0, 1}, {1, 3}}}, {}, {}, Reason::kBadPath);
  ExpectRefused(network, Path{{{0, 4}, {1, 3}}}, {}, {}, Reason::kBadPath);
  ExpectRefused(network, path, {0, 0}, {}, Reason::kBadSlice);
  ExpectRefused(network, path, {3}, {}, Reason::kBadSlice);
  LoweringOptions varying;
  varying.varying = {true};
  ExpectRefused(network, path, {}, varying, Reason::kBadExpression);
}

}  // namespace
}  // namespace tenon::contraction
