#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "server/provider_setup.h"
#include "server/state.h"
#include "tests/support/fake_provider.h"
#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using ::tenon::testing::Fails;
using ::tenon::testing::FakeProvider;
using ::testing::HasSubstr;

ProviderSource SourceOf(const std::string& name, const FakeProvider& fake) {
  return {name, fake.api(), fake.options()};
}

class ProvidersTest : public ::testing::Test {
 protected:
  absl::Status Declare(const std::vector<std::string>& names) {
    return DeclareProviders(names, {SourceOf("cpu", cpu_), SourceOf("other", other_)}, &registry_);
  }
  void Warm() {
    WarmProviders({SourceOf("cpu", cpu_), SourceOf("other", other_)}, CalibrationStore(""),
                  &registry_, [this] {
                    std::lock_guard lock(mutex_);
                    ++changes_;
                  });
  }
  FakeProvider cpu_{"cpu"}, other_{"other"};
  ProviderRegistry registry_;
  std::mutex mutex_;
  int changes_ = 0;
};

TEST_F(ProvidersTest, AreStartingUntilWarm) {
  ASSERT_TRUE(Declare({"cpu", "other"}).ok());
  EXPECT_TRUE(Fails(registry_.Find("cpu"), Reason::kStarting));
  EXPECT_EQ(ConditionOf(registry_.entries()[0]), ProviderCondition::kStarting);
  Warm();
  EXPECT_EQ(changes_, 2);
  const auto provider = registry_.Find("other");
  ASSERT_TRUE(provider.ok()) << provider.status();
  EXPECT_TRUE((*provider)->warm());
  EXPECT_EQ((*provider)->name(), "other");
  EXPECT_EQ(ConditionOf(registry_.entries()[1]), ProviderCondition::kReady);
}

TEST_F(ProvidersTest, AFailedOneDoesNotTakeTheOthersDown) {
  other_.FailNth(FakeProvider::Entry::kWarmUp, 1, Error(Reason::kDeviceFault, "fell off the bus"));
  ASSERT_TRUE(Declare({"cpu", "other"}).ok());
  Warm();
  EXPECT_TRUE(registry_.Find("cpu").ok());
  const auto failed = registry_.Find("other");
  EXPECT_TRUE(Fails(failed, Reason::kDeviceFault));
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("fell off the bus"));
  EXPECT_EQ(ConditionOf(registry_.entries()[1]), ProviderCondition::kFailed);
}

// A fault while it serves: everybody is told, and the server hears of it.
TEST_F(ProvidersTest, OneThatFailsLaterIsRefusedFromThenOn) {
  other_.FailNth(FakeProvider::Entry::kBuildResources, 1,
                 Error(Reason::kDeviceFault, "illegal access"));
  ASSERT_TRUE(Declare({"cpu", "other"}).ok());
  Warm();
  const auto provider = registry_.Find("other");
  ASSERT_TRUE(provider.ok()) << provider.status();
  EXPECT_EQ(changes_, 2);
  EXPECT_TRUE(Fails((*provider)->BuildResources(tenon_resource_request{}), Reason::kDeviceFault));
  EXPECT_EQ(changes_, 3);
  EXPECT_TRUE(Fails(registry_.Find("other"), Reason::kDeviceFault));
  EXPECT_TRUE(Fails(registry_.Resolve({"cpu", "other"}), Reason::kDeviceFault));
  EXPECT_EQ(ConditionOf(registry_.entries()[1]), ProviderCondition::kFailed);
  EXPECT_TRUE(registry_.Find("cpu").ok());
}

TEST_F(ProvidersTest, CudaIsAbsentWithTheReason) {
  ASSERT_TRUE(Declare({"cpu"}).ok());
  Warm();
  const auto absent = registry_.Find("cuda:0");
  EXPECT_TRUE(Fails(absent, Reason::kNoDevice));
  EXPECT_THAT(std::string(absent.status().message()), HasSubstr("cuda:0"));
  EXPECT_EQ(ConditionOf(registry_.entries().back()), ProviderCondition::kAbsent);
  EXPECT_EQ(registry_.entries().size(), 2u);  // "other" was not wanted
}

TEST_F(ProvidersTest, RefusesNamesItCanNotStart) {
  EXPECT_TRUE(Fails(Declare({"cpu", "tpu"}), Reason::kBadParameter, "providers"));
  EXPECT_TRUE(Fails(Declare({"cpu", "cpu"}), Reason::kBadParameter, "providers"));
  EXPECT_TRUE(Declare({"cpu", "cuda:1"}).ok());
  EXPECT_TRUE(Fails(registry_.Find("cuda:1"), Reason::kNoDevice));
}

TEST_F(ProvidersTest, DefaultIsTheCpu) {
  ASSERT_TRUE(Declare({"other", "cpu"}).ok());
  Warm();
  for (const std::string name : {"", "auto", "cpu"}) {
    ASSERT_TRUE(registry_.Find(name).ok()) << name;
    EXPECT_EQ((*registry_.Find(name))->name(), "cpu");
  }
  const auto defaults = registry_.Resolve({});
  ASSERT_TRUE(defaults.ok());
  ASSERT_EQ(defaults->size(), 1u);
  EXPECT_EQ(defaults->front()->name(), "cpu");
}

TEST_F(ProvidersTest, ResolvesListsInOrder) {
  ASSERT_TRUE(Declare({"cpu", "other"}).ok());
  Warm();
  const auto both = registry_.Resolve({"other", "auto"});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ((*both)[0]->name(), "other");
  EXPECT_EQ((*both)[1]->name(), "cpu");

  EXPECT_TRUE(Fails(registry_.Resolve({"cpu", "auto"}), Reason::kBadParameter, "providers[1]"));
  const auto unknown = registry_.Resolve({"cpu", "tpu"});
  EXPECT_TRUE(Fails(unknown, Reason::kUnknownProvider, "providers[1]"));
  EXPECT_EQ(GetErrorDetails(unknown.status()).metadata.at("available"), "cpu, other, cuda:0");
  EXPECT_TRUE(Fails(registry_.Resolve({"cuda:0"}), Reason::kNoDevice));
}

TEST(InTreeProviders, StartAndDescribeThemselvesByTheirNames) {
  ProviderRegistry registry;
  ASSERT_TRUE(DeclareProviders({"cpu", "reference"}, InTreeProviders(), &registry).ok());
  WarmProviders(InTreeProviders(), CalibrationStore(""), &registry, [] {});
  for (const char* name : {"cpu", "reference"}) {
    const auto provider = registry.Find(name);
    ASSERT_TRUE(provider.ok()) << provider.status();
    EXPECT_EQ((*provider)->name(), name);
    EXPECT_GT((*provider)->info().cold_seconds, 0) << name;
  }
}

}  // namespace
}  // namespace tenon::server
