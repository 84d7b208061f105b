// The command's verbs for operators, and how it says who calls.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "backends/core/sha256.h"
#include "tests/client/tool_fixture.h"

namespace tenon::tool {
namespace {

using ::testing::HasSubstr;

TEST_F(ToolTest, MakesTokens) {
  const Result result = RunWith({"token", "new", "alice", "--role", "admin"});
  ASSERT_EQ(result.code, kExitOk) << result.err;
  std::istringstream lines(result.out);
  std::string token, name, role, digest;
  ASSERT_TRUE(lines >> token >> name >> role >> digest);
  EXPECT_GE(token.size(), 43u);  // 256 bits
  EXPECT_EQ(name + " " + role, "alice admin");
  const auto expected = Sha256(token);
  EXPECT_EQ(digest, HexDigits(expected.data(), expected.size()));
  EXPECT_NE(RunWith({"token", "new", "alice"}).out, RunWith({"token", "new", "alice"}).out);
  EXPECT_THAT(RunWith({"token", "new", "bob"}).out, HasSubstr("\nbob compute "));
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"token", "new"},
                                              {"token", "old", "alice"},
                                              {"token", "new", "two words"},
                                              {"token", "new", "#alice"},
                                              {"token", "new", ""},
                                              {"token", "new", std::string(129, 'a')},
                                              {"token", "new", "alice", "--role", "root"}}) {
    EXPECT_EQ(RunWith(bad).code, kExitUsage) << bad.back();
  }
}

TEST_F(ToolTest, AdminRefusesWhatItDoesNotKnow) {
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"admin"},
                                              {"admin", "reboot"},
                                              {"admin", "log-level"},
                                              {"admin", "log-level", "loud"},
                                              {"admin", "log-level", "unspecified"},
                                              {"admin", "trim", "now"},
                                              {"admin", "drain", "--delay", "-1"}}) {
    EXPECT_EQ(RunWith(bad).code, kExitUsage) << bad.back();
  }
}

TEST_F(ToolTest, SaysWhoCallsWithCare) {
  const std::string token = WriteText("token", "secret\n");
  const Result plain = RunWith({"info", "--server", "192.0.2.1:1", "--token-file", token});
  EXPECT_EQ(plain.code, kExitUsage);
  EXPECT_THAT(plain.err, HasSubstr("--token-file"));
  EXPECT_THAT(plain.err, ::testing::Not(HasSubstr("secret")));
  const std::string binary = WriteText("binary", "a\tb\n");
  const std::string local = "127.0.0.1:1";
  EXPECT_EQ(RunWith({"info", "--server", local, "--token-file", binary}).code, kExitUsage);
  EXPECT_EQ(RunWith({"info", "--server", local, "--token-file", "/no/such"}).code, kExitUsage);
  EXPECT_EQ(RunWith({"info", "--server", local, "--tls-ca", "/no/such"}).code, kExitUsage);
  const Result half = RunWith({"info", "--server", local, "--tls-cert", token});
  EXPECT_EQ(half.code, kExitUsage);
  EXPECT_THAT(half.err, HasSubstr("--tls-cert"));
}

}  // namespace
}  // namespace tenon::tool
