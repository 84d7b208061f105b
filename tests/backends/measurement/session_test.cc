#include "backends/measurement/session.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "backends/core/error.h"
#include "backends/measurement/resource.h"
#include "tests/backends/measurement/measurement_fixture.h"
#include "tests/support/status_matchers.h"

namespace tenon::testing {
namespace {

using measurement::ProjectionScores;
using measurement::RawSpec;
using measurement::Session;
using measurement::SessionOptions;

const std::vector<RawSpec> kAllSpecs = {
    {"tnc", {{"k", int64_t{5}}}},
    {"mrre", {{"k", int64_t{9}}}},
    {"lcmc", {{"k", int64_t{7}}}},
    {"nh", {{"k", int64_t{4}}}},
    {"stress", {}},
    {"sn_stress", {}},
    {"pr", {}},
    {"srho", {}},
    {"nm_stress", {}},
    {"kl_div", {{"sigma", 0.2}}},
    {"dtm", {}},
};

Tensor RandomMatrix(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Tensor tensor = *Tensor::Allocate({DType::kFloat64, {rows, columns}});
  for (int64_t p = 0; p < rows * columns; ++p) tensor.buffer.as<double>()[p] = normal(generator);
  return tensor;
}

measurement::Labels ThreeClasses(int64_t rows) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < rows; ++i) labels.push_back(i % 3 * 10 - 5);
  return labels;
}

SessionOptions OptionsFor(int64_t rows, int64_t columns) {
  SessionOptions options;
  options.rows = rows;
  options.original_columns = columns;
  return options;
}

void ExpectSameBits(const ProjectionScores& a, const ProjectionScores& b) {
  ASSERT_EQ(a.specs.size(), b.specs.size());
  for (size_t s = 0; s < a.specs.size(); ++s) {
    ASSERT_EQ(a.specs[s].scores.size(), b.specs[s].scores.size());
    for (const auto& [key, value] : a.specs[s].scores) {
      EXPECT_EQ(std::bit_cast<uint64_t>(value), std::bit_cast<uint64_t>(b.specs[s].scores.at(key)))
          << key;
    }
    EXPECT_EQ(a.specs[s].local_scores, b.specs[s].local_scores);
  }
}

ProjectionScores ScoresWith(const SessionOptions& options, const Tensor& original,
                            const Tensor& projection) {
  ResourceProvider provider;
  auto result = Score(provider, kAllSpecs, original, projection, options,
                      ThreeClasses(original.spec.shape[0]));
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->scores : ProjectionScores{};
}

TEST(Session, HasTheSameBitsForAnyNumberOfThreads) {
  const tbb::global_control allow(tbb::global_control::max_allowed_parallelism, 8);
  const Tensor original = RandomMatrix(301, 7, 1), projection = RandomMatrix(301, 2, 2);
  SessionOptions options;
  options.return_local = true;
  options.threads = 1;
  const ProjectionScores one = ScoresWith(options, original, projection);
  ASSERT_EQ(one.specs.size(), kAllSpecs.size());
  for (const int threads : {2, 3, 8}) {
    options.threads = threads;
    ExpectSameBits(one, ScoresWith(options, original, projection));
  }
}

TEST(Session, HasTheSameBitsUnderTheSmallestBudget) {
  const Tensor original = RandomMatrix(150, 5, 3), projection = RandomMatrix(150, 2, 4);
  SessionOptions options = OptionsFor(150, 5);
  options.threads = 4;
  const ProjectionScores free = ScoresWith(options, original, projection);
  options.memory_budget_bytes = 1;
  ResourceProvider provider;
  const auto refused = Session::Prepare(kAllSpecs, options, ThreeClasses(150), provider.get());
  ASSERT_TRUE(Fails(refused, Reason::kExceedsMemoryBudget, "memory_budget_bytes"));
  const ErrorDetails details = GetErrorDetails(refused.status());
  EXPECT_EQ(details.metadata.at("budget_bytes"), "1");
  const int64_t smallest = std::stoll(details.metadata.at("smallest_budget_bytes"));

  options.memory_budget_bytes = smallest - 1;
  EXPECT_TRUE(Fails(Session::Prepare(kAllSpecs, options, ThreeClasses(150), provider.get()),
                    Reason::kExceedsMemoryBudget, "memory_budget_bytes"));
  options.memory_budget_bytes = smallest;
  auto session = Session::Prepare(kAllSpecs, options, ThreeClasses(150), provider.get());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->in_flight(), 1);
  EXPECT_EQ((*session)->in_flight_limit(), "memory");
  EXPECT_LE((*session)->planned_peak_bytes(), smallest);
  ExpectSameBits(free, ScoresWith(options, original, projection));
}

