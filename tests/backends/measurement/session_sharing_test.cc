// What sessions share, and the choices of their plans: kept original sides, tables, files,
// fallbacks.

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "backends/core/error.h"
#include "backends/cpu/provider.h"
#include "backends/cpu/resources.h"
#include "backends/measurement/original_side.h"
#include "tests/backends/measurement/measurement_fixture.h"
#include "tests/support/status_matchers.h"

namespace tenon::testing {
namespace {

using measurement::OriginalSide;
using measurement::PairOrdering;
using measurement::ProjectionScores;
using measurement::RawSpec;
using measurement::RunInfo;
using measurement::Session;
using measurement::SessionOptions;

constexpr int64_t kRows = 120, kColumns = 5;

const std::vector<RawSpec> kSpecs = {{"tnc", {{"k", int64_t{7}}}},
                                     {"lcmc", {{"k", int64_t{5}}}},
                                     {"stress", {}},
                                     {"srho", {}},
                                     {"nm_stress", {}},
                                     {"dtm", {}}};

Tensor RandomMatrix(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Tensor tensor = *Tensor::Allocate({DType::kFloat64, {rows, columns}});
  for (int64_t p = 0; p < rows * columns; ++p) tensor.buffer.as<double>()[p] = normal(generator);
  return tensor;
}

SessionOptions Options() {
  SessionOptions options;
  options.rows = kRows;
  options.original_columns = kColumns;
  return options;
}

// Names of resources, with what was there before.
std::vector<std::string> Names(const std::vector<RunInfo::Resource>& resources,
                               const std::string& space) {
  std::vector<std::string> names;
  for (const auto& resource : resources) {
    if (resource.space == space) {
      names.push_back(resource.kind + (resource.reused ? " reused" : ""));
    }
  }
  return names;
}

void ExpectSameScores(const ProjectionScores& got, const ProjectionScores& want) {
  ASSERT_EQ(got.specs.size(), want.specs.size());
  for (size_t s = 0; s < got.specs.size(); ++s) {
    for (const auto& [key, value] : want.specs[s].scores) {
      EXPECT_NEAR(got.specs[s].scores.at(key), value, 1e-13 * std::abs(value)) << key;
    }
  }
}

class SessionSharing : public ::testing::Test {
 protected:
  // A session with the data set bound and one projection scored.
  struct Run {
    std::unique_ptr<Session> session;
    ProjectionScores scores;
  };
  absl::StatusOr<Run> Score(const SessionOptions& options,
                            const std::vector<RawSpec>& specs = kSpecs) {
    Run run;
    TENON_ASSIGN_OR_RETURN(run.session, Session::Prepare(specs, options, {}, provider_.get()));
    TENON_RETURN_IF_ERROR(run.session->BindOriginal(original_, nullptr));
    TENON_ASSIGN_OR_RETURN(run.scores, run.session->Measure(projection_, nullptr));
    return run;
  }

