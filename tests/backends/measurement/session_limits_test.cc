// Wide projections and overflowing data: what a session must not answer with a wrong number.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "backends/core/error.h"
#include "tests/backends/measurement/measurement_fixture.h"
#include "tests/support/status_matchers.h"

namespace tenon::testing {
namespace {

using measurement::RawSpec;
using measurement::Session;
using measurement::SessionOptions;

Tensor RandomMatrix(int64_t rows, int64_t columns, uint32_t seed, double scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Tensor tensor = *Tensor::Allocate({DType::kFloat64, {rows, columns}});
  for (int64_t p = 0; p < rows * columns; ++p) {
    tensor.buffer.as<double>()[p] = scale * normal(generator);
  }
  return tensor;
}

// ---- Naive scores ----------------------------------------------------------------------------

using Square = std::vector<std::vector<double>>;

Square Distances(const Tensor& points) {
  const int64_t n = points.spec.shape[0], columns = points.spec.shape[1];
  const double* data = points.buffer.as<double>();
  Square result(n, std::vector<double>(n));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t c = 0; c < columns; ++c) {
        result[i][j] += std::pow(data[i * columns + c] - data[j * columns + c], 2);
      }
      result[i][j] = std::sqrt(result[i][j]);
    }
  }
  return result;
}

double NaiveStress(const Square& hd, const Square& ld) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < hd.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      difference += std::pow(hd[i][j] - ld[i][j], 2);
      norm += hd[i][j] * hd[i][j];
    }
  }
  return std::sqrt(difference / norm);
}

// The rank of j among the others of i.
int64_t Rank(const Square& distances, size_t i, size_t j) {
  int64_t before = 0;
  for (size_t other = 0; other < distances.size(); ++other) {
    before += other != i && distances[i][other] < distances[i][j];
  }
  return before + 1;
}

double NaiveTrustworthiness(const Square& hd, const Square& ld, int64_t k) {
  const double n = static_cast<double>(hd.size()), size = static_cast<double>(k);
  double excess = 0;
  for (size_t i = 0; i < hd.size(); ++i) {
    for (size_t j = 0; j < hd.size(); ++j) {
      if (j == i || Rank(ld, i, j) > k) continue;
      excess += static_cast<double>(std::max<int64_t>(0, Rank(hd, i, j) - k));
    }
  }
  return 1 - 2 / (n * size * (2 * n - 3 * size - 1)) * excess;
}

// Without ties, 1 - 6 sum d^2 / (P (P^2 - 1)).
double NaiveSpearman(const Square& hd, const Square& ld) {
  std::vector<double> o, e;
  for (size_t i = 0; i < hd.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      o.push_back(hd[i][j]);
      e.push_back(ld[i][j]);
    }
  }
  const auto rank = [](const std::vector<double>& values, double value) {
    return std::count_if(values.begin(), values.end(), [&](double x) { return x < value; });
  };
  double sum = 0;
  for (size_t p = 0; p < o.size(); ++p) {
    sum += std::pow(static_cast<double>(rank(o, o[p]) - rank(e, e[p])), 2);
  }
  const double pairs = static_cast<double>(o.size());
  return 1 - 6 * sum / (pairs * (pairs * pairs - 1));
}

// ---- Width -----------------------------------------------------------------------------------

const std::vector<RawSpec> kWideSpecs = {
    {"stress", {}}, {"tnc", {{"k", int64_t{7}}}}, {"srho", {}}};

std::unique_ptr<Session> BoundSession(ResourceProvider& provider, const std::vector<RawSpec>& specs,
                                      const Tensor& original, int64_t budget, int in_flight = 0) {
  SessionOptions options;
  options.rows = original.spec.shape[0];
  options.original_columns = original.spec.shape[1];
  options.threads = 4;
  options.memory_budget_bytes = budget;
  options.in_flight = in_flight;
  auto session = Session::Prepare(specs, options, {}, provider.get());
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return nullptr;
  const absl::Status bound = (*session)->BindOriginal(original, nullptr);
  EXPECT_TRUE(bound.ok()) << bound;
  return *std::move(session);
}

TEST(SessionWidth, ScoresWhatIsWiderThanPlanned) {
  const Tensor original = RandomMatrix(60, 5, 1);
  const Square hd = Distances(original);
  for (const int64_t budget : {int64_t{0}, int64_t{1} << 30}) {
    ResourceProvider provider;
    const auto session = BoundSession(provider, kWideSpecs, original, budget);
    ASSERT_NE(session, nullptr);
    for (const int64_t width : {3, 8, 64, 300}) {
      SCOPED_TRACE(::testing::Message() << "width " << width << ", budget " << budget);
      const Tensor projection = RandomMatrix(60, width, static_cast<uint32_t>(width));
      const Square ld = Distances(projection);
      const auto got = session->Measure(projection, nullptr);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_NEAR(got->specs[0].scores.at("stress"), NaiveStress(hd, ld), 1e-12);
      EXPECT_NEAR(got->specs[1].scores.at("trustworthiness"), NaiveTrustworthiness(hd, ld, 7),
                  1e-12);
      EXPECT_NEAR(got->specs[1].scores.at("continuity"), NaiveTrustworthiness(ld, hd, 7), 1e-12);
      EXPECT_NEAR(got->specs[2].scores.begin()->second, NaiveSpearman(hd, ld), 1e-12);
    }
  }
}