TEST(Session, BuildsTheOriginalSideOnceAndEveryProjectionInOneCall) {
  ResourceProvider provider;
  SessionOptions options = OptionsFor(60, 4);
  auto session = Session::Prepare(kAllSpecs, options, ThreeClasses(60), provider.get());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->BindOriginal(RandomMatrix(60, 4, 5), nullptr).ok());
  const auto builds = [&] { return provider.fake().calls(FakeProvider::Entry::kBuildResources); };
  EXPECT_EQ(builds(), 1);
  for (uint32_t seed = 0; seed < 3; ++seed) {
    ASSERT_TRUE((*session)->Measure(RandomMatrix(60, 2, seed), nullptr).ok());
  }
  EXPECT_EQ(builds(), 4);
}

TEST(Session, MergesEqualResourcesAndTakesTheLargestK) {
  ResourceProvider provider;
  const std::vector<RawSpec> specs = {{"tnc", {{"k", int64_t{5}}}},
                                      {"mrre", {{"k", int64_t{9}}}},
                                      {"kl_div", {}},
                                      {"dtm", {}},
                                      {"dtm", {{"sigma", 2.0}}},
                                      {"pr", {}},
                                      {"stress", {}}};
  const Tensor original = RandomMatrix(50, 3, 1), projection = RandomMatrix(50, 2, 2);
  const auto result = Score(provider, specs, original, projection);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto resources_of = [](const measurement::RunInfo& info) {
    std::vector<std::string> found;
    for (const auto& resource : info.resources) {
      found.push_back(resource.space + " " + resource.kind + " " + std::to_string(resource.k) +
                      (resource.reused ? " reused" : ""));
    }
    return found;
  };
  // The first projection's pass over the original distances finds the original neighbours too.
  const std::vector<std::string> densities = {"original density 0 reused",
                                              "original density 0 reused"};
  const std::vector<std::string> own = {"pair selected_ranks 9", "embedded density 0",
                                        "embedded density 0", "pair pair_statistics 0"};
  std::vector<std::string> expected = densities;
  expected.insert(expected.end(), own.begin(), own.end());
  expected.push_back("original knn 9");
  EXPECT_EQ(resources_of(result->scores.info), expected);
  const auto further = result->session->Measure(projection, nullptr);
  ASSERT_TRUE(further.ok()) << further.status();
  expected = densities;
  expected.push_back("original knn 9 reused");
  expected.insert(expected.end(), own.begin(), own.end());
  EXPECT_EQ(resources_of(further->info), expected);
  for (size_t s = 0; s < specs.size(); ++s) {
    EXPECT_EQ(further->specs[s].scores, result->scores.specs[s].scores);
  }
  EXPECT_EQ(result->scores.info.spec_seconds.size(), specs.size());
}

TEST(Session, ScoresProjectionsOfAnyWidth) {
  const Tensor original = RandomMatrix(64, 6, 1);
  ResourceProvider cpu, reference(true);
  SessionOptions options = OptionsFor(64, 6);
  options.max_embedded_columns = 1;
  auto session = Session::Prepare(kAllSpecs, options, ThreeClasses(64), cpu.get());
  auto oracle = Session::Prepare(kAllSpecs, options, ThreeClasses(64), reference.get());
  ASSERT_TRUE(session.ok() && oracle.ok());
  ASSERT_TRUE((*session)->BindOriginal(original, nullptr).ok());
  ASSERT_TRUE((*oracle)->BindOriginal(original, nullptr).ok());
  for (const int64_t width : {1, 2, 3, 11}) {
    SCOPED_TRACE(width);
    const Tensor projection = RandomMatrix(64, width, static_cast<uint32_t>(width));
    const auto got = (*session)->Measure(projection, nullptr);
    const auto want = (*oracle)->Measure(projection, nullptr);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_TRUE(want.ok()) << want.status();
    for (size_t s = 0; s < kAllSpecs.size(); ++s) {
      for (const auto& [key, value] : want->specs[s].scores) {
        EXPECT_NEAR(got->specs[s].scores.at(key), value, 1e-12) << key;
      }
    }
  }
}