  ResourceProvider provider_;
  const Tensor original_ = RandomMatrix(kRows, kColumns, 1);
  const Tensor projection_ = RandomMatrix(kRows, 2, 2);
};

// ---- Kept original sides ---------------------------------------------------------------------

// Lends up to a number of bytes.
struct Lender {
  int64_t lent = 0, most = int64_t{1} << 40;
  OriginalSide::Lend Lend() {
    return [this](int64_t bytes) -> std::shared_ptr<void> {
      if (lent + bytes > most) return nullptr;
      lent += bytes;
      return std::shared_ptr<void>(
          this, [bytes](void* lender) { static_cast<Lender*>(lender)->lent -= bytes; });
    };
  }
};

TEST_F(SessionSharing, TheNextSessionBuildsNothingOfTheOriginalSpace) {
  Lender lender;
  SessionOptions options = Options();
  options.warm = std::make_shared<OriginalSide>(lender.Lend());
  const auto first = Score(options);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(options.warm->bytes(), lender.lent);
  EXPECT_GT(lender.lent, 0);
  const int64_t alone = first->session->original_bytes();
  const auto second = Score(options);
  ASSERT_TRUE(second.ok()) << second.status();
  for (const auto& resource : second->session->original_info().resources) {
    EXPECT_TRUE(resource.reused) << resource.kind;
  }
  EXPECT_EQ(second->session->original_info().resource_seconds, 0);
  for (const std::string& name : Names(second->scores.info.resources, "original")) {
    EXPECT_TRUE(name.ends_with(" reused")) << name;
  }
  for (const auto& resource : second->session->planned_original()) EXPECT_TRUE(resource.reused);
  EXPECT_LT(second->session->original_bytes(), alone);
  ExpectSameScores(second->scores, first->scores);
}

TEST_F(SessionSharing, ASmallerNumberOfNeighborsIsServedAndALargerOneReplaces) {
  Lender lender;
  SessionOptions options = Options();
  options.warm = std::make_shared<OriginalSide>(lender.Lend());
  const auto neighbors = [&](int64_t k) { return Score(options, {{"lcmc", {{"k", k}}}}); };
  const auto built = [](const absl::StatusOr<Run>& run) {
    return Names(run->session->original_info().resources, "original");
  };
  EXPECT_EQ(built(neighbors(10)), std::vector<std::string>{"knn"});
  EXPECT_EQ(built(neighbors(6)), std::vector<std::string>{"knn reused"});
  EXPECT_EQ(built(neighbors(15)), std::vector<std::string>{"knn"});
  ASSERT_EQ(options.warm->List().size(), 1u);
  EXPECT_EQ(options.warm->List()[0]->resource.key.k, 15);
  EXPECT_EQ(lender.lent, kRows * 15 * 4);
  SessionOptions cold = Options();
  const auto want = Score(cold, {{"lcmc", {{"k", int64_t{6}}}}});
  ExpectSameScores(neighbors(6)->scores, want->scores);
}

TEST_F(SessionSharing, VariantsAreKeptApart) {
  SessionOptions options = Options();
  options.warm = std::make_shared<OriginalSide>(nullptr);
  Lender lender;
  options.warm = std::make_shared<OriginalSide>(lender.Lend());
  const std::vector<RawSpec> specs = {{"lcmc", {{"k", int64_t{5}}}}};
  ASSERT_TRUE(Score(options, specs).ok());
  options.compute_dtype = DType::kFloat32;
  ASSERT_TRUE(Score(options, specs).ok());
  options.geodesic = true;
  ASSERT_TRUE(Score(options, specs).ok());
  EXPECT_EQ(options.warm->List().size(), 3u);
}

TEST_F(SessionSharing, WithoutALeaseNothingIsKept) {
  Lender lender;
  lender.most = 100;
  SessionOptions options = Options();
  options.warm = std::make_shared<OriginalSide>(lender.Lend());
  const auto run = Score(options);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(options.warm->bytes(), 0);
  EXPECT_EQ(lender.lent, 0);
  for (const auto& resource : run->session->original_info().resources) {
    EXPECT_FALSE(resource.leased) << resource.kind;
  }
}

// Sessions that built the same at the same time each have a lease of their own, whichever is kept.
TEST_F(SessionSharing, EverySessionToldOfALeaseHasOne) {
  Lender lender;
  SessionOptions options = Options();
  options.warm = std::make_shared<OriginalSide>(lender.Lend());
  auto one = Session::Plan(kSpecs, options, provider_.get());
  auto other = Session::Plan(kSpecs, options, provider_.get());
  ASSERT_TRUE(one.ok() && other.ok());
  int64_t leased = 0;
  for (const auto& session : {&*one, &*other}) {
    ASSERT_TRUE((*session)->BindOriginal(original_, nullptr).ok());
    for (const auto& resource : (*session)->original_info().resources) {
      if (resource.leased) leased += resource.bytes;
    }
  }
  EXPECT_GT(leased, options.warm->bytes());
  EXPECT_EQ(leased, lender.lent);
}

TEST_F(SessionSharing, WhatIsDroppedStaysWithItsSessions) {
  Lender lender;
  SessionOptions options = Options();
  options.warm = std::make_shared<OriginalSide>(lender.Lend());
  auto run = Score(options);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(options.warm->Drop(), 0);  // the session uses all of it
  EXPECT_GT(lender.lent, 0);
  const auto again = run->session->Measure(projection_, nullptr);
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectSameScores(*again, run->scores);
  run->session.reset();
  EXPECT_EQ(lender.lent, 0);
}

TEST_F(SessionSharing, AnInvalidDatasetIsRefusedThoughNothingReadsIt) {
  Tensor bad = RandomMatrix(kRows, kColumns, 3);
  bad.buffer.as<double>()[kColumns * 4 + 2] = NAN;
  auto session = Session::Prepare({{"nh", {{"k", int64_t{3}}}}}, Options(),
                                  std::vector<int64_t>(kRows, 1), provider_.get());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(Fails((*session)->BindOriginal(bad, nullptr), Reason::kNotFinite, "dataset"));
}

// ---- Tables ----------------------------------------------------------------------------------

TEST_F(SessionSharing, ManyProjectionsGetTables) {
  const auto few = Score(Options());
  SessionOptions options = Options();
  options.expected_projections = 50;
  const auto many = Score(options);
  ASSERT_TRUE(many.ok()) << many.status();
  const std::vector<std::string> expected = {"knn",     "pair_order", "pair_order",
                                             "density", "rank_table", "condensed"};
  EXPECT_EQ(Names(many->session->original_info().resources, "original"), expected);
  ExpectSameScores(many->scores, few->scores);
  for (const auto& resource : many->scores.info.resources) {
    if (resource.kind == "selected_ranks") {
      EXPECT_EQ(resource.algorithm, "table");
    }
    if (resource.kind == "rank_table") {
      EXPECT_EQ(resource.consumers, std::vector<int>{0});
    }
    if (resource.kind == "condensed") {
      EXPECT_EQ(resource.consumers, std::vector<int>{2});
    }
  }
}

TEST_F(SessionSharing, TablesGiveWayToTheBudget) {
  SessionOptions options = Options();
  options.expected_projections = 50;
  options.threads = 1;
  const int64_t with_tables =
      (*Session::Prepare(kSpecs, options, {}, provider_.get()))->original_bytes();
  options.expected_projections = 0;
  const auto without = Session::Prepare(kSpecs, options, {}, provider_.get());
  EXPECT_GE(with_tables - (*without)->original_bytes(), kRows * kRows * 2);
  options.expected_projections = 50;
  options.memory_budget_bytes = (*without)->planned_peak_bytes();
  const auto session = Session::Prepare(kSpecs, options, {}, provider_.get());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->original_bytes(), (*without)->original_bytes());
}

// ---- Files -----------------------------------------------------------------------------------

class SessionFiles : public SessionSharing {
 protected:
  SessionFiles() { std::filesystem::create_directories(folder_); }
  ~SessionFiles() override { std::filesystem::remove_all(folder_); }

