#include "server/authenticator.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using ::tenon::testing::Fails;

TEST(Authenticator, KnowsPeersOfThisMachine) {
  for (const char* peer : {"unix:", "unix:/tmp/x", "ipv4:127.0.0.1:5", "ipv4:127.8.9.1:5",
                           "ipv6:[::1]:5", "ipv6:%5B::1%5D:5", "ipv6:%5B::ffff:127.0.0.1%5D:5"}) {
    EXPECT_TRUE(IsLocalPeer(peer)) << peer;
  }
  for (const char* peer :
       {"", "ipv4:10.0.0.1:5", "ipv4:1.127.0.1:5", "ipv4:12.7.0.1:5", "ipv6:[2001:db8::1]:5",
        "ipv6:%5B::12%5D:5", "ipv6:%5Bfe80::1%5D:5", "ipv6:%5B::ffff:10.0.0.1%5D:5", "unknown"}) {
    EXPECT_FALSE(IsLocalPeer(peer)) << peer;
  }
}

TEST(CallPlaces, AreCountedByNameAndGivenBack) {
  CallPlaces places;
  places.SetLimit(2);
  auto first = places.Take("a");
  auto second = places.Take("a");
  ASSERT_TRUE(first.ok() && second.ok());
  const auto third = places.Take("a");
  EXPECT_TRUE(Fails(third, Reason::kQuota));
  const ErrorDetails details = GetErrorDetails(third.status());
  EXPECT_EQ(details.metadata.at("limit_calls"), "2");
  EXPECT_EQ(details.metadata.at("principal"), "a");
  EXPECT_EQ(places.QuotaOf("a").limit, 2);
  EXPECT_EQ(places.QuotaOf("a").used, 2);
  EXPECT_EQ(places.QuotaOf("b").used, 0);
  EXPECT_EQ(details.metadata.count("retry_delay_seconds"), 1u);
  EXPECT_TRUE(places.Take("b").ok());
  CallPlaces::Place moved = *std::move(first);
  EXPECT_TRUE(Fails(places.Take("a"), Reason::kQuota));
  moved = CallPlaces::Place();
  EXPECT_TRUE(places.Take("a").ok());
  places.SetLimit(0);
  std::vector<CallPlaces::Place> many;
  for (int i = 0; i < 10; ++i) many.push_back(*places.Take("a"));
}

// A limit that is lowered leaves what is open alone.
TEST(CallPlaces, LimitMayChange) {
  CallPlaces places;
  auto before = places.Take("a");  // not counted
  places.SetLimit(1);
  auto counted = places.Take("a");
  ASSERT_TRUE(before.ok() && counted.ok());
  EXPECT_TRUE(Fails(places.Take("a"), Reason::kQuota));
  places.SetLimit(2);
  EXPECT_TRUE(places.Take("a").ok());
}

}  // namespace
}  // namespace tenon::server
