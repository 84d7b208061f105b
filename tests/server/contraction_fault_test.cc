// Devices that die or run out of memory under calls: who notices, and who does not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <string>

#include "backends/core/error.h"
#include "server/provider_setup.h"
#include "tests/server/contraction_test_server.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

using tenon::testing::FakeProvider;
using ::testing::HasSubstr;
using Entry = FakeProvider::Entry;

v1::ContractHeader ProductOn(const std::vector<std::string>& providers) {
  v1::ContractHeader header = MatrixProduct();
  for (const std::string& name : providers) header.mutable_execution()->add_providers(name);
  return header;
}

class ContractionFaultTest : public ::testing::Test {
 protected:
  ProviderCondition ConditionOfFake() {
    for (const ProviderRegistry::Entry& entry : server_.state().providers.entries()) {
      if (entry.name == "fake") return ConditionOf(entry);
    }
    return ProviderCondition::kAbsent;
  }
  ContractionTestServer server_;
};

TEST_F(ContractionFaultTest, ADeadDeviceIsToldToItsCallAndToEveryOneAfter) {
  server_.fake().FailNth(Entry::kRunGroup, 1, Error(Reason::kDeviceFault, "it fell off the bus"));
  const Answer first = Contract(&server_, ProductOn({"fake"}));
  EXPECT_EQ(Summary(first.status), "UNAVAILABLE DEVICE_FAULT ");
  EXPECT_EQ(first.status.error_message(), "it fell off the bus");
  EXPECT_EQ(ErrorOf(first.status).metadata["provider"], "fake");
  EXPECT_EQ(ConditionOfFake(), ProviderCondition::kFailed);
  const int groups = server_.fake().calls(Entry::kRunGroup);
  const Answer second = Contract(&server_, ProductOn({"fake"}));
  EXPECT_EQ(Summary(second.status), "UNAVAILABLE DEVICE_FAULT ");
  EXPECT_THAT(second.status.error_message(),
              HasSubstr("provider 'fake' has failed: it fell off the bus"));
  EXPECT_EQ(server_.fake().calls(Entry::kRunGroup), groups);
  // A failed one is not left out in silence.
  EXPECT_EQ(Summary(Contract(&server_, ProductOn({"cpu", "fake"})).status),
            "UNAVAILABLE DEVICE_FAULT ");
  EXPECT_TRUE(Contract(&server_, ProductOn({"cpu"})).status.ok());
  EXPECT_TRUE(server_.AllReleased());
  EXPECT_EQ(server_.fake().live().executions, 0);
}

TEST_F(ContractionFaultTest, TheOtherProviderThatWasNamedTakesOver) {
  server_.fake().FailNth(Entry::kRunGroup, 1, Error(Reason::kDeviceFault, "it fell off the bus"));
  const Answer answer = Contract(&server_, ProductOn({"fake", "reference"}));
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, answer.results.at(0).bytes), kProduct);
  const v1::ContractionReport& report = answer.report.value();
  ASSERT_EQ(report.providers_size(), 2);
  EXPECT_EQ(report.providers(0).provider(), "fake");
  EXPECT_EQ(report.providers(0).groups(), 0);
  EXPECT_EQ(report.providers(0).groups_moved_away(), 1);
  EXPECT_EQ(report.providers(1).groups(), 1);
  EXPECT_EQ(report.providers(1).groups_taken_over(), 1);
  ASSERT_EQ(report.moved_groups_size(), 1);
  EXPECT_EQ(report.moved_groups(0).group(), 0);
  EXPECT_EQ(report.moved_groups(0).from_provider(), "fake");
  EXPECT_EQ(report.moved_groups(0).to_provider(), "reference");
  EXPECT_EQ(report.moved_groups(0).error().reason(), "DEVICE_FAULT");
  EXPECT_EQ(ConditionOfFake(), ProviderCondition::kFailed);
}

// One call holds the device while another finds no room there: only the latter fails.
TEST_F(ContractionFaultTest, AFullDeviceFailsOneCall) {
  std::promise<void> release;
  std::promise<void> entered;
  std::once_flag once;
  server_.fake().slice_value = [&, released = release.get_future().share()](
                                   int64_t block, int64_t slice, int64_t element) {
    std::call_once(once, [&] { entered.set_value(); });
    released.wait();
    return FakeProvider::SliceValue(block, slice, element);
  };
  ContractClient first(&server_);
  first.SendHeader(ProductOn({"fake"}));
  first.HalfClose();
  entered.get_future().wait();
  server_.fake().FailNth(Entry::kRunGroup, 1, Error(Reason::kDeviceMemory, "no room for 2 GiB"));
  const Answer full = Contract(&server_, ProductOn({"fake"}));
  EXPECT_EQ(Summary(full.status), "RESOURCE_EXHAUSTED DEVICE_MEMORY ");
  EXPECT_EQ(ErrorOf(full.status).metadata["retry_delay_seconds"], "1");
  EXPECT_EQ(ConditionOfFake(), ProviderCondition::kReady);
  release.set_value();
  EXPECT_TRUE(first.Finish().status.ok());
  EXPECT_TRUE(Contract(&server_, ProductOn({"fake"})).status.ok());
  EXPECT_TRUE(server_.AllReleased());
}

}  // namespace
}  // namespace tenon::server