  SessionOptions External() const {
    SessionOptions options = Options();
    options.temporary_directory = folder_.string();
    options.temporary_budget_bytes = int64_t{1} << 30;
    return options;
  }
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ("session_files_" + std::to_string(::getpid()));  // tests run side by side
};

TEST_F(SessionFiles, GiveTheScoresOfMemory) {
  const auto memory = Score(Options());
  SessionOptions options = External();
  options.pair_ordering = PairOrdering::kExternal;
  const auto files = Score(options);
  ASSERT_TRUE(files.ok()) << files.status();
  ExpectSameScores(files->scores, memory->scores);
  EXPECT_EQ(files->scores.specs[3].scores,
            memory->scores.specs[3].scores);  // integers until the end
  EXPECT_LE(files->scores.info.temporary_peak_bytes, files->session->planned_temporary_bytes());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  for (const auto& resource : files->scores.info.resources) {
    EXPECT_NE(resource.kind, "pair_order");
    if (resource.kind == "ordered_pair_statistics") {
      EXPECT_EQ(resource.pair_strategy, "external");
    }
  }
}

TEST_F(SessionFiles, TakeNoMoreThanPlanned) {
  const Tensor original = RandomMatrix(700, 3, 4), projection = RandomMatrix(700, 2, 5);
  const auto provider = plugin::Provider::Create(cpu::CpuProviderApi(), "");
  ASSERT_TRUE(provider.ok());
  SessionOptions options = External();
  options.rows = 700;
  options.original_columns = 3;
  options.pair_ordering = PairOrdering::kExternal;
  auto session = Session::Prepare({{"srho", {}}, {"nm_stress", {}}}, options, {}, *provider);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->BindOriginal(original, nullptr).ok());
  const auto scores = (*session)->Measure(projection, nullptr);
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_GT(scores->info.temporary_peak_bytes, 0);
  EXPECT_LE(scores->info.temporary_peak_bytes, (*session)->planned_temporary_bytes());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(SessionFiles, AreChosenWhenMemoryIsShort) {
  const std::vector<RawSpec> specs = {{"srho", {}}};
  SessionOptions options = External();
  options.pair_ordering = PairOrdering::kMemory;
  options.memory_budget_bytes = 1;
  const auto refused = Session::Prepare(specs, options, {}, provider_.get());
  ASSERT_TRUE(Fails(refused, Reason::kExceedsMemoryBudget, "memory_budget_bytes"));
  const auto smallest = [](const absl::Status& status) {
    return std::stoll(GetErrorDetails(status).metadata.at("smallest_budget_bytes"));
  };
  options.memory_budget_bytes = smallest(refused.status());
  EXPECT_TRUE(Session::Prepare(specs, options, {}, provider_.get()).ok());
  --options.memory_budget_bytes;
  EXPECT_TRUE(Fails(Session::Prepare(specs, options, {}, provider_.get()),
                    Reason::kExceedsMemoryBudget, "memory_budget_bytes"));
  // Many rows, so that files need less memory than records.
  options.rows = 20000;
  options.pair_ordering = PairOrdering::kAuto;
  options.memory_budget_bytes = int64_t{64} << 20;
  options.temporary_budget_bytes = int64_t{1} << 40;
  const auto session = Session::Prepare(specs, options, {}, provider_.get());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_GT((*session)->planned_temporary_bytes(), int64_t{20000} * 19999 / 2 * 16);
  EXPECT_LE((*session)->planned_peak_bytes(), options.memory_budget_bytes);
}

TEST_F(SessionFiles, StayWithinTheirBudget) {
  const std::vector<RawSpec> specs = {{"srho", {}}};
  SessionOptions options = External();
  options.pair_ordering = PairOrdering::kExternal;
  options.threads = 4;
  options.in_flight = 4;
  options.temporary_budget_bytes = 1;
  const auto refused = Session::Prepare(specs, options, {}, provider_.get());
  ASSERT_TRUE(Fails(refused, Reason::kExceedsTemporaryBudget, "temporary_budget_bytes"));
  options.temporary_budget_bytes =
      std::stoll(GetErrorDetails(refused.status()).metadata.at("smallest_budget_bytes"));
  auto session = Session::Prepare(specs, options, {}, provider_.get());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->in_flight(), 1);
  EXPECT_EQ((*session)->in_flight_limit(), "temporary");
  options.temporary_budget_bytes *= 3;
  session = Session::Prepare(specs, options, {}, provider_.get());
  EXPECT_EQ((*session)->in_flight(), 3);
  EXPECT_EQ((*session)->planned_temporary_bytes(), options.temporary_budget_bytes);
}

