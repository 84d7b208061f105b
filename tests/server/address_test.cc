#include "server/address.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using ::tenon::testing::Fails;

TEST(Address, ReadsHostsAndPorts) {
  const struct {
    const char* text;
    const char* host;
    int port;
    bool local;
  } cases[] = {{"127.0.0.1:50551", "127.0.0.1", 50551, true},
               {"127.9.9.9:1", "127.9.9.9", 1, true},
               {"localhost:0", "localhost", 0, true},
               {"[::1]:65535", "::1", 65535, true},
               {"0.0.0.0:80", "0.0.0.0", 80, false},
               {"[::]:80", "::", 80, false},
               {"10.0.0.1:80", "10.0.0.1", 80, false},
               {"tenon.example:80", "tenon.example", 80, false},
               {"127.0.0.1.example:80", "127.0.0.1.example", 80, false}};
  for (const auto& expected : cases) {
    const auto address = ParseAddress(expected.text);
    ASSERT_TRUE(address.ok()) << expected.text << ": " << address.status();
    EXPECT_EQ(address->host, expected.host) << expected.text;
    EXPECT_EQ(address->port, expected.port) << expected.text;
    EXPECT_EQ(address->local, expected.local) << expected.text;
    EXPECT_FALSE(address->is_unix) << expected.text;
  }
}

TEST(Address, ReadsUnixSockets) {
  const auto address = ParseAddress("unix:/run/tenon.sock");
  ASSERT_TRUE(address.ok());
  EXPECT_TRUE(address->is_unix);
  EXPECT_TRUE(address->local);
  EXPECT_EQ(address->host, "/run/tenon.sock");
  EXPECT_EQ(address->WithPort(1), "unix:/run/tenon.sock");
}

TEST(Address, PutsTheChosenPortIn) {
  EXPECT_EQ(ParseAddress("127.0.0.1:0")->WithPort(4711), "127.0.0.1:4711");
  EXPECT_EQ(ParseAddress("[::1]:0")->WithPort(4711), "[::1]:4711");
}

TEST(Address, RefusesEverythingElse) {
  for (const std::string text :
       {"", ":", "localhost", ":80", "localhost:", "localhost:x", "localhost:-1", "localhost:65536",
        "::1:80", "[::1]", "[]:80", "a b:80", "http://localhost:80", "unix:"}) {
    EXPECT_TRUE(Fails(ParseAddress(text), Reason::kBadParameter)) << text;
  }
  EXPECT_TRUE(Fails(ParseAddress("unix:/" + std::string(200, 'x')), Reason::kBadParameter));
}

}  // namespace
}  // namespace tenon::server
