// The networks of the corpus against their reference results.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>

#include "tests/backends/networks/corpus_network.h"
#include "tests/backends/networks/job_run.h"
#include "tests/support/test_data.h"

namespace tenon {
namespace {

using testing::CorpusNetwork;
using testing::JobRun;

double Epsilon(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kComplex64
             ? std::numeric_limits<float>::epsilon()
             : std::numeric_limits<double>::epsilon();
}

// Sanitized kernels do some hundred million operations per second.
constexpr double kMostSanitizedFlops = 3e9;

// Arrays are random, so roundings add up like steps of a random walk, relative to the norm of each
// intermediate: an error is near epsilon times the root of the roundings on its way, relative to
// what the result is on average over draws. `below_average` is how far below that the draw may be,
// which the errors do not follow.
double Tolerance(DType dtype, double depth, double below_average) {
  return below_average * Epsilon(dtype) * std::sqrt(depth);
}
constexpr double kBelowAverage = 8;
// Real arrays of networks that the corpus has as complex ones only, rqc_fsim_5x5_m14_amp above all.
constexpr double kFarBelowAverage = 64;

// The engine's default threads, or as many as `threads` says.
absl::StatusOr<Tensor> Contract(const NetworkFile& file, const std::vector<Tensor>& operands,
                                int threads = 0) {
  schedule::ContractionRequest request = testing::CorpusRequest(file, operands.front().spec.dtype);
  request.threads = threads;
  TENON_ASSIGN_OR_RETURN(const auto run, JobRun::Prepare(request));
  return run->Run(operands);
}

// Compares with a run of the same real arrays as complex128, by other kernels.
void ExpectSameAsComplex(const NetworkFile& file, const Tensor& result, double tolerance) {
  const auto complex =
      Contract(file, testing::CorpusOperands(file, DType::kFloat64, DType::kComplex128));
  ASSERT_TRUE(complex.ok()) << complex.status();
  const auto expected = testing::ValuesOf(*complex), values = testing::ValuesOf(result);
  ASSERT_EQ(values.size(), expected.size());
  double largest = 0, error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::abs(values[i] - expected[i]));
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(error, tolerance * largest);
}

class CorpusTest : public ::testing::TestWithParam<std::tuple<const char*, DType>> {};

// In double precision of its kind where the corpus has that; complex runs of a network that has a
// real reference alone get its real arrays.
TEST_P(CorpusTest, GivesTheReference) {
  const auto& [name, dtype] = GetParam();
  const auto corpus = testing::LoadCorpusNetwork(name);
  if (!corpus.has_value()) GTEST_SKIP() << name << " needs the corpus beside the repository";
  const auto run = JobRun::Prepare(testing::CorpusRequest(corpus->file, dtype));
  ASSERT_TRUE(run.ok()) << run.status();
  if (testing::IsSanitized() && (*run)->job().program().total_flops() > kMostSanitizedFlops) {
    GTEST_SKIP() << "takes too long with a sanitizer";
  }
  const bool is_complex = IsComplex(dtype) && corpus->reference.contains("complex128");
  const DType rule = is_complex ? DType::kComplex128 : DType::kFloat64;
  const auto result = (*run)->Run(testing::CorpusOperands(corpus->file, rule, dtype));
  ASSERT_TRUE(result.ok()) << result.status();
  const double depth = (*run)->Depth();
  const auto reference = corpus->reference.find(std::string(DTypeName(rule)));
  if (reference != corpus->reference.end()) {
    testing::ExpectReference(*result, *reference, Tolerance(dtype, depth, kBelowAverage));
  } else {
    ExpectSameAsComplex(corpus->file, *result, Tolerance(dtype, depth, kFarBelowAverage));
  }
}

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kComplex64,
                             DType::kComplex128};

