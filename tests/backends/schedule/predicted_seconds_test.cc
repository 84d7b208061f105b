// Times that a provider measured change predictions, and nothing else.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "backends/core/cancel.h"
#include "backends/cpu/machine_times.h"
#include "backends/cpu/provider.h"
#include "backends/cpu/threads.h"
#include "backends/schedule/contraction_job.h"

namespace tenon::schedule {
namespace {

class PredictedSecondsTest : public ::testing::Test {
 protected:
  static std::shared_ptr<plugin::Provider> Create() {
    auto provider = plugin::Provider::Create(cpu::CpuProviderApi(), "");
    EXPECT_TRUE(provider.ok()) << provider.status();
    return *std::move(provider);
  }

  // A machine that is `slower` times as slow as the table says.
  static tenon_calibration Machine(double slower) {
    cpu::MachineTimes times;
    for (double& product : times.product) product = slower;
    times.sums = times.others = slower;
    times.threads = cpu::UsableCores();
    for (tenon_step_times& steps : times.steps) {
      steps.step = 1e-6;
      steps.multiply_add = steps.far_read = steps.far_write = 1e-10;
      steps.near_elements = 1000;
    }
    return ToCalibration(times);
  }

  std::unique_ptr<ContractionJob> Prepare(const std::shared_ptr<plugin::Provider>& provider,
                                          int threads = 1) {
    ContractionRequest request;
    request.network.inputs = {{"a", "b"}, {"b", "c"}, {"c", "d"}};
    request.network.output = {"a", "d"};
    request.network.sizes = {{"a", 96}, {"b", 80}, {"c", 112}, {"d", 64}};
    request.operands = {
        {DType::kFloat64, {96, 80}}, {DType::kFloat64, {80, 112}}, {DType::kFloat64, {112, 64}}};
    request.threads = threads;
    auto job = ContractionJob::Prepare(request, {provider}, &cancel_, nullptr);
    EXPECT_TRUE(job.ok()) << job.status();
    return *std::move(job);
  }

  CancelToken cancel_;
};

TEST_F(PredictedSecondsTest, NoTimeDecidesKernelsOrBits) {
  const auto plain = Create(), fast = Create(), slow = Create();
  const tenon_calibration one = Machine(1), hundred = Machine(100);
  ASSERT_TRUE(fast->Calibrate(&one).ok());
  ASSERT_TRUE(slow->Calibrate(&hundred).ok());
  const auto by_plain = Prepare(plain), by_fast = Prepare(fast), by_slow = Prepare(slow);
  EXPECT_EQ(by_fast->fingerprint(), by_slow->fingerprint());
  EXPECT_EQ(by_fast->fingerprint(), by_plain->fingerprint());
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(by_fast->StepKernelName(step), by_slow->StepKernelName(step));
  }
  ASSERT_TRUE(by_fast->predicted_seconds() && by_slow->predicted_seconds());
  EXPECT_GT(*by_slow->predicted_seconds(), 50 * *by_fast->predicted_seconds());
}

TEST_F(PredictedSecondsTest, KnownTimesComeBackAsTheyAre) {
  const auto provider = Create();
  const tenon_calibration known = Machine(3);
  ASSERT_TRUE(provider->Calibrate(&known).ok());
  EXPECT_EQ(std::memcmp(provider->calibration(), &known, sizeof(known)), 0);
}

TEST_F(PredictedSecondsTest, TimesThatMakeNoSenseAreMeasuredAnew) {
  for (int what = 0; what < 9; ++what) {
    tenon_calibration known = Machine(1e6);
    if (what == 0) known.version += 1;
    if (what == 1) known.threads += 1;
    if (what == 2) known.factors[0] = -1;
    if (what == 3) known.n_factors = 1;
    if (what == 4) known.factors[0] = 1e300;
    if (what == 5) known.times[1].step = 0;
    if (what == 6) known.times[1].multiply_add = 1e300;
    if (what == 7) known.times[1].near_read = -1;
    if (what == 8) known.traffic_speedup = 1e300;
    const auto provider = Create();
    ASSERT_TRUE(provider->Calibrate(&known).ok()) << what;
    EXPECT_LT(provider->calibration()->factors[1], 1e5) << what;
  }
}

TEST_F(PredictedSecondsTest, LargeStepsAreChargedForTrafficAndSmallOnesAreNot) {
  cpu::MachineTimes times;
  times.far_read = 1, times.far_write = 10;
  cpu::StepWork work;
  work.read_bytes = 1000, work.written_bytes = 1000;
  EXPECT_LT(cpu::StepSeconds(times, work, 1, 1), 1);
  work.read_bytes = 1 << 20;  // beyond one core's caches
  const double beyond = cpu::StepSeconds(times, work, 1, 1);
  EXPECT_GT(beyond, 0.5 * (1 << 20));
  work.read_bytes = 1 << 25;  // beyond all caches
  const double far = cpu::StepSeconds(times, work, 1, 1);
  EXPECT_GT(far, 32 * beyond);
  work.streams = true;
  EXPECT_LT(cpu::StepSeconds(times, work, 1, 1), far - 5000) << "what is not read before";
}

TEST_F(PredictedSecondsTest, ThreadsThatHelpWakeFirst) {
  cpu::MachineTimes times;
  times.threads = 2, times.arithmetic_speedup = times.traffic_speedup = 2;
  cpu::StepWork work;
  work.table_seconds = 1e-4;
  const double alone = cpu::StepSeconds(times, work, 1, 1);
  const double helped = cpu::StepSeconds(times, work, 2, 1);
  EXPECT_LT(helped, 0.9 * alone);
  EXPECT_GT(helped, 0.55 * alone);
  work.table_seconds = 1;
  EXPECT_NEAR(cpu::StepSeconds(times, work, 2, 1), 0.5 * cpu::StepSeconds(times, work, 1, 1), 1e-4);
}

}  // namespace
}  // namespace tenon::schedule
