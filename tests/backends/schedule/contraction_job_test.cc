// Jobs on real providers against the definition of a contraction.

#include "backends/schedule/contraction_job.h"

#include <gtest/gtest.h>

#include <complex>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/provider.h"
#include "tests/support/naive_einsum.h"
#include "tests/support/status_matchers.h"

namespace tenon::schedule {
namespace {

using tenon::testing::Fails;
using tenon::testing::NaiveEinsum;
using Values = std::vector<std::complex<double>>;

std::shared_ptr<plugin::Provider> MakeProvider(const tenon_provider_api* api) {
  auto provider = plugin::Provider::Create(api, "");
  EXPECT_TRUE(provider.ok()) << provider.status();
  EXPECT_TRUE((*provider)->WarmUp().ok());
  return *std::move(provider);
}

std::shared_ptr<plugin::Provider> Cpu() {
  static const auto& provider = *new std::shared_ptr(MakeProvider(cpu::CpuProviderApi()));
  return provider;
}

std::shared_ptr<plugin::Provider> Reference() {
  static const auto& provider = *new std::shared_ptr(MakeProvider(cpu::ReferenceProviderApi()));
  return provider;
}

// A request in float64 with small integers as operands, so that every order of summing is exact.
struct Problem {
  ContractionRequest request;
  std::vector<std::vector<double>> data;

