#include "tests/backends/conformance/conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "backends/core/error.h"
#include "oneapi/tbb/global_control.h"
#include "tests/backends/conformance/provider_run.h"
#include "tests/backends/conformance/random_step.h"

namespace tenon::testing {
namespace {

constexpr tenon_mode M(int64_t extent, int64_t a, int64_t b, int64_t c) {
  return {extent, a, b, c};
}

class ConformanceTest : public ::testing::TestWithParam<int32_t> {
 protected:
  void SetUp() override {
    provider_ = MakeProvider(Subject().api, Subject().options);
    const tenon_provider_info& info = provider_->info();
    if (info.step_kinds == 0) GTEST_SKIP() << info.name << " does no contraction";
    if (!provider_->CanContract(dtype())) GTEST_SKIP() << info.name << " has another type";
  }
  int32_t dtype() const { return GetParam(); }
  // Of up to `wanted`, those that make sense at once.
  int Workers(int wanted) const { return std::min(wanted, provider_->info().max_workers); }
  // Against the oracle.
  void CheckStep(const RandomStep& step, uint64_t seed) {
    const tenon_program& program = step.builder->Build();
    const auto operands = RandomOperands(program, seed);
    const auto compiled = CompileOrDie(*provider_, program);
    const auto bytes = RunGroup(*compiled, program, operands);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    ExpectOracle(program, operands, *bytes, step.terms);
  }
  double OperationsPerProduct() const { return IsComplexDType(dtype()) ? 8 : 2; }

  std::shared_ptr<plugin::Provider> provider_;
};

// A program with everything: constant and set steps, kept tensors, output and summed slices.
//   operands: 0 X[i,j], 1 Y[j,k], 2 V[k,l] (varies), 3 S[o,s,l,p], 4 T[t,p,q]
//   constant: XY[i,k] = X Y;  set: XYV[i,l] = XY V
//   level 2:  U[i,p] = XYV S(o,s);  level 3: R[i,q] += U T(t)
struct FullProgram {
  static constexpr int64_t kI = 5, kJ = 4, kK = 3, kL = 6, kP = 7, kQ = 2, kO = 2, kS = 3, kT = 4;
  explicit FullProgram(int32_t dtype) : builder(dtype) {
    const int o = builder.AddSliced(kO, true);
    const int s = builder.AddSliced(kS, false);
    const int t = builder.AddSliced(kT, false);
    builder.AddContract(TENON_PHASE_CONSTANT, 0, builder.Operand(0), builder.Operand(1),
                        ProgramBuilder::In(TENON_SPACE_CONSTANT, 1), {}, {M(kI, kJ, 0, kK)},
                        {M(kK, 0, 1, 1)}, {M(kJ, 1, kK, 0)});
    builder.AddContract(TENON_PHASE_SET, 0, ProgramBuilder::In(TENON_SPACE_CONSTANT, 1),
                        builder.Operand(2), ProgramBuilder::In(TENON_SPACE_SET), {},
                        {M(kI, kK, 0, kL)}, {M(kL, 0, 1, 1)}, {M(kK, 1, kL, 0)});
    builder.AddContract(TENON_PHASE_SLICE, 2, ProgramBuilder::In(TENON_SPACE_SET),
                        builder.Operand(3, {{o, 0, kS * kL * kP}, {s, 0, kL * kP}}),
                        ProgramBuilder::In(TENON_SPACE_ARENA, 3), {}, {M(kI, kL, 0, kP)},
                        {M(kP, 0, 1, 1)}, {M(kL, 1, kP, 0)});
    builder.AddContract(TENON_PHASE_SLICE, 3, ProgramBuilder::In(TENON_SPACE_ARENA, 3),
                        builder.Operand(4, {{t, 0, kP * kQ}}),
                        ProgramBuilder::In(TENON_SPACE_RESULT), {}, {M(kI, kP, 0, kQ)},
                        {M(kQ, 0, 1, 1)}, {M(kP, 1, kQ, 0)});
  }
  static constexpr int64_t kTerms = kJ + kK + kL + kP * kS * kT;
  ProgramBuilder builder;
};

TEST_P(ConformanceTest, DescribesItself) {
  const tenon_provider_info& info = provider_->info();
  EXPECT_NE(std::string(info.name), "");
  EXPECT_NE(std::string(info.kind), "");
  EXPECT_NE(std::string(info.description), "");
  EXPECT_EQ(info.exact, 1);
  EXPECT_GE(info.max_workers, 1);
  EXPECT_FALSE(provider_->CanContract(TENON_DTYPE_INT32));
  EXPECT_GE(info.cold_seconds, 0);
  EXPECT_EQ(info.resource_dtypes & ~(1u << TENON_DTYPE_FLOAT32 | 1u << TENON_DTYPE_FLOAT64), 0u);
}

TEST_P(ConformanceTest, RandomContractionsMatchNestedLoops) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(round);
    CheckStep(RandomContract(dtype(), random, round % 2 == 0 ? 4 : 7), round);
  }
}