TEST_F(SessionFiles, OfTooManyPairsAreRefused) {
  SessionOptions options = External();
  options.rows = int64_t{0x7fffffff};
  options.original_columns = 1;
  options.pair_ordering = PairOrdering::kExternal;
  options.temporary_budget_bytes = INT64_MAX;
  EXPECT_TRUE(
      Fails(Session::Prepare({{"srho", {}}}, options, {}, provider_.get()), Reason::kOverflow));
}

TEST_F(SessionFiles, ThatCannotBeMadeFailTheProjection) {
  SessionOptions options = External();
  options.pair_ordering = PairOrdering::kExternal;
  options.temporary_directory = "/nonexistent/folder";
  const auto run = Score(options, {{"srho", {}}});
  ASSERT_FALSE(run.ok());
  EXPECT_NE(std::string(run.status().message()).find("temporary file"), std::string::npos);
}

TEST_F(SessionFiles, ReportUndefinedScoresAsMemoryDoes) {
  Tensor equal = *Tensor::Allocate({DType::kFloat64, {kRows, 2}});
  std::fill_n(equal.buffer.as<double>(), kRows * 2, 1.0);
  SessionOptions options = External();
  options.pair_ordering = PairOrdering::kExternal;
  for (const char* id : {"srho", "nm_stress"}) {
    const auto run = Score(options, {{id, {}}});
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_TRUE(
        Fails(run->session->Measure(equal, nullptr), Reason::kUndefinedScore, "projection"));
  }
}