  Values Expected(const std::vector<std::vector<double>>& operands) const {
    std::vector<Values> values;
    for (const auto& operand : operands) values.emplace_back(operand.begin(), operand.end());
    return NaiveEinsum(request.network, values);
  }
  std::vector<const void*> Pointers() const {
    std::vector<const void*> pointers;
    for (const auto& operand : data) pointers.push_back(operand.data());
    return pointers;
  }
};

std::vector<double> Integers(size_t count, unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<double> values(count);
  for (double& value : values) value = static_cast<double>(random() % 7) - 3;
  return values;
}

Problem MakeProblem(Network network) {
  Problem problem;
  problem.request.network = std::move(network);
  const Network& made = problem.request.network;
  for (size_t k = 0; k < made.inputs.size(); ++k) {
    const TensorSpec spec{DType::kFloat64, *InputShape(made, k)};
    problem.request.operands.push_back(spec);
    problem.data.push_back(Integers(static_cast<size_t>(*CheckedElementCount(spec.shape)),
                                    static_cast<unsigned>(k + 1)));
  }
  return problem;
}

// A ring of five matrices with an output on two of them, a batch index and a private one.
Problem Ring() {
  Network network;
  network.inputs = {{"a", "b", "t"}, {"b", "c"}, {"c", "d", "p"}, {"d", "e", "t"}, {"e", "a"}};
  network.output = {"t", "c"};
  network.sizes = {{"a", 3}, {"b", 4}, {"c", 2}, {"d", 3}, {"e", 2}, {"t", 3}, {"p", 2}};
  return MakeProblem(std::move(network));
}

// Runs one set; the job's report goes to `report` where given.
absl::StatusOr<std::vector<double>> RunOnce(
    const Problem& problem, std::vector<std::shared_ptr<plugin::Provider>> providers,
    ContractionReport* report = nullptr) {
  const CancelToken cancel;
  TENON_ASSIGN_OR_RETURN(auto job,
                         ContractionJob::Prepare(problem.request, std::move(providers), &cancel));
  TENON_RETURN_IF_ERROR(job->Start(problem.Pointers()));
  std::vector<double> result(
      static_cast<size_t>(*CheckedElementCount(job->program().output_spec().shape)), -99);
  TENON_RETURN_IF_ERROR(job->RunSet({}, result.data(), nullptr));
  if (report != nullptr) *report = job->Report();
  return result;
}

void ExpectEqual(const absl::StatusOr<std::vector<double>>& actual, const Values& expected) {
  ASSERT_TRUE(actual.ok()) << actual.status();
  ASSERT_EQ(actual->size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ((*actual)[i], expected[i].real()) << i;
}

TEST(ContractionJob, GivesTheDefinition) {
  const Problem problem = Ring();
  for (const auto& provider : {Cpu(), Reference()}) {
    ExpectEqual(RunOnce(problem, {provider}), problem.Expected(problem.data));
  }
}

TEST(ContractionJob, SlicesAndThreadsDoNotChangeTheResult) {
  Problem problem = Ring();
  const Values expected = problem.Expected(problem.data);
  const std::vector<std::vector<std::string>> slicings = {
      {"a"}, {"t"}, {"c", "a"}, {"a", "b", "d"}, {"t", "c", "e"}, {"p"}};
  for (const auto& sliced : slicings) {
    problem.request.sliced = sliced;
    for (const int threads : {1, 2, 3, 8}) {
      problem.request.threads = threads;
      ContractionReport report;
      ExpectEqual(RunOnce(problem, {Cpu()}, &report), expected);
      int64_t slices = 1;
      for (const std::string& index : sliced) slices *= problem.request.network.sizes[index];
      EXPECT_EQ(report.slices_done, slices);
    }
  }
}

TEST(ContractionJob, BitsDoNotDependOnThreads) {
  Problem problem = Ring();
  problem.request.sliced = {"a", "b"};
  for (auto& operand : problem.data) {
    for (double& value : operand) value /= 7;
  }
  problem.request.threads = 1;
  const auto once = RunOnce(problem, {Cpu()});
  ASSERT_TRUE(once.ok());
  for (const int threads : {2, 3, 8}) {
    problem.request.threads = threads;
    EXPECT_EQ(*RunOnce(problem, {Cpu()}), *once) << threads;
  }
}

TEST(ContractionJob, SeveralProvidersShareTheGroups) {
  Problem problem = Ring();
  problem.request.sliced = {"a", "b"};
  problem.request.threads = 4;
  ContractionReport report;
  ExpectEqual(RunOnce(problem, {Cpu(), Reference()}, &report), problem.Expected(problem.data));
  ASSERT_EQ(report.providers.size(), 2u);
  EXPECT_EQ(report.providers[0].name, "cpu");
  EXPECT_EQ(report.providers[1].name, "reference");
  EXPECT_EQ(report.providers[0].groups + report.providers[1].groups, report.groups_done);
  EXPECT_EQ(report.groups_done, 12);
}

TEST(ContractionJob, SetsReplaceTheVaryingOperands) {
  Problem problem = Ring();
  problem.request.varying = {false, true, false, false, true};
  const CancelToken cancel;
  auto job = ContractionJob::Prepare(problem.request, {Cpu()}, &cancel);
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<const void*> pointers = problem.Pointers();
  pointers[1] = pointers[4] = nullptr;
  ASSERT_TRUE((*job)->Start(pointers).ok());
  for (unsigned set = 0; set < 4; ++set) {
    problem.data[1] = Integers(problem.data[1].size(), 100 + set);
    problem.data[4] = Integers(problem.data[4].size(), 200 + set);
    std::vector<double> result(6);
    ASSERT_TRUE(
        (*job)
            ->RunSet({problem.data[1].data(), problem.data[4].data()}, result.data(), nullptr)
            .ok());
    ExpectEqual(result, problem.Expected(problem.data));
  }
  EXPECT_GT((*job)->shared_flops(), 0);
  EXPECT_LT((*job)->shared_flops(), (*job)->program().total_flops());
  std::vector<double> result(6);
  EXPECT_TRUE(
      Fails((*job)->RunSet({problem.data[1].data()}, result.data(), nullptr), Reason::kInternal));
}

TEST(ContractionJob, GroupRangesAddUpToTheWhole) {
  Problem problem = Ring();
  problem.request.sliced = {"t", "a"};  // three blocks of three groups
  const auto whole = RunOnce(problem, {Cpu()});
  ASSERT_TRUE(whole.ok());
  std::vector<double> sum(whole->size(), 0);
  const std::vector<std::pair<int64_t, int64_t>> ranges = {{0, 2}, {2, 3}, {3, 6}, {6, 9}};
  for (const auto& [first, last] : ranges) {
    problem.request.first_group = first;
    problem.request.last_group = last;
    const auto part = RunOnce(problem, {Cpu()});
    ASSERT_TRUE(part.ok()) << part.status();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += (*part)[i];
  }
  EXPECT_EQ(sum, *whole);
}

TEST(ContractionJob, GroupRangesMustBeNodesOfTheTree) {
  Problem problem = Ring();
  problem.request.sliced = {"t", "a"};
  const std::vector<std::pair<int64_t, int64_t>> bad = {{1, 3}, {2, 4}, {0, 10},       {-1, 1},
                                                        {3, 3}, {1, 4}, {0, INT64_MAX}};
  for (const auto& [first, last] : bad) {
    problem.request.first_group = first;
    problem.request.last_group = last;
    EXPECT_TRUE(Fails(RunOnce(problem, {Cpu()}), Reason::kBadSlice, "execution.slice_groups"))
        << first << " " << last;
  }
}

TEST(ContractionJob, PlanFollowsTheTypes) {
  Problem problem = Ring();
  const CancelToken cancel;
  problem.request.operands[2].dtype = DType::kComplex64;
  EXPECT_EQ((*ContractionJob::Prepare(problem.request, {Cpu()}, &cancel))->dtype(),
            DType::kComplex128);
  problem.request.dtype = DType::kFloat64;
  EXPECT_TRUE(Fails(ContractionJob::Prepare(problem.request, {Cpu()}, &cancel),
                    Reason::kUnsupportedDtype, "result.dtype"));
  problem.request.operands[2].dtype = DType::kInt32;
  EXPECT_TRUE(Fails(ContractionJob::Prepare(problem.request, {Cpu()}, &cancel),
                    Reason::kUnsupportedDtype, "operands[2].spec.dtype"));
}

TEST(ContractionJob, RefusesWhatMakesNoSense) {
  const CancelToken cancel;
  Problem problem = Ring();
  EXPECT_TRUE(Fails(ContractionJob::Prepare(problem.request, {}, &cancel), Reason::kUnknownProvider,
                    "execution.providers"));
  EXPECT_TRUE(
      Fails(ContractionJob::Prepare({}, {Cpu()}, &cancel), Reason::kBadExpression, "operands"));
  problem.request.sliced = {"z"};
  EXPECT_TRUE(Fails(ContractionJob::Prepare(problem.request, {Cpu()}, &cancel), Reason::kBadSlice,
                    "sliced[0]"));
  problem.request.sliced = {};
  problem.request.path = PathSteps{PathSteps::Format::kSsa, {{0, 9}}};
  EXPECT_TRUE(Fails(ContractionJob::Prepare(problem.request, {Cpu()}, &cancel), Reason::kBadPath,
                    "path.steps[0]"));
}

TEST(ContractionJob, SlicesToTheTarget) {
  Problem problem = Ring();
  const Values expected = problem.Expected(problem.data);
  const CancelToken cancel;
  problem.request.target_elements = 4;
  problem.request.allow_output_slicing = true;
  auto job = ContractionJob::Prepare(problem.request, {Cpu()}, &cancel);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE((*job)->sliced().empty());
  EXPECT_LE((*job)->cost().max_size, 4);
  ExpectEqual(RunOnce(problem, {Cpu()}), expected);

  problem.request.allow_slicing = false;
  job = ContractionJob::Prepare(problem.request, {Cpu()}, &cancel);
  ASSERT_TRUE(job.ok());
  EXPECT_TRUE((*job)->sliced().empty());

  problem.request.allow_slicing = true;
  problem.request.allow_output_slicing = false;
  EXPECT_TRUE(Fails(ContractionJob::Prepare(problem.request, {Cpu()}, &cancel),
                    Reason::kUnreachableTarget, "target_size"));
}

// A chain whose intermediate is larger than everything else: slicing makes room.
TEST(ContractionJob, SlicesToTheBudget) {
  Network network;
  network.inputs = {{"i", "x"}, {"x", "y"}, {"y", "i"}};
  network.output = {};
  network.sizes = {{"i", 64}, {"x", 2}, {"y", 64}};
  Problem problem = MakeProblem(std::move(network));
  problem.request.path = PathSteps{PathSteps::Format::kSsa, {{0, 1}, {3, 2}}};  // forms 64 by 64
  const CancelToken cancel;
  problem.request.threads = 1;
  auto job = ContractionJob::Prepare(problem.request, {Reference()}, &cancel);
  ASSERT_TRUE(job.ok());
  const int64_t free_total = (*job)->plan().Total();
  problem.request.memory_budget_bytes = free_total - 64 * 64 * 4;
  job = ContractionJob::Prepare(problem.request, {Reference()}, &cancel);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE((*job)->sliced().empty());
  EXPECT_LE((*job)->plan().Total(), problem.request.memory_budget_bytes);
  ContractionReport report;
  ExpectEqual(RunOnce(problem, {Reference()}, &report), problem.Expected(problem.data));
  EXPECT_LE(report.measured_peak_bytes, problem.request.memory_budget_bytes + (1 << 16));

  problem.request.allow_slicing = false;
  EXPECT_TRUE(Fails(ContractionJob::Prepare(problem.request, {Reference()}, &cancel),
                    Reason::kExceedsMemoryBudget, "execution.memory_budget_bytes"));
}

TEST(ContractionJob, WorkersShrinkToTheBudget) {
  Problem problem = Ring();
  problem.request.path = PathSteps{PathSteps::Format::kLinear, {{0, 1}, {0, 1}, {0, 1}, {0, 1}}};
  problem.request.sliced = {"a", "b"};
  problem.request.allow_slicing = false;
  problem.request.threads = 2;
  const CancelToken cancel;
  auto job = ContractionJob::Prepare(problem.request, {Cpu()}, &cancel);
  ASSERT_TRUE(job.ok()) << job.status();
  if ((*job)->plan().workers < 2) GTEST_SKIP() << "the CPU provider takes one worker here";
  problem.request.memory_budget_bytes = (*job)->plan().Total() - 1;
  job = ContractionJob::Prepare(problem.request, {Cpu()}, &cancel);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ((*job)->plan().workers, 1);
  EXPECT_EQ((*job)->unconstrained_workers(), 2);
  ExpectEqual(RunOnce(problem, {Cpu()}), problem.Expected(problem.data));
}

// One constant result is needed late, when the large product of each slice has gone: where both do
// not fit it is formed in every slice.
TEST(ContractionJob, ReuseShrinksToTheBudget) {
  Network network;
  network.inputs = {{"p", "q"}, {"q", "r"},      {"s", "a", "b"},
                    {"c", "d"}, {"a", "b", "c"}, {"d", "p"}};
  network.output = {"r"};
  network.sizes = {{"p", 64}, {"q", 2}, {"r", 64}, {"s", 4},
                   {"a", 8},  {"b", 8}, {"c", 8},  {"d", 8}};
  Problem problem = MakeProblem(std::move(network));
  problem.request.path =
      PathSteps{PathSteps::Format::kSsa, {{0, 1}, {2, 3}, {7, 4}, {8, 5}, {9, 6}}};
  problem.request.sliced = {"s"};
  problem.request.threads = 3;
  const CancelToken cancel;
  auto job = ContractionJob::Prepare(problem.request, {Reference()}, &cancel);
  ASSERT_TRUE(job.ok()) << job.status();
  const contraction::MemoryPlan free = (*job)->plan();
  EXPECT_EQ((*job)->program().given_up_results(), 0);
  problem.request.memory_budget_bytes =
      free.Total() - (free.workers - 1) * (free.worker_arena + free.worker_kept) - 64 * 64 * 4;
  job = ContractionJob::Prepare(problem.request, {Reference()}, &cancel);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ((*job)->plan().workers, 1);
  EXPECT_EQ((*job)->program().given_up_results(), 1);
  EXPECT_LE((*job)->plan().Total(), problem.request.memory_budget_bytes);
  ContractionReport report;
  ExpectEqual(RunOnce(problem, {Reference()}, &report), problem.Expected(problem.data));
  EXPECT_EQ(report.flops_done, (*job)->program().total_flops());
  EXPECT_LE(report.measured_peak_bytes, (*job)->plan().Total());

  problem.request.memory_budget_bytes -= 64 * 64 * 8;
  EXPECT_TRUE(Fails(ContractionJob::Prepare(problem.request, {Reference()}, &cancel),
                    Reason::kExceedsMemoryBudget, "execution.memory_budget_bytes"));
}

TEST(ContractionJob, PlanCountsTheScratchOfEveryThread) {
  Problem problem = Ring();
  problem.request.sliced = {"a"};
  const CancelToken cancel;
  for (const int threads : {1, 2, 3, 8}) {
    problem.request.threads = threads;
    const auto job = ContractionJob::Prepare(problem.request, {Cpu()}, &cancel);
    ASSERT_TRUE(job.ok()) << job.status();
    const contraction::MemoryPlan& plan = (*job)->plan();
    const int64_t per_worker = std::max<int64_t>(1, threads / plan.workers);
    auto compiled = Cpu()->Compile((*job)->program().descriptor(),
                                   {sizeof(tenon_compile_options), threads, 0, 0});
    ASSERT_TRUE(compiled.ok());
    const tenon_compiled_info& info = (*compiled)->info();
    EXPECT_EQ(plan.worker_library, info.worker_bytes + (per_worker - 1) * info.thread_bytes);
    EXPECT_EQ(plan.shared_library, info.shared_bytes);
  }
}

// Sizes whose products leave 64 bits are refused, not wrapped.
TEST(ContractionJob, HugePlansAreRefused) {
  ContractionRequest request;
  request.network.inputs = {{"a", "b"}, {"b", "c"}};
  request.network.output = {"a", "c"};
  constexpr int64_t kSize = int64_t{1} << 29;
  request.operands = {{DType::kComplex128, {kSize, kSize}}, {DType::kComplex128, {kSize, kSize}}};
  const CancelToken cancel;
  EXPECT_TRUE(Fails(ContractionJob::Prepare(request, {Reference()}, &cancel),
                    Reason::kExceedsMemoryBudget, "execution.memory_budget_bytes"));
}

TEST(ContractionJob, ReportTellsKernelsAndTimes) {
  const Problem problem = Ring();
  ContractionReport report;
  ASSERT_TRUE(RunOnce(problem, {Cpu()}, &report).ok());
  EXPECT_EQ(report.timing_scope, 1);
  EXPECT_EQ(report.execution_seconds, report.dispatch_seconds);
  EXPECT_GT(report.setup_seconds, 0);
  EXPECT_GE(report.setup_seconds, report.planning_seconds + report.compile_seconds);
  EXPECT_GT(report.flops_done, 0);
  ASSERT_EQ(report.providers.size(), 1u);
  int64_t steps = 0;
  for (const auto& kernel : report.providers[0].kernels) {
    EXPECT_FALSE(kernel.name.empty());
    steps += kernel.steps;
  }
  EXPECT_GE(steps, 4);
}

}  // namespace
}  // namespace tenon::schedule
