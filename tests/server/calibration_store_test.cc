// What providers measured, kept from start to start.

#include "server/calibration_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "server/logging.h"
#include "tests/support/fake_provider.h"

namespace tenon::server {
namespace {

using testing::FakeProvider;

// A provider that measures 1, 2, 3 ... seconds for a step and believes version 7 alone.
int measured = 0;

int32_t Calibrate(tenon_provider*, const tenon_calibration* known, tenon_calibration* calibration,
                  tenon_status*) {
  if (known != nullptr && known->version == 7) {
    *calibration = *known;
    return 0;
  }
  tenon_calibration value{};
  value.struct_size = calibration->struct_size;
  value.version = 7;
  value.threads = 2;
  value.n_factors = 2;
  value.factors[0] = 0.1;
  value.factors[1] = 1e-300;
  value.arithmetic_speedup = value.traffic_speedup = 1.5;
  for (tenon_step_times& times : value.times) times.step = ++measured;
  *calibration = value;
  return 0;
}

int32_t Predict(const tenon_compiled*, const tenon_execution_options*, tenon_prediction*,
                tenon_status*) {
  return 12;
}

class CalibrationStoreTest : public ::testing::Test {
 protected:
  CalibrationStoreTest() {
    measured = 0;
    std::filesystem::remove_all(folder_);
  }
  ~CalibrationStoreTest() override { std::filesystem::remove_all(folder_); }

  // A start of a server.
  std::shared_ptr<plugin::Provider> Start(const std::string& folder,
                                          const std::string& name = "fake:0") {
    fakes_.push_back(std::make_unique<FakeProvider>(name));
    FakeProvider& fake = *fakes_.back();
    fake.table.calibrate = Calibrate;
    fake.table.predict = Predict;
    auto provider = plugin::Provider::Create(fake.api(), fake.options());
    EXPECT_TRUE(provider.ok()) << provider.status();
    CalibrationStore(folder).Calibrate(**provider);
    return *std::move(provider);
  }
  std::string File() const { return folder_ + "/calibration_fake_0.json"; }
  static std::string TextOf(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::vector<std::unique_ptr<FakeProvider>> fakes_;
  const std::string folder_ =
      ::testing::TempDir() + "/calibrations_" + std::to_string(getpid()) + "/nested";
};

TEST_F(CalibrationStoreTest, TheNextStartReadsWhatTheFirstMeasured) {
  const auto first = Start(folder_);
  ASSERT_NE(first->calibration(), nullptr);
  EXPECT_EQ(measured, 4);
  const auto second = Start(folder_);
  EXPECT_EQ(measured, 4);
  ASSERT_NE(second->calibration(), nullptr);
  EXPECT_EQ(std::memcmp(second->calibration(), first->calibration(), sizeof(tenon_calibration)), 0);
}

TEST_F(CalibrationStoreTest, FilesThatAreNotOfThisDeviceAreMeasuredAnew) {
  Start(folder_);
  const std::string good = TextOf(File());
  ASSERT_FALSE(good.empty());
  const auto replaced = [&](const std::string& what, const std::string& with) {
    std::string text = good;
    const size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), with);
  };
  for (const std::string& bad :
       {std::string(), good.substr(0, good.size() / 2), std::string("[]"), std::string("{\"a\":1}"),
        replaced("\"fake:0\"", "\"fake:1\""), replaced("\"format\": 1", "\"format\": 2"),
        replaced("\"version\": 7", "\"version\": 6"), replaced("\"step\": 1.0", "\"step\": \"x\""),
        replaced("\"threads\": 2", "\"threads\": null")}) {
    std::ofstream(File(), std::ios::trunc) << bad;
    const int before = measured;
    const auto provider = Start(folder_);
    EXPECT_EQ(measured, before + 4) << bad;
    EXPECT_NE(provider->calibration(), nullptr);
    EXPECT_NE(TextOf(File()), bad) << "the file is written anew";
  }
}

TEST_F(CalibrationStoreTest, ImpossibleTimesOfAFileAreMeasuredAnew) {
  Start(folder_);
  std::string text = TextOf(File());
  const std::string good = "\"step\": 1.0";
  text.replace(text.find(good), good.size(), "\"step\": -1.0");
  std::ofstream(File(), std::ios::trunc) << text;
  InitLogging("info", false);
  ::testing::internal::CaptureStderr();
  const auto provider = Start(folder_);
  const std::string log = ::testing::internal::GetCapturedStderr();
  InitLogging("error", false);
  EXPECT_EQ(measured, 8);
  ASSERT_NE(provider->calibration(), nullptr);
  EXPECT_NE(TextOf(File()), text) << "the file is written anew";
  EXPECT_NE(log.find("calibration file not used"), std::string::npos) << log;
  EXPECT_NE(log.find(File()), std::string::npos) << log;
}

TEST_F(CalibrationStoreTest, WithoutAFolderItMeasuresEveryTime) {
  for (const std::string& folder : {std::string(), std::string("/proc/no/such/folder")}) {
    const int before = measured;
    EXPECT_NE(Start(folder)->calibration(), nullptr);
    EXPECT_NE(Start(folder)->calibration(), nullptr);
    EXPECT_EQ(measured, before + 8);
  }
}

TEST_F(CalibrationStoreTest, ImpossibleTimesAreNoModel) {
  FakeProvider fake("fake:0");
  fake.table.calibrate = [](tenon_provider*, const tenon_calibration*,
                            tenon_calibration* calibration, tenon_status*) -> int32_t {
    calibration->threads = 1;
    calibration->times[1].step = -1;
    return 0;
  };
  fake.table.predict = Predict;
  auto provider = plugin::Provider::Create(fake.api(), fake.options());
  ASSERT_TRUE(provider.ok()) << provider.status();
  CalibrationStore(folder_).Calibrate(**provider);
  EXPECT_EQ((*provider)->calibration(), nullptr);
  EXPECT_FALSE(std::filesystem::exists(File()));
}

TEST_F(CalibrationStoreTest, ProvidersWithoutTheEntriesHaveNoModel) {
  FakeProvider fake("fake:0");
  auto provider = plugin::Provider::Create(fake.api(), fake.options());
  ASSERT_TRUE(provider.ok()) << provider.status();
  EXPECT_FALSE((*provider)->CanCalibrate());
  CalibrationStore(folder_).Calibrate(**provider);
  EXPECT_EQ((*provider)->calibration(), nullptr);
  EXPECT_EQ((*provider)->Calibrate(nullptr).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tenon::server