TEST(Session, WidensIntegersAndSingles) {
  const Tensor projection = RandomMatrix(20, 2, 8);
  Tensor wide = *Tensor::Allocate({DType::kFloat64, {20, 3}});
  for (int p = 0; p < 60; ++p) wide.buffer.as<double>()[p] = (p * p) % 17;
  Tensor integers = *Tensor::Allocate({DType::kInt32, {20, 3}});
  for (int p = 0; p < 60; ++p) integers.buffer.as<int32_t>()[p] = (p * p) % 17;
  const Tensor singles = *ConvertTensor(wide, DType::kFloat32);
  const ProjectionScores expected = ScoresWith({}, wide, projection);
  ExpectSameBits(expected, ScoresWith({}, integers, projection));
  ExpectSameBits(expected, ScoresWith({}, singles, projection));
}

TEST(Session, ComputesInSinglePrecisionWhereAsked) {
  const Tensor original = RandomMatrix(80, 6, 1), projection = RandomMatrix(80, 2, 2);
  SessionOptions options;
  const ProjectionScores wide = ScoresWith(options, original, projection);
  options.compute_dtype = DType::kFloat32;
  const ProjectionScores narrow = ScoresWith(options, original, projection);
  bool differs = false;
  for (size_t s = 0; s < kAllSpecs.size(); ++s) {
    for (const auto& [key, value] : wide.specs[s].scores) {
      EXPECT_NEAR(narrow.specs[s].scores.at(key), value, 1e-4) << key;
      differs |= narrow.specs[s].scores.at(key) != value;
    }
  }
  EXPECT_TRUE(differs);
}

TEST(Session, ScoresTwoRows) {
  ResourceProvider provider;
  const std::vector<RawSpec> specs = {
      {"lcmc", {{"k", int64_t{1}}}}, {"mrre", {{"k", int64_t{1}}}}, {"stress", {}}};
  const auto result = Score(provider, specs, MatrixOf({{0, 0}, {3, 4}}), MatrixOf({{1}, {3}}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_DOUBLE_EQ(result->scores.specs[0].scores.at("lcmc"), 0.0);
  EXPECT_DOUBLE_EQ(result->scores.specs[1].scores.at("mrre_false"), 1.0);
  EXPECT_DOUBLE_EQ(result->scores.specs[2].scores.at("stress"), 0.6);
}

TEST(Session, ComparesLabelsOfEveryKind) {
  ResourceProvider provider;
  const Tensor points = MatrixOf({{0}, {1}, {10}, {12}});
  const std::vector<RawSpec> specs = {{"nh", {{"k", int64_t{1}}}}};
  const std::vector<measurement::Labels> kinds = {std::vector<int64_t>{7, 7, -1, 3},
                                                  std::vector<double>{0.5, 0.5, 1, 2},
                                                  std::vector<std::string>{"a", "a", "c", "b"}};
  for (const auto& labels : kinds) {
    const auto result = Score(provider, specs, points, points, {}, labels);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_DOUBLE_EQ(result->scores.specs[0].scores.at("neighborhood_hit"), 0.5);
  }
}

TEST(Session, MeasuresFromSeveralThreadsAtOnce) {
  ResourceProvider provider;
  SessionOptions options = OptionsFor(90, 5);
  options.threads = 2;
  auto session = Session::Prepare(kAllSpecs, options, ThreeClasses(90), provider.get());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->BindOriginal(RandomMatrix(90, 5, 1), nullptr).ok());
  const Tensor projection = RandomMatrix(90, 2, 2);
  const auto expected = (*session)->Measure(projection, nullptr);
  ASSERT_TRUE(expected.ok());
  std::vector<absl::StatusOr<ProjectionScores>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] { result = (*session)->Measure(projection, nullptr); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectSameBits(*expected, *result);
  }
}

// ---- In flight and memory --------------------------------------------------------------------