// ---- Batches ---------------------------------------------------------------------------------

int g_batches = 0;
int32_t g_failing = -1;  // request of a batch that fails

int32_t CanBatch(tenon_provider*, const tenon_resource_key*) { return 1; }

int32_t BuildBatch(tenon_provider*, const tenon_resource_request* requests, int32_t count,
                   tenon_resource_statistics* statistics, int32_t* failed, tenon_status* status) {
  ++g_batches;
  if (g_failing >= 0) {
    *failed = g_failing;
    return plugin::ToAbiStatus(Error(Reason::kDeviceMemory, "does not fit").Build(), status);
  }
  for (int32_t r = 0; r < count; ++r) {
    const absl::Status built = cpu::BuildResources(requests[r], statistics + r);
    if (!built.ok()) return plugin::ToAbiStatus(built, status);
  }
  return 0;
}

class SessionBatches : public SessionSharing {
 protected:
  SessionBatches() {
    g_batches = 0;
    g_failing = -1;
    batching_.fake().table.can_batch = CanBatch;
    batching_.fake().table.build_batch = BuildBatch;
    for (uint32_t p = 0; p < 3; ++p) projections_.push_back(RandomMatrix(kRows, 2, 10 + p));
  }
  std::unique_ptr<Session> Bound(SessionOptions options) {
    options.threads = 8;
    options.in_flight = 4;
    auto session = *Session::Prepare(kSpecs, options, {}, batching_.get());
    EXPECT_TRUE(session->BindOriginal(original_, nullptr).ok());
    return session;
  }
  void ExpectScoresOneByOne(const Session& session,
                            const std::vector<absl::StatusOr<ProjectionScores>>& results) {
    for (size_t p = 0; p < results.size(); ++p) {
      ASSERT_TRUE(results[p].ok()) << results[p].status();
      ExpectSameScores(*results[p], *session.Measure(projections_[p], nullptr));
    }
  }
  ResourceProvider batching_;
  std::vector<Tensor> projections_;
};

TEST_F(SessionBatches, AreBuiltTogetherWhereTheProviderGains) {
  const auto session = Bound(Options());
  EXPECT_EQ(session->batch_size(), 4);
  EXPECT_EQ(session->batch_limit(), "in_flight");
  const std::vector<const Tensor*> all = {&projections_[0], &projections_[1], &projections_[2]};
  // The first of a session builds what all others read.
  ExpectScoresOneByOne(*session, session->MeasureBatch(all, nullptr));
  EXPECT_EQ(g_batches, 1);
  const auto results = session->MeasureBatch(all, nullptr);
  EXPECT_EQ(g_batches, 2);
  EXPECT_EQ(results[0]->info.batch_size, 3);
  ExpectScoresOneByOne(*session, results);
  SessionOptions options = Options();
  options.batch_size = 2;
  EXPECT_EQ(Bound(options)->batch_size(), 2);
  EXPECT_EQ(Bound(options)->batch_limit(), "requested");
}

TEST_F(SessionBatches, KeepInvalidAndUnevenProjectionsApart) {
  const auto session = Bound(Options());
  ASSERT_TRUE(session->Measure(projection_, nullptr).ok());
  Tensor bad = RandomMatrix(kRows, 2, 20);
  bad.buffer.as<double>()[3] = NAN;
  auto results = session->MeasureBatch({&projections_[0], &bad, &projections_[2]}, nullptr);
  EXPECT_EQ(g_batches, 1);
  EXPECT_TRUE(results[0].ok() && results[2].ok());
  EXPECT_TRUE(Fails(results[1], Reason::kNotFinite, "projection"));
  const Tensor wide = RandomMatrix(kRows, 3, 21);
  results = session->MeasureBatch({&projections_[0], &wide}, nullptr);
  EXPECT_EQ(g_batches, 1);
  EXPECT_TRUE(results[0].ok() && results[1].ok());
  EXPECT_EQ(results[0]->info.batch_size, 1);
}

TEST_F(SessionBatches, OneAtFaultDoesNotCostTheOthers) {
  const auto session = Bound(Options());
  ASSERT_TRUE(session->Measure(projection_, nullptr).ok());
  g_failing = 1;
  auto results =
      session->MeasureBatch({&projections_[0], &projections_[1], &projections_[2]}, nullptr);
  EXPECT_TRUE(results[0].ok() && results[2].ok());
  ASSERT_FALSE(results[1].ok());
  EXPECT_EQ(GetErrorDetails(results[1].status()).reason, Reason::kDeviceMemory);
}