TEST_P(ConformanceTest, RandomUnaryStepsMatchNestedLoops) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(round);
    CheckStep(RandomUnary(dtype(), random, round % 2 == 0 ? 4 : 9), round);
  }
}

TEST_P(ConformanceTest, SlicesReuseKeptTensors) {
  FullProgram full(dtype());
  const tenon_program& program = full.builder.Build();
  const auto operands = RandomOperands(program, 1);
  const int workers = Workers(2);
  const auto compiled = CompileOrDie(*provider_, program, workers);
  for (int64_t block = 0; block < program.n_blocks; ++block) {
    for (const auto& [first, last] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 12}, {0, 1}, {3, 4}, {2, 7}, {5, 12}, {11, 12}}) {
      const RunOptions options = {.workers = workers,
                                  .worker = static_cast<int>(block) % workers,
                                  .block = block,
                                  .first_slice = first,
                                  .last_slice = last};
      const auto bytes = RunGroup(*compiled, program, operands, options);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      ExpectOracle(program, operands, *bytes, FullProgram::kTerms, options);
    }
  }
}

TEST_P(ConformanceTest, StatisticsCountWhatWasDone) {
  FullProgram full(dtype());
  const tenon_program& program = full.builder.Build();
  const auto operands = RandomOperands(program, 1);
  const auto compiled = CompileOrDie(*provider_, program);
  plugin::HostMemory memory(INT64_MAX);
  const tenon_execution_options options = {sizeof(options), 1, 1, 0, nullptr};
  const auto execution = compiled->Begin(memory, Pointers(operands), options);
  ASSERT_TRUE(execution.ok()) << execution.status();
  ASSERT_TRUE((*execution)->BindSet(Pointers(operands)).ok());
  std::vector<char> bytes(program.block_elements * ElementBytes(dtype()));
  // Slices 2..6 are (s,t) = (0,2), (0,3), (1,0), (1,1), (1,2): the kept tensor is formed twice.
  ASSERT_TRUE((*execution)->RunGroup(0, 1, 2, 7, bytes.data()).ok());
  using F = FullProgram;
  const double products = F::kI * F::kJ * F::kK + F::kI * F::kK * F::kL +
                          2 * F::kI * F::kL * F::kP + 5 * F::kI * F::kP * F::kQ;
  const auto statistics = (*execution)->Statistics();
  ASSERT_TRUE(statistics.ok());
  EXPECT_EQ(statistics->flops, products * OperationsPerProduct());
  EXPECT_EQ(statistics->slices, 5);
  if (statistics->timing_scope == 3) {
    EXPECT_LT(statistics->execution_seconds, 0);
  } else {
    EXPECT_TRUE(statistics->timing_scope == 1 || statistics->timing_scope == 2);
    EXPECT_GT(statistics->execution_seconds, 0);
  }
  EXPECT_GE(statistics->transfer_in_bytes, 0);
}