TEST(Session, GrantsProjectionsAtOnceByThreadsAndMemory) {
  ResourceProvider provider;
  const std::vector<RawSpec> specs = {{"srho", {}}};
  SessionOptions options = OptionsFor(200, 4);
  options.threads = 4;
  options.in_flight = 3;
  auto session = Session::Prepare(specs, options, {}, provider.get());
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->in_flight(), 3);
  EXPECT_EQ((*session)->in_flight_limit(), "requested");
  const int64_t peak_of_three = (*session)->planned_peak_bytes();
  EXPECT_GT(peak_of_three, (*session)->original_bytes());
  EXPECT_GE(
      (*session)->original_bytes(),
      200 * 4 * 8 + *measurement::ResourceBytes({TENON_RESOURCE_PAIR_ORDER, TENON_RESOURCE_ORIGINAL,
                                                 0, measurement::kRankOrder},
                                                200));

  options.in_flight = 9;
  EXPECT_EQ((*Session::Prepare(specs, options, {}, provider.get()))->in_flight_limit(), "threads");
  options.in_flight = 3;
  options.memory_budget_bytes = peak_of_three - 1;
  session = Session::Prepare(specs, options, {}, provider.get());
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->in_flight(), 2);
  EXPECT_EQ((*session)->in_flight_limit(), "memory");
  EXPECT_LE((*session)->planned_peak_bytes(), options.memory_budget_bytes);
}

// ---- Errors ----------------------------------------------------------------------------------

TEST(SessionErrors, RefuseTooFewRows) {
  ResourceProvider provider;
  EXPECT_TRUE(Fails(Session::Prepare({{"stress", {}}}, OptionsFor(1, 2), {}, provider.get()),
                    Reason::kTooFewRows, "dataset"));
}

TEST(SessionErrors, RefuseMissingAndUnfitLabels) {
  ResourceProvider provider;
  const std::vector<RawSpec> specs = {{"nh", {{"k", int64_t{1}}}}};
  const auto prepare = [&](measurement::Labels labels) {
    return Session::Prepare(specs, OptionsFor(4, 2), std::move(labels), provider.get());
  };
  EXPECT_TRUE(Fails(prepare({}), Reason::kLabelsRequired, "labels"));
  EXPECT_TRUE(Fails(prepare(std::vector<int64_t>{1, 2, 3}), Reason::kShapeMismatch, "labels"));
  EXPECT_TRUE(Fails(prepare(std::vector<double>{1, 2, NAN, 3}), Reason::kNotFinite, "labels"));
  EXPECT_TRUE(
      Session::Prepare({{"stress", {}}}, OptionsFor(4, 2), std::vector<int64_t>{1}, provider.get())
          .ok());
}

TEST(SessionErrors, LabelsMayComeAfterThePlanAndMustBeforeTheDataset) {
  ResourceProvider provider;
  const std::vector<RawSpec> specs = {{"nh", {{"k", int64_t{1}}}}};
  auto session = Session::Plan(specs, OptionsFor(4, 2), provider.get());
  ASSERT_TRUE(session.ok()) << session.status();
  const Tensor original = RandomMatrix(4, 2, 1), projection = RandomMatrix(4, 2, 2);
  EXPECT_TRUE(
      Fails((*session)->BindOriginal(original, nullptr), Reason::kLabelsRequired, "labels"));
  EXPECT_TRUE(
      Fails((*session)->SetLabels(std::vector<int64_t>{1}), Reason::kShapeMismatch, "labels"));
  const std::vector<int64_t> labels = {7, 7, 5, 5};
  ASSERT_TRUE((*session)->SetLabels(labels).ok());
  ASSERT_TRUE((*session)->BindOriginal(original, nullptr).ok());
  const auto late = (*session)->Measure(projection, nullptr);
  ASSERT_TRUE(late.ok()) << late.status();
  auto at_once = Session::Prepare(specs, OptionsFor(4, 2), labels, provider.get());
  ASSERT_TRUE(at_once.ok() && (*at_once)->BindOriginal(original, nullptr).ok());
  EXPECT_EQ(late->specs[0].scores, (*at_once)->Measure(projection, nullptr)->specs[0].scores);
}

