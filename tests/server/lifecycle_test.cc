#include "server/lifecycle.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using ::tenon::testing::Fails;

using P = ServerPhase;
constexpr P kAll[] = {P::kStarting, P::kReady, P::kLameDuck, P::kDraining, P::kStopped};

// Legal transitions, and one way to get to each state.
const std::set<std::pair<P, P>> kLegal = {
    {P::kStarting, P::kReady},   {P::kStarting, P::kDraining}, {P::kStarting, P::kStopped},
    {P::kReady, P::kLameDuck},   {P::kReady, P::kDraining},    {P::kLameDuck, P::kDraining},
    {P::kDraining, P::kStopped},
};
const std::map<P, std::vector<P>> kWay = {
    {P::kStarting, {}},
    {P::kReady, {P::kReady}},
    {P::kLameDuck, {P::kReady, P::kLameDuck}},
    {P::kDraining, {P::kDraining}},
    {P::kStopped, {P::kStopped}},
};

TEST(Lifecycle, FollowsTheTableInEveryCell) {
  for (P from : kAll) {
    for (P to : kAll) {
      Lifecycle lifecycle;
      for (P step : kWay.at(from)) ASSERT_TRUE(lifecycle.MoveTo(step));
      std::vector<P> told;
      lifecycle.AddListener([&](P phase) { told.push_back(phase); });
      const bool legal = kLegal.count({from, to}) > 0;
      const std::string cell = StrCat(ServerPhaseName(from), " -> ", ServerPhaseName(to));
      EXPECT_EQ(lifecycle.MoveTo(to), legal) << cell;
      EXPECT_EQ(lifecycle.phase(), legal ? to : from) << cell;
      EXPECT_EQ(told, legal ? std::vector<P>{to} : std::vector<P>{}) << cell;
    }
  }
}

TEST(Lifecycle, TellsListenersInOrder) {
  Lifecycle lifecycle;
  std::string order;
  lifecycle.AddListener([&](P) { order += "a"; });
  lifecycle.AddListener([&](P) { order += lifecycle.phase() == P::kReady ? "b" : "?"; });
  EXPECT_TRUE(lifecycle.MoveTo(P::kReady));
  EXPECT_EQ(order, "ab");
}

TEST(Lifecycle, AdmitsOnlyWhileServing) {
  const std::map<P, Reason> refused = {{P::kStarting, Reason::kStarting},
                                       {P::kDraining, Reason::kDraining},
                                       {P::kStopped, Reason::kDraining}};
  for (P phase : kAll) {
    Lifecycle lifecycle;
    for (P step : kWay.at(phase)) ASSERT_TRUE(lifecycle.MoveTo(step));
    const absl::Status status = lifecycle.CheckAdmitting();
    if (refused.count(phase) == 0) {
      EXPECT_TRUE(status.ok()) << ServerPhaseName(phase);
      continue;
    }
    EXPECT_TRUE(Fails(status, refused.at(phase))) << ServerPhaseName(phase);
    EXPECT_EQ(GetErrorDetails(status).metadata.count("retry_delay_seconds"), 1u);
  }
}

TEST(Lifecycle, TellsHowLongTheWayOutTook) {
  Lifecycle::Clock::time_point now;
  Lifecycle lifecycle([&] { return now; });
  now += std::chrono::seconds(100);
  ASSERT_TRUE(lifecycle.MoveTo(P::kReady));
  EXPECT_EQ(lifecycle.drain_seconds(), 0);
  ASSERT_TRUE(lifecycle.MoveTo(P::kLameDuck));
  now += std::chrono::seconds(5);
  EXPECT_EQ(lifecycle.drain_seconds(), 5);
  ASSERT_TRUE(lifecycle.MoveTo(P::kDraining));
  now += std::chrono::seconds(2);
  ASSERT_TRUE(lifecycle.MoveTo(P::kStopped));
  now += std::chrono::hours(1);
  EXPECT_EQ(lifecycle.drain_seconds(), 7);
}

}  // namespace
}  // namespace tenon::server
