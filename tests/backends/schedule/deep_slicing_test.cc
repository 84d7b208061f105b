// Deep slicing: what lowering predicts of reuse between slices is what runs, and the sums stay.

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <string>
#include <vector>

#include "backends/contraction/path.h"
#include "backends/core/network.h"
#include "backends/cpu/provider.h"
#include "backends/schedule/contraction_job.h"
#include "tests/support/test_data.h"

namespace tenon::schedule {
namespace {

// A network of the corpus with every index of size 2, so that it is small and its slices many.
class DeepSlicingTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = std::string("data/networks/") + GetParam() + ".json";
    auto file = ReadNetworkFile(testing::TestPath(name));
    ASSERT_TRUE(file.ok()) << file.status();
    request_.network = std::move(file->network);
    request_.path = file->path;
    for (auto& [index, size] : request_.network.sizes) size = 2;
    for (size_t k = 0; k < request_.network.inputs.size(); ++k) {
      const TensorSpec spec{DType::kComplex128, *InputShape(request_.network, k)};
      request_.operands.push_back(spec);
      operands_.push_back(*MakeCorpusTensor(file->seed.value_or(1), k, 0.5, spec));
    }
    auto provider = plugin::Provider::Create(cpu::CpuProviderApi(), "");
    ASSERT_TRUE(provider.ok()) << provider.status();
    ASSERT_TRUE((*provider)->WarmUp().ok());
    provider_ = *std::move(provider);
  }

  std::complex<double> Run(double target_elements) {
    request_.target_elements = target_elements;
    const CancelToken cancel;
    auto job = ContractionJob::Prepare(request_, {provider_}, &cancel);
    EXPECT_TRUE(job.ok()) << job.status();
    std::vector<const void*> pointers;
    for (const Tensor& operand : operands_) pointers.push_back(operand.buffer.data());
    EXPECT_TRUE((*job)->Start(pointers).ok());
    std::complex<double> result;
    EXPECT_TRUE((*job)->RunSet({}, &result, nullptr).ok());
    predicted_flops_ = (*job)->program().total_flops();
    naive_flops_ = (*job)->cost().flops * 8;
    slices_ = (*job)->cost().slices;
    flops_done_ = (*job)->Report().flops_done;
    return result;
  }

  ContractionRequest request_;
  std::vector<Tensor> operands_;
  std::shared_ptr<plugin::Provider> provider_;
  double predicted_flops_ = 0, naive_flops_ = 0, slices_ = 0, flops_done_ = 0;
};

TEST_P(DeepSlicingTest, RunsTheFlopsItPredictsAndSavesSome) {
  const std::complex<double> whole = Run(0);
  EXPECT_EQ(slices_, 1);
  EXPECT_EQ(flops_done_, predicted_flops_);
  for (const int threads : {1, 3}) {
    request_.threads = threads;
    const std::complex<double> sliced = Run(512);
    EXPECT_GE(slices_, 16);
    EXPECT_EQ(flops_done_, predicted_flops_);
    EXPECT_GT(naive_flops_ / flops_done_, 1.05);
    EXPECT_LT(std::abs(sliced - whole), 1e-11 * std::abs(whole));
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, DeepSlicingTest,
                         ::testing::Values("peps_norm_6x6_D4", "randreg3_n100_D4"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tenon::schedule