TEST(SessionErrors, RefuseWhatTheProviderCannotBuild) {
  ResourceProvider provider;
  provider.fake().info.resource_kinds = 1u << TENON_RESOURCE_KNN;
  provider.fake().info.resource_dtypes = 1u << TENON_DTYPE_FLOAT64;
  const SessionOptions options = OptionsFor(10, 2);
  EXPECT_TRUE(Fails(Session::Prepare({{"stress", {}}}, options, {}, provider.get()),
                    Reason::kUnsupportedByProvider, "provider"));
  const std::vector<RawSpec> lcmc = {{"lcmc", {{"k", int64_t{3}}}}};
  EXPECT_TRUE(Session::Prepare(lcmc, options, {}, provider.get()).ok());
  SessionOptions single = options;
  single.compute_dtype = DType::kFloat32;
  EXPECT_TRUE(Fails(Session::Prepare(lcmc, single, {}, provider.get()),
                    Reason::kUnsupportedByProvider, "provider"));
}

TEST(SessionErrors, RefusePairOrdersOfTooManyRows) {
  ResourceProvider provider;
  EXPECT_TRUE(Fails(Session::Prepare({{"srho", {}}}, OptionsFor(65537, 2), {}, provider.get()),
                    Reason::kExceedsMemoryBudget));
}

TEST(SessionErrors, RefuseSizesThatOverflow) {
  ResourceProvider provider;
  const int64_t huge = int64_t{1} << 62;
  EXPECT_FALSE(Session::Prepare({{"stress", {}}}, OptionsFor(huge, 8), {}, provider.get()).ok());
  EXPECT_FALSE(Session::Prepare({{"stress", {}}}, OptionsFor(100, huge), {}, provider.get()).ok());
}

class BoundSession : public ::testing::Test {
 protected:
  void Bind(const std::vector<RawSpec>& specs) {
    auto session = Session::Prepare(specs, OptionsFor(4, 2), {}, provider_.get());
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    ASSERT_TRUE(session_->BindOriginal(square_, nullptr).ok());
  }

  const Tensor square_ = MatrixOf({{0, 0}, {1, 0}, {0, 1}, {2, 3}});
  ResourceProvider provider_;
  std::unique_ptr<Session> session_;
};

TEST_F(BoundSession, RefusesUnfitProjectionsAndGoesOn) {
  Bind({{"stress", {}}});
  const auto refused = [&](const Tensor& projection, Reason reason) {
    return Fails(session_->Measure(projection, nullptr), reason, "projection");
  };
  EXPECT_TRUE(refused(MatrixOf({{0}, {1}, {2}}), Reason::kShapeMismatch));
  EXPECT_TRUE(refused(*Tensor::Allocate({DType::kFloat64, {4}}), Reason::kShapeMismatch));
  EXPECT_TRUE(refused(*Tensor::Allocate({DType::kFloat64, {4, 0}}), Reason::kShapeMismatch));
  EXPECT_TRUE(refused(*Tensor::Allocate({DType::kComplex64, {4, 2}}), Reason::kUnsupportedDtype));
  const auto nan = session_->Measure(MatrixOf({{0, 1}, {1, NAN}, {NAN, 2}, {0, 0}}), nullptr);
  ASSERT_TRUE(Fails(nan, Reason::kNotFinite, "projection"));
  EXPECT_EQ(GetErrorDetails(nan.status()).metadata.at("row"), "1");
  EXPECT_EQ(GetErrorDetails(nan.status()).metadata.at("column"), "1");
  const auto good = session_->Measure(square_, nullptr);
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->specs[0].scores.at("stress"), 0.0);
}

TEST_F(BoundSession, CallsScoresOfConstantProjectionsUndefined) {
  const Tensor constant = MatrixOf({{2}, {2}, {2}, {2}});
  for (const char* id : {"sn_stress", "pr", "srho", "nm_stress", "kl_div", "dtm"}) {
    SCOPED_TRACE(id);
    Bind({{id, {}}});
    const auto result = session_->Measure(constant, nullptr);
    ASSERT_TRUE(Fails(result, Reason::kUndefinedScore, "projection"));
    const std::string message(result.status().message());
    EXPECT_NE(message.find(measurement::FindMeasure(id)->id), std::string::npos) << message;
    EXPECT_NE(message.find("zero"), std::string::npos) << message;
  }
}