TEST_P(ConformanceTest, OperandSetsAreBoundAnew) {
  FullProgram full(dtype());
  const tenon_program& program = full.builder.Build();
  std::vector<TestTensor> first = RandomOperands(program, 1);
  std::vector<TestTensor> second = first;
  std::mt19937_64 random(99);
  second[2] = RandomTensor(dtype(), program.operand_elements[2], random);
  const auto compiled = CompileOrDie(*provider_, program);
  plugin::HostMemory memory(INT64_MAX);
  const tenon_execution_options options = {sizeof(options), 1, 1, 0, nullptr};
  std::vector<const void*> at_begin = Pointers(first);
  at_begin[2] = nullptr;  // not known yet
  const auto execution = compiled->Begin(memory, at_begin, options);
  ASSERT_TRUE(execution.ok()) << execution.status();
  for (const std::vector<TestTensor>* operands : {&first, &second}) {
    ASSERT_TRUE((*execution)->BindSet(Pointers(*operands)).ok());
    std::vector<char> bytes(program.block_elements * ElementBytes(dtype()));
    ASSERT_TRUE((*execution)->RunGroup(0, 0, 0, 12, bytes.data()).ok());
    ExpectOracle(program, *operands, bytes, FullProgram::kTerms);
  }
}

TEST_P(ConformanceTest, WorkersRunAtOnce) {
  FullProgram full(dtype());
  const tenon_program& program = full.builder.Build();
  const auto operands = RandomOperands(program, 3);
  const int workers = Workers(4);
  const auto compiled = CompileOrDie(*provider_, program, workers);
  plugin::HostMemory memory(INT64_MAX);
  const tenon_execution_options options = {sizeof(options), workers, 1, 0, nullptr};
  const auto execution = compiled->Begin(memory, Pointers(operands), options);
  ASSERT_TRUE(execution.ok()) << execution.status();
  ASSERT_TRUE((*execution)->BindSet(Pointers(operands)).ok());
  std::vector<std::vector<char>> sums(
      workers, std::vector<char>(program.block_elements * ElementBytes(dtype())));
  std::vector<std::thread> threads;
  for (int worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        EXPECT_TRUE(
            (*execution)
                ->RunGroup(worker, worker % 2, 3 * worker, 3 * worker + 3, sums[worker].data())
                .ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int worker = 0; worker < workers; ++worker) {
    const RunOptions run = {
        .block = worker % 2, .first_slice = 3 * worker, .last_slice = 3 * worker + 3};
    ExpectOracle(program, operands, sums[worker], FullProgram::kTerms, run);
  }
}

TEST_P(ConformanceTest, MemoryStaysWithinThePlanAndComesBack) {
  FullProgram full(dtype());
  const tenon_program& program = full.builder.Build();
  const auto operands = RandomOperands(program, 1);
  for (const auto& [workers, threads] : std::vector<std::pair<int, int>>{{1, 1}, {3, 1}, {2, 3}}) {
    if (Workers(workers) < workers) continue;
    const auto compiled = CompileOrDie(*provider_, program, workers * threads);
    const int64_t element = ElementBytes(dtype());
    const int64_t plan =
        (program.constant_elements + program.set_elements) * element +
        workers * (program.arena_elements * element + compiled->info().worker_bytes +
                   (threads - 1) * compiled->info().thread_bytes) +
        compiled->info().shared_bytes;
    const tenon_execution_options options = {sizeof(options), workers, threads, 0, nullptr};
    plugin::HostMemory memory(plan);
    {
      const auto execution = compiled->Begin(memory, Pointers(operands), options);
      ASSERT_TRUE(execution.ok()) << execution.status();
      EXPECT_GT(memory.current_bytes(), 0);
    }
    EXPECT_EQ(memory.current_bytes(), 0);
    EXPECT_LE(memory.peak_bytes(), plan);
    plugin::HostMemory too_small(memory.peak_bytes() - 1);
    const auto refused = compiled->Begin(too_small, Pointers(operands), options);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(GetErrorDetails(refused.status()).reason, Reason::kExceedsMemoryBudget);
    EXPECT_EQ(too_small.current_bytes(), 0);
  }
}

TEST_P(ConformanceTest, CancellationStopsEveryCall) {
  FullProgram full(dtype());
  const tenon_program& program = full.builder.Build();
  const auto operands = RandomOperands(program, 1);
  const auto compiled = CompileOrDie(*provider_, program);
  plugin::HostMemory memory(INT64_MAX);
  int32_t cancel = 1;
  const tenon_execution_options options = {sizeof(options), 1, 1, 0, &cancel};
  const auto refused = compiled->Begin(memory, Pointers(operands), options);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(GetErrorDetails(refused.status()).reason, Reason::kClientCancelled);

  cancel = 0;
  const auto execution = compiled->Begin(memory, Pointers(operands), options);
  ASSERT_TRUE(execution.ok()) << execution.status();
  cancel = 1;
  EXPECT_EQ((*execution)->BindSet(Pointers(operands)).code(), absl::StatusCode::kCancelled);
  cancel = 0;
  ASSERT_TRUE((*execution)->BindSet(Pointers(operands)).ok());
  cancel = 1;
  std::vector<char> bytes(program.block_elements * ElementBytes(dtype()));
  EXPECT_EQ((*execution)->RunGroup(0, 0, 0, 12, bytes.data()).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ((*execution)->Statistics()->slices, 0);
}

// Steps with an extent of 0: no terms give zeros, no results touch nothing.
TEST_P(ConformanceTest, EmptyExtents) {
  for (const bool is_unary : {false, true}) {
    ProgramBuilder no_terms(dtype());
    if (is_unary) {
      no_terms.AddUnary(TENON_PHASE_SLICE, 0, no_terms.Operand(0),
                        ProgramBuilder::In(TENON_SPACE_RESULT), {M(3, 1, 0, 2)}, {M(0, 3, 0, 0)});
    } else {
      no_terms.AddContract(TENON_PHASE_SLICE, 0, no_terms.Operand(0), no_terms.Operand(1),
                           ProgramBuilder::In(TENON_SPACE_RESULT), {}, {M(3, 1, 0, 2)}, {},
                           {M(0, 3, 1, 0)});
    }
    const tenon_program& program = no_terms.Build();
    const auto operands = RandomOperands(program, 1);
    const auto compiled = CompileOrDie(*provider_, program);
    const auto bytes = RunGroup(*compiled, program, operands);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const std::vector<Value> values = ReadValues(dtype(), bytes->data(), program.block_elements);
    ASSERT_EQ(values.size(), 5u);
    for (const int i : {0, 2, 4}) EXPECT_EQ(values[i], Value(0));
    for (const int i : {1, 3}) EXPECT_TRUE(std::isnan(values[i].real()));
  }
  ProgramBuilder no_results(dtype());
  no_results.AddContract(TENON_PHASE_SLICE, 0, no_results.Operand(0), no_results.Operand(1),
                         ProgramBuilder::In(TENON_SPACE_RESULT), {}, {M(0, 1, 0, 1)},
                         {M(4, 0, 1, 0)}, {M(2, 1, 1, 0)});
  const tenon_program& program = no_results.Build();
  const auto operands = RandomOperands(program, 1);
  const auto compiled = CompileOrDie(*provider_, program);
  const auto bytes = RunGroup(*compiled, program, operands);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_TRUE(std::isnan(ReadValues(dtype(), bytes->data(), 1)[0].real()));
}

TEST_P(ConformanceTest, ScalarsWithoutLoops) {
  ProgramBuilder builder(dtype());
  builder.AddContract(TENON_PHASE_SLICE, 0, builder.Operand(0), builder.Operand(1),
                      ProgramBuilder::In(TENON_SPACE_RESULT), {}, {}, {}, {});
  const tenon_program& program = builder.Build();
  const auto operands = RandomOperands(program, 1);
  const auto compiled = CompileOrDie(*provider_, program);
  const auto bytes = RunGroup(*compiled, program, operands);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  ExpectOracle(program, operands, *bytes, 1);
}

// Sums that cancel: in single precision the error would be far larger than one rounding.
TEST_P(ConformanceTest, AccumulateDoubleSumsInDouble) {
  constexpr int64_t kTerms = 20000, kRows = 3;
  for (const bool is_unary : {false, true}) {
    ProgramBuilder builder(dtype());
    builder.set_accumulate_double(true);
    if (is_unary) {
      builder.AddUnary(TENON_PHASE_SLICE, 0, builder.Operand(0),
                       ProgramBuilder::In(TENON_SPACE_RESULT), {M(kRows, kTerms, 0, 1)},
                       {M(kTerms, 1, 0, 0)});
    } else {
      builder.AddContract(TENON_PHASE_SLICE, 0, builder.Operand(0), builder.Operand(1),
                          ProgramBuilder::In(TENON_SPACE_RESULT), {}, {M(kRows, kTerms, 0, 1)}, {},
                          {M(kTerms, 1, 1, 0)});
    }
    const tenon_program& program = builder.Build();
    const auto operands = RandomOperands(program, 5);
    const auto compiled = CompileOrDie(*provider_, program);
    const auto bytes = RunGroup(*compiled, program, operands);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const OracleResult expected = RunOracle(program, operands, 0, 0, 1);
    const auto values = ReadValues(dtype(), bytes->data(), kRows);
    for (int64_t i = 0; i < kRows; ++i) {
      const double rounding = EpsilonOf(dtype()) * std::abs(expected.values[i]);
      const double sums = 1e-16 * static_cast<double>(kTerms) * expected.magnitudes[i];
      EXPECT_LE(std::abs(values[i] - expected.values[i]), rounding + sums);
    }
  }
}

TEST_P(ConformanceTest, ThreadsDoNotChangeBits) {
  const tbb::global_control more_threads_than_cores(tbb::global_control::max_allowed_parallelism,
                                                    8);
  std::mt19937_64 random(21);
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    const RandomStep step = RandomContract(dtype(), random, 12);
    const tenon_program& program = step.builder->Build();
    const auto operands = RandomOperands(program, round);
    const auto compiled = CompileOrDie(*provider_, program, 8);
    const auto one = RunGroup(*compiled, program, operands);
    ASSERT_TRUE(one.ok()) << one.status();
    for (const int threads : {2, 3, 8}) {
      const auto many = RunGroup(*compiled, program, operands, {.threads_per_worker = threads});
      ASSERT_TRUE(many.ok()) << many.status();
      EXPECT_EQ(*many, *one) << threads << " threads";
    }
  }
}

TEST_P(ConformanceTest, FingerprintIsTheProgramsAndTheThreadsDoNotMatter) {
  FullProgram full(dtype());
  tenon_program program = full.builder.Build();
  const std::string one = CompileOrDie(*provider_, program, 1)->FingerprintHex();
  EXPECT_EQ(CompileOrDie(*provider_, program, 8)->FingerprintHex(), one);
  EXPECT_EQ(one.size(), 64u);
  program.fingerprint[0] ^= 1;
  EXPECT_NE(CompileOrDie(*provider_, program, 1)->FingerprintHex(), one);
}

TEST_P(ConformanceTest, RefusesProgramsItCannotRun) {
  FullProgram full(dtype());
  tenon_program program = full.builder.Build();
  const tenon_compile_options options = {sizeof(options), 1, 0, 0};
  program.dtype = TENON_DTYPE_INT32;
  const auto wrong_dtype = provider_->Compile(program, options);
  EXPECT_EQ(GetErrorDetails(wrong_dtype.status()).reason, Reason::kUnsupportedDtype);
  program.dtype = dtype();
  std::vector<tenon_step> steps(program.steps, program.steps + program.n_steps);
  program.steps = steps.data();
  steps[1].kind = 77;
  const auto wrong_kind = provider_->Compile(program, options);
  EXPECT_EQ(GetErrorDetails(wrong_kind.status()).reason, Reason::kUnsupportedByProvider);
}

// Calls that the host's wrapper never makes.
TEST_P(ConformanceTest, TableChecksGroups) {
  FullProgram full(dtype());
  const tenon_program& program = full.builder.Build();
  const auto operands = RandomOperands(program, 1);
  const tenon_provider_api& api = *Subject().api;
  tenon_status status{};
  status.struct_size = sizeof(status);
  tenon_provider* provider = nullptr;
  plugin::HostMemory memory(INT64_MAX);
  ASSERT_EQ(api.create(memory.host(), Subject().options.c_str(), &provider, &status), 0);
  const tenon_compile_options compile_options = {sizeof(compile_options), 1, 0, 0};
  tenon_compiled* compiled = nullptr;
  ASSERT_EQ(api.compile(provider, &program, &compile_options, &compiled, &status), 0);
  tenon_execution_options options = {sizeof(options), 0, 1, 0, nullptr};
  tenon_execution* execution = nullptr;
  const auto pointers = Pointers(operands);
  EXPECT_EQ(api.begin(compiled, memory.host(), pointers.data(), &options, &execution, &status), 3);
  EXPECT_EQ(execution, nullptr);
  options.workers = 1;
  ASSERT_EQ(api.begin(compiled, memory.host(), pointers.data(), &options, &execution, &status), 0);
  ASSERT_EQ(api.bind_set(execution, pointers.data(), &status), 0);
  std::vector<char> bytes(program.block_elements * ElementBytes(dtype()), '\xff');
  // No slices: a sum of nothing.
  ASSERT_EQ(api.run_group(execution, 0, 0, 4, 4, bytes.data(), &status), 0);
  EXPECT_EQ(bytes, std::vector<char>(bytes.size(), 0));
  const std::vector<std::tuple<int, int64_t, int64_t, int64_t>> wrong = {
      {1, 0, 0, 1}, {-1, 0, 0, 1}, {0, 2, 0, 1}, {0, -1, 0, 1},
      {0, 0, 3, 2}, {0, 0, -1, 2}, {0, 0, 0, 13}};
  for (const auto& [worker, block, first, last] : wrong) {
    EXPECT_EQ(api.run_group(execution, worker, block, first, last, bytes.data(), &status), 3);
    EXPECT_STREQ(status.reason, "BAD_PARAMETER");
  }
  EXPECT_EQ(api.run_group(execution, 0, 0, 0, 1, nullptr, &status), 3);
  tenon_run_statistics statistics{};
  EXPECT_EQ(api.execution_statistics(execution, &statistics, &status), 3);
  // A caller compiled with fewer members gets those it has.
  statistics.struct_size = offsetof(tenon_run_statistics, flops);
  statistics.flops = -1;
  ASSERT_EQ(api.execution_statistics(execution, &statistics, &status), 0);
  EXPECT_GE(statistics.timing_scope, 1);
  EXPECT_EQ(statistics.flops, -1);
  api.end(execution);
  api.release_compiled(compiled);
  api.destroy(provider);
  EXPECT_EQ(memory.current_bytes(), 0);
}

std::string TypeName(const ::testing::TestParamInfo<int32_t>& info) {
  static const std::map<int32_t, std::string> names = {{TENON_DTYPE_FLOAT32, "Float32"},
                                                       {TENON_DTYPE_FLOAT64, "Float64"},
                                                       {TENON_DTYPE_COMPLEX64, "Complex64"},
                                                       {TENON_DTYPE_COMPLEX128, "Complex128"}};
  return names.at(info.param);
}

INSTANTIATE_TEST_SUITE_P(DTypes, ConformanceTest,
                         ::testing::Values(TENON_DTYPE_FLOAT32, TENON_DTYPE_FLOAT64,
                                           TENON_DTYPE_COMPLEX64, TENON_DTYPE_COMPLEX128),
                         TypeName);

}  // namespace

ConformanceSubject& Subject() {
  static ConformanceSubject subject;
  return subject;
}

}  // namespace tenon::testing