TEST_F(SessionBatches, AreNoneWhereNothingIsGained) {
  const auto run = Score(Options());
  EXPECT_EQ(run->session->batch_size(), 1);
  EXPECT_EQ(run->session->batch_limit(), "no_batchable_resource");
  const auto results = run->session->MeasureBatch({&projections_[0], &projections_[1]}, nullptr);
  ExpectScoresOneByOne(*run->session, results);
  EXPECT_EQ(g_batches, 0);
}

// ---- Fallbacks and failures ------------------------------------------------------------------

TEST_F(SessionSharing, WhatAProviderDoesNotBuildTheFallbackBuilds) {
  ResourceProvider partial;
  partial.fake().info.resource_kinds =
      1u << TENON_RESOURCE_KNN | 1u << TENON_RESOURCE_PAIR_STATISTICS;
  const auto refused = Session::Prepare(kSpecs, Options(), {}, partial.get());
  EXPECT_TRUE(Fails(refused, Reason::kUnsupportedByProvider, "provider"));
  auto session = Session::Prepare(kSpecs, Options(), {}, partial.get(), provider_.get());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->BindOriginal(original_, nullptr).ok());
  const auto scores = (*session)->Measure(projection_, nullptr);
  ASSERT_TRUE(scores.ok()) << scores.status();
  ExpectSameScores(*scores, Score(Options())->scores);
  int fallbacks = 0;
  for (const auto& resource : scores->info.resources) {
    const bool own = resource.kind == "knn" || resource.kind == "pair_statistics";
    EXPECT_EQ(resource.fallback_reason.empty(), own) << resource.kind;
    fallbacks += !own;
  }
  EXPECT_GT(fallbacks, 3);
}

TEST_F(SessionSharing, AFailedMeasureCanBeSkipped) {
  Tensor equal = *Tensor::Allocate({DType::kFloat64, {kRows, 2}});
  std::fill_n(equal.buffer.as<double>(), kRows * 2, 1.0);
  SessionOptions options = Options();
  auto run = Score(options);
  EXPECT_TRUE(Fails(run->session->Measure(equal, nullptr), Reason::kUndefinedScore, "projection"));
  options.skip_failed_measures = true;
  run = Score(options);
  const auto scores = run->session->Measure(equal, nullptr);
  ASSERT_TRUE(scores.ok()) << scores.status();
  for (size_t s = 0; s < kSpecs.size(); ++s) {
    const bool fails =
        kSpecs[s].id == "srho" || kSpecs[s].id == "nm_stress" || kSpecs[s].id == "dtm";
    EXPECT_EQ(scores->specs[s].error.ok(), !fails) << kSpecs[s].id;
    EXPECT_EQ(scores->specs[s].scores.empty(), fails);
    if (fails) {
      EXPECT_TRUE(Fails(scores->specs[s].error, Reason::kUndefinedScore, "projection"));
    }
  }
}

TEST_F(SessionSharing, AnUndefinedOriginalSideFailsOnlyItsMeasuresWhenSkipped) {
  Tensor equal = *Tensor::Allocate({DType::kFloat64, {kRows, kColumns}});
  std::fill_n(equal.buffer.as<double>(), kRows * kColumns, 1.0);
  SessionOptions options = Options();
  auto session = Session::Prepare(kSpecs, options, {}, provider_.get());
  EXPECT_TRUE(Fails((*session)->BindOriginal(equal, nullptr), Reason::kUndefinedScore, "dataset"));
  options.skip_failed_measures = true;
  session = Session::Prepare(kSpecs, options, {}, provider_.get());
  ASSERT_TRUE((*session)->BindOriginal(equal, nullptr).ok());
  const auto scores = (*session)->Measure(projection_, nullptr);
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_TRUE(scores->specs[0].error.ok());
  for (const size_t s : {2, 3, 4, 5}) {
    EXPECT_TRUE(Fails(scores->specs[s].error, Reason::kUndefinedScore, "dataset")) << s;
  }
}

}  // namespace
}  // namespace tenon::testing