TEST_F(BoundSession, CallsOverflowingScoresUndefined) {
  Bind({{"stress", {}}});
  const Tensor far = MatrixOf({{1e300}, {-1e300}, {1e300}, {0}});
  EXPECT_TRUE(Fails(session_->Measure(far, nullptr), Reason::kUndefinedScore, "projection"));
}

TEST_F(BoundSession, StopsWhenCancelledAndGoesOn) {
  Bind({{"srho", {}}, {"stress", {}}});
  CancelToken cancelled;
  cancelled.Cancel();
  EXPECT_TRUE(Fails(session_->Measure(square_, &cancelled), Reason::kClientCancelled));
  CancelToken late(std::chrono::steady_clock::now() - std::chrono::seconds(1));
  EXPECT_TRUE(Fails(session_->Measure(square_, &late), Reason::kDeadline));
  EXPECT_TRUE(session_->Measure(square_, nullptr).ok());
}

TEST_F(BoundSession, StopsARunningBuildWhenCancelled) {
  Bind({{"stress", {}}});
  CancelToken cancel;
  provider_.fake().StallNth(FakeProvider::Entry::kBuildResources, 1);
  absl::Status status;
  std::thread work([&] { status = session_->Measure(square_, &cancel).status(); });
  provider_.fake().WaitUntilStalled();
  cancel.Cancel(Reason::kDraining);
  work.join();
  EXPECT_TRUE(Fails(status, Reason::kDraining));
}

TEST_F(BoundSession, PassesOnWhatTheProviderReports) {
  Bind({{"stress", {}}});
  provider_.fake().FailNth(FakeProvider::Entry::kBuildResources, 1,
                           Error(Reason::kInternal, "timed out"));
  EXPECT_TRUE(Fails(session_->Measure(square_, nullptr), Reason::kInternal));
  EXPECT_TRUE(session_->Measure(square_, nullptr).ok());
  // A lost device stays lost.
  provider_.fake().FailNth(FakeProvider::Entry::kBuildResources, 1,
                           Error(Reason::kDeviceFault, "gone"));
  EXPECT_TRUE(Fails(session_->Measure(square_, nullptr), Reason::kDeviceFault));
  EXPECT_TRUE(Fails(session_->Measure(square_, nullptr), Reason::kDeviceFault));
}

TEST(SessionErrors, CallScoresOfConstantDataSetsUndefined) {
  const Tensor constant = MatrixOf({{2, 1}, {2, 1}, {2, 1}}), line = MatrixOf({{1}, {2}, {4}});
  for (const char* id : {"stress", "sn_stress", "pr", "srho", "nm_stress", "kl_div", "dtm"}) {
    SCOPED_TRACE(id);
    ResourceProvider provider;
    EXPECT_TRUE(
        Fails(Score(provider, {{id, {}}}, constant, line), Reason::kUndefinedScore, "dataset"));
  }
}

TEST(SessionErrors, RefuseUnfitDataSets) {
  ResourceProvider provider;
  auto session = Session::Prepare({{"stress", {}}}, OptionsFor(3, 2), {}, provider.get());
  ASSERT_TRUE(session.ok());
  const auto refused = [&](const Tensor& original, Reason reason) {
    return Fails((*session)->BindOriginal(original, nullptr), reason, "dataset");
  };
  EXPECT_TRUE(refused(MatrixOf({{0, 1}, {1, 1}}), Reason::kShapeMismatch));
  EXPECT_TRUE(refused(MatrixOf({{0}, {1}, {2}}), Reason::kShapeMismatch));
  EXPECT_TRUE(refused(MatrixOf({{0, 1}, {1, 1}, {3, HUGE_VAL}}), Reason::kNotFinite));
}

TEST(SessionErrors, RefuseScoringBeforeTheDataSetIsBound) {
  ResourceProvider provider;
  auto session = Session::Prepare({{"stress", {}}}, OptionsFor(3, 2), {}, provider.get());
  ASSERT_TRUE(session.ok());
  EXPECT_TRUE(Fails((*session)->Measure(MatrixOf({{0}, {1}, {2}}), nullptr), Reason::kInternal));
}

}  // namespace
}  // namespace tenon::testing