std::string ParameterName(const ::testing::TestParamInfo<CorpusTest::ParamType>& info) {
  return std::string(std::get<0>(info.param)) + "_" +
         std::string(DTypeName(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(
    EveryDType, CorpusTest,
    ::testing::Combine(::testing::Values("ising3d_5x5x5", "ml_attention_scores_first",
                                         "ml_bilinear", "ml_cp_reconstruct4", "ml_linear_attention",
                                         "ml_mttkrp4", "ml_tt_layer", "ml_tucker4",
                                         "mps_mpo_L100_chi64_D5", "mps_overlap_L64_chi192",
                                         "oe_ccsd_term", "qaoa_reg3_n60_p4_zz",
                                         "rand_hyper_out_n36", "randreg3_n100_D3",
                                         "rqc_cz_7x7_d31_amp", "rqc_fsim_5x5_m12_open10",
                                         "rqc_fsim_5x5_m14_amp", "rqc_fsim_6x6_m10_amp"),
                       ::testing::ValuesIn(kDTypes)),
    ParameterName);

// Those that take seconds and more: in the dtype that the corpus gives them.
INSTANTIATE_TEST_SUITE_P(Slow, CorpusTest,
                         ::testing::Values(std::tuple("peps_cluster_r2_D10_a", DType::kFloat32),
                                           std::tuple("peps_norm_6x6_D4", DType::kFloat64),
                                           std::tuple("qaoa_reg3_n60_p5_zz", DType::kComplex128),
                                           std::tuple("randreg3_n100_D4", DType::kFloat32),
                                           std::tuple("sycamore53_m10_amp", DType::kComplex64)),
                         ParameterName);

// Workers share the slices, or threads share each step, or both.
class CorpusBitsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CorpusBitsTest, DoNotDependOnThreads) {
  const auto corpus = testing::LoadCorpusNetwork(GetParam());
  if (!corpus.has_value()) GTEST_SKIP() << GetParam() << " needs the corpus beside the repository";
  if (testing::IsSanitized()) GTEST_SKIP() << "takes too long with a sanitizer";
  const DType dtype = corpus->file.dtype.value();
  const auto operands = testing::CorpusOperands(
      corpus->file, IsComplex(dtype) ? DType::kComplex128 : DType::kFloat64, dtype);
  const auto once = Contract(corpus->file, operands, 1);
  ASSERT_TRUE(once.ok()) << once.status();
  for (const int threads : {2, 3, 8}) {
    const auto again = Contract(corpus->file, operands, threads);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(std::memcmp(again->buffer.data(), once->buffer.data(),
                          static_cast<size_t>(once->buffer.size_bytes())),
              0)
        << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, CorpusBitsTest,
                         ::testing::Values("ising3d_5x5x5", "ml_linear_attention", "ml_mttkrp4",
                                           "ml_tucker4", "mps_mpo_L100_chi64_D5",
                                           "mps_overlap_L64_chi192", "oe_ccsd_term",
                                           "qaoa_reg3_n60_p4_zz", "rand_hyper_out_n36",
                                           "randreg3_n100_D3", "rqc_cz_7x7_d31_amp",
                                           "rqc_fsim_5x5_m12_open10", "rqc_fsim_6x6_m10_amp"),
                         [](const auto& info) { return std::string(info.param); });

// One file with every index pattern.
class SmallEinsumsTest : public ::testing::TestWithParam<DType> {};

TEST_P(SmallEinsumsTest, GiveTheReferences) {
  const auto path = testing::SharedPath("networks/small_einsums.json");
  if (!path.has_value()) GTEST_SKIP() << "needs the corpus beside the repository";
  const DType dtype = GetParam();
  const DType rule = IsComplex(dtype) ? DType::kComplex128 : DType::kFloat64;
  const auto entries = testing::ReadJsonOrDie(*path);
  EXPECT_GE(entries.size(), 80u);
  for (const auto& entry : entries) {
    SCOPED_TRACE(entry.at("eq").get<std::string>());
    const auto file = ParseNetworkJson(entry.dump());
    ASSERT_TRUE(file.ok()) << file.status();
    const auto run = JobRun::Prepare(testing::CorpusRequest(*file, dtype));
    ASSERT_TRUE(run.ok()) << run.status();
    const auto result = (*run)->Run(testing::CorpusOperands(*file, rule, dtype));
    ASSERT_TRUE(result.ok()) << result.status();
    testing::ExpectReference(*result, entry.at("reference").at(std::string(DTypeName(rule))),
                             Tolerance(dtype, (*run)->Depth(), kBelowAverage));
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, SmallEinsumsTest, ::testing::ValuesIn(kDTypes),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace tenon