TEST(SessionWidth, RefusesWhatTheBudgetDoesNotHoldAndGoesOn) {
  const Tensor original = RandomMatrix(60, 5, 1);
  const Tensor narrow = RandomMatrix(60, 2, 2), wide = RandomMatrix(60, 300, 3);
  for (const int in_flight : {1, 3}) {
    SCOPED_TRACE(in_flight);
    ResourceProvider provider;
    const auto free = BoundSession(provider, kWideSpecs, original, 0, in_flight);
    ASSERT_NE(free, nullptr);
    const int64_t budget = free->planned_peak_bytes();
    const auto tight = BoundSession(provider, kWideSpecs, original, budget, in_flight);
    ASSERT_NE(tight, nullptr);
    const auto refused = tight->Measure(wide, nullptr);
    ASSERT_TRUE(Fails(refused, Reason::kExceedsMemoryBudget, "projection"));
    const ErrorDetails details = GetErrorDetails(refused.status());
    EXPECT_EQ(details.metadata.at("memory_budget_bytes"), std::to_string(budget));
    EXPECT_TRUE(tight->Measure(narrow, nullptr).ok());

    const int64_t smallest = std::stoll(details.metadata.at("smallest_budget_bytes"));
    EXPECT_GT(smallest, budget);
    const auto enough = BoundSession(provider, kWideSpecs, original, smallest, in_flight);
    ASSERT_NE(enough, nullptr);
    const auto got = enough->Measure(wide, nullptr);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->specs[0].scores, free->Measure(wide, nullptr)->specs[0].scores);
    if (in_flight != enough->in_flight()) continue;
    const auto less = BoundSession(provider, kWideSpecs, original, smallest - 1, in_flight);
    ASSERT_NE(less, nullptr);
    EXPECT_TRUE(Fails(less->Measure(wide, nullptr), Reason::kExceedsMemoryBudget, "projection"));
  }
}

// ---- Overflow --------------------------------------------------------------------------------

// Scores data whose spaces are scaled; expects an error that names the space at fault.
void ExpectOverflow(const char* id, double hd_scale, double ld_scale, const char* field) {
  SCOPED_TRACE(::testing::Message() << id << ", scales " << hd_scale << " and " << ld_scale);
  ResourceProvider cpu, reference(true);
  for (ResourceProvider* provider : {&cpu, &reference}) {
    const auto result = Score(*provider, {{id, {}}}, RandomMatrix(60, 5, 1, hd_scale),
                              RandomMatrix(60, 2, 2, ld_scale));
    ASSERT_TRUE(Fails(result, Reason::kUndefinedScore, field));
    const std::string message(result.status().message());
    const bool original = std::string(field) == "dataset";
    EXPECT_NE(message.find(original ? "(hd)" : "(ld)"), std::string::npos) << message;
    EXPECT_EQ(message.find(original ? "(ld)" : "(hd)"), std::string::npos) << message;
    EXPECT_NE(message.find("overflow"), std::string::npos) << message;
  }
}

TEST(SessionOverflow, CallsScoresOfOverflowingDistancesUndefined) {
  for (const char* id : {"sn_stress", "pr", "kl_div", "dtm"}) {
    for (const double scale : {1e154, 1e160, 1e200}) {
      ExpectOverflow(id, scale, scale, "dataset");
      ExpectOverflow(id, scale, 1, "dataset");
      ExpectOverflow(id, 1, scale, "projection");
    }
  }
}

TEST(SessionOverflow, CallsScoresOfOverflowingSumsUndefined) {
  for (const char* id : {"sn_stress", "pr"}) {
    ExpectOverflow(id, 1e153, 1e153, "dataset");
    ExpectOverflow(id, 1e153, 1, "dataset");
    ExpectOverflow(id, 1, 1e153, "projection");
  }
  ExpectOverflow("stress", 1e153, 1, "dataset");
  ExpectOverflow("nm_stress", 1, 1e153, "projection");
}

TEST(SessionOverflow, LeavesLargeScoresAsTheyAre) {
  for (const char* id : {"stress", "sn_stress", "pr", "srho", "nm_stress", "kl_div", "dtm"}) {
    SCOPED_TRACE(id);
    ResourceProvider provider;
    const auto plain = Score(provider, {{id, {}}}, RandomMatrix(60, 5, 1), RandomMatrix(60, 2, 2));
    const auto large =
        Score(provider, {{id, {}}}, RandomMatrix(60, 5, 1, 1e140), RandomMatrix(60, 2, 2, 1e140));
    ASSERT_TRUE(plain.ok()) << plain.status();
    ASSERT_TRUE(large.ok()) << large.status();
    EXPECT_NEAR(large->scores.specs[0].scores.begin()->second,
                plain->scores.specs[0].scores.begin()->second, 1e-9);
  }
}

// Squares of such distances are no ordinary numbers, and their inverses overflow.
TEST(SessionUnderflow, DensitiesKnowNoScale) {
  for (const int64_t rows : {60, 600}) {  // the latter by tiles
    for (const char* id : {"kl_div", "dtm"}) {
      SCOPED_TRACE(::testing::Message() << id << " of " << rows << " rows");
      ResourceProvider cpu, reference(true);
      const auto want = Score(cpu, {{id, {}}}, RandomMatrix(rows, 20, 1), RandomMatrix(rows, 2, 2));
      ASSERT_TRUE(want.ok()) << want.status();
      for (ResourceProvider* provider : {&cpu, &reference}) {
        for (const double scale : {1e-139, 1e-141, 1e-154, 1e-156}) {
          const auto tiny = Score(*provider, {{id, {}}}, RandomMatrix(rows, 20, 1, scale),
                                  RandomMatrix(rows, 2, 2, scale));
          ASSERT_TRUE(tiny.ok()) << scale << ": " << tiny.status();
          EXPECT_NEAR(tiny->scores.specs[0].scores.begin()->second,
                      want->scores.specs[0].scores.begin()->second, 1e-9)
              << scale;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tenon::testing
