#include "backends/plugin/provider_health.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "backends/core/error.h"
#include "backends/plugin/provider.h"
#include "tests/support/fake_provider.h"
#include "tests/support/status_matchers.h"

namespace tenon::plugin {
namespace {

using tenon::testing::Fails;
using tenon::testing::FakeProvider;
using Entry = FakeProvider::Entry;

// Every reason there is: a new one has to be thought about here.
TEST(ClassifyFault, IsTheTableOfTheInterface) {
  EXPECT_EQ(ClassifyFault(absl::OkStatus()), Fault::kNone);
#define TENON_CHECK_REASON(id, name, code)                                                   \
  {                                                                                          \
    Fault expected = Fault::kNone;                                                           \
    const std::string reason = name;                                                         \
    if (reason == "DEVICE_FAULT" || reason == "NO_DEVICE") expected = Fault::kSticky;        \
    if (reason == "DEVICE_MEMORY") expected = Fault::kOutOfMemory;                           \
    if (reason == "INTERNAL" || reason == "CHECKSUM_MISMATCH") expected = Fault::kTransient; \
    EXPECT_EQ(ClassifyFault(Error(Reason::id, "text")), expected) << reason;                 \
  }
  TENON_REASONS(TENON_CHECK_REASON)
#undef TENON_CHECK_REASON
}

// Codes without a reason, as a careless plug-in returns them.
TEST(ClassifyFault, OfBareCodes) {
  const auto fault_of = [](int32_t code) {
    tenon_status status{};
    status.struct_size = sizeof(status);
    return ClassifyFault(FromAbiStatus(code, status));
  };
  EXPECT_EQ(fault_of(0), Fault::kNone);
  EXPECT_EQ(fault_of(1), Fault::kNone);  // CANCELLED
  EXPECT_EQ(fault_of(2), Fault::kTransient);
  EXPECT_EQ(fault_of(3), Fault::kNone);  // INVALID_ARGUMENT
  EXPECT_EQ(fault_of(4), Fault::kNone);  // DEADLINE_EXCEEDED
  EXPECT_EQ(fault_of(8), Fault::kOutOfMemory);
  EXPECT_EQ(fault_of(12), Fault::kNone);  // UNIMPLEMENTED
  EXPECT_EQ(fault_of(13), Fault::kTransient);
  EXPECT_EQ(fault_of(14), Fault::kSticky);
  EXPECT_EQ(fault_of(15), Fault::kTransient);
  EXPECT_EQ(fault_of(1000), Fault::kTransient);
}

class ProviderHealthTest : public ::testing::Test {
 protected:
  ProviderHealthTest() {
    auto made = Provider::Create(fake_.api(), fake_.options());
    EXPECT_TRUE(made.ok()) << made.status();
    provider_ = *std::move(made);
  }
  absl::Status Build() { return provider_->BuildResources(tenon_resource_request{}).status(); }

  FakeProvider fake_{"fake:0"};
  std::shared_ptr<Provider> provider_;
};

TEST_F(ProviderHealthTest, AStickyFaultLatchesForEveryCall) {
  std::atomic<int> told{0};
  provider_->health().OnFailure([&told] { ++told; });
  EXPECT_TRUE(provider_->health().Check().ok());
  fake_.FailNth(Entry::kBuildResources, 1, Error(Reason::kDeviceFault, "illegal access"));
  const absl::Status first = Build();
  EXPECT_TRUE(Fails(first, Reason::kDeviceFault));
  EXPECT_EQ(first.message(), "illegal access");
  EXPECT_EQ(GetErrorDetails(first).metadata.at("provider"), "fake:0");
  EXPECT_EQ(told.load(), 1);
  const absl::Status second = Build();
  EXPECT_TRUE(Fails(second, Reason::kDeviceFault));
  EXPECT_EQ(second.message(), "provider 'fake:0' has failed: illegal access");
  EXPECT_EQ(fake_.calls(Entry::kBuildResources), 1);  // it was not asked again
  EXPECT_TRUE(Fails(provider_->WorkingMemory(tenon_resource_request{}, 0), Reason::kDeviceFault));
  tenon_program program{};
  EXPECT_TRUE(Fails(provider_->Compile(program, tenon_compile_options{}), Reason::kDeviceFault));
  EXPECT_EQ(provider_->health().faults(Fault::kSticky), 1);
  EXPECT_EQ(told.load(), 1);
}

TEST_F(ProviderHealthTest, OtherFaultsAreCountedAndForgotten) {
  fake_.FailNth(Entry::kBuildResources, 1, Error(Reason::kDeviceMemory, "full"));
  const absl::Status full = Build();
  EXPECT_TRUE(Fails(full, Reason::kDeviceMemory));
  EXPECT_EQ(GetErrorDetails(full).metadata.at("retry_delay_seconds"), "1");
  fake_.FailNth(Entry::kBuildResources, 1, Error(Reason::kInternal, "hiccup"));
  EXPECT_TRUE(Fails(Build(), Reason::kInternal));
  fake_.FailNth(Entry::kBuildResources, 1, Error(Reason::kNotFinite, "NaN"));
  EXPECT_TRUE(Fails(Build(), Reason::kNotFinite));
  EXPECT_TRUE(Build().ok());
  EXPECT_TRUE(provider_->health().Check().ok());
  EXPECT_EQ(provider_->health().faults(Fault::kOutOfMemory), 1);
  EXPECT_EQ(provider_->health().faults(Fault::kTransient), 1);
  EXPECT_EQ(provider_->health().faults(Fault::kSticky), 0);
}

TEST_F(ProviderHealthTest, WhoListensLateIsToldAtOnce) {
  fake_.FailNth(Entry::kBuildResources, 1, Error(Reason::kNoDevice, "unplugged"));
  EXPECT_TRUE(Fails(Build(), Reason::kNoDevice));
  bool told = false;
  provider_->health().OnFailure([&told] { told = true; });
  EXPECT_TRUE(told);
}

TEST_F(ProviderHealthTest, ManyThreadsSeeOneFailure) {
  std::atomic<int> told{0};
  provider_->health().OnFailure([&told] { ++told; });
  fake_.FailNth(Entry::kBuildResources, 0, Error(Reason::kDeviceFault, "gone"));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] { EXPECT_TRUE(Fails(Build(), Reason::kDeviceFault)); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told.load(), 1);
  EXPECT_TRUE(Fails(provider_->health().Check(), Reason::kDeviceFault));
}

}  // namespace
}  // namespace tenon::plugin
