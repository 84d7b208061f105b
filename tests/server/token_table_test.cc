#include "server/token_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>

#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using ::tenon::testing::Fails;
using ::testing::HasSubstr;
using ::testing::Not;

// printf one | sha256sum, and so on.
constexpr char kOne[] = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
constexpr char kTwo[] = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3";
constexpr char kThree[] = "8b5b9db0c13db24256c829aa364aa90c6d2eba318b9232a4ab9313b954d3555f";

std::string Line(const std::string& name, const std::string& role, const std::string& digest) {
  return name + " " + role + " " + digest + "\n";
}

TEST(TokenTable, FindsWhomATokenStandsFor) {
  const auto table =
      TokenTable::Parse("# callers\n\n" + Line("alice", "compute", kOne) + "  bob\tadmin  " + kTwo +
                            "\r\n" + Line("alice", "compute", kThree),
                        "tokens");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->size(), 3u);
  for (const char* token : {"one", "three"}) {  // while one is replaced by the other
    ASSERT_NE(table->Find(token), nullptr) << token;
    EXPECT_EQ(table->Find(token)->name, "alice");
    EXPECT_FALSE(table->Find(token)->administrator);
  }
  ASSERT_NE(table->Find("two"), nullptr);
  EXPECT_EQ(table->Find("two")->name, "bob");
  EXPECT_TRUE(table->Find("two")->administrator);
  for (const std::string& token : {std::string(), std::string("on"), std::string("one "),
                                   std::string(kOne), std::string(1 << 20, 'x')}) {
    EXPECT_EQ(table->Find(token), nullptr) << token.substr(0, 80);
  }
}

TEST(TokenTable, UpperCaseDigestsAreTheSame) {
  std::string upper = kOne;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  const auto table = TokenTable::Parse(Line("alice", "compute", upper), "tokens");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_NE(table->Find("one"), nullptr);
}

TEST(TokenTable, RefusesBadLinesNamingFileAndLine) {
  const std::string good = Line("alice", "compute", kOne);
  const struct {
    std::string text;
    const char* line;
  } cases[] = {{"", "tokens"},
               {"# nothing\n", "tokens"},
               {good + "bob admin\n", "line 2"},
               {good + "bob admin " + kTwo + " more\n", "line 2"},
               {good + Line("bob", "root", kTwo), "line 2"},
               {good + Line("bob", "compute", "secret"), "line 2"},
               {good + Line("bob", "compute", std::string(64, 'g')), "line 2"},
               {good + Line("b\xC3\xB6"
                            "b",
                            "compute", kTwo),
                "line 2"},
               {good + Line(std::string(129, 'b'), "compute", kTwo), "line 2"},
               {good + Line("bob", "compute", kOne), "line 2"},    // whose would it be?
               {good + Line("alice", "compute", kOne), "line 2"},  // twice
               {good + Line("alice", "admin", kTwo), "line 2"}};   // what may she do?
  for (const auto& bad : cases) {
    const auto table = TokenTable::Parse(bad.text, "tokens");
    EXPECT_TRUE(Fails(table, Reason::kBadParameter)) << bad.text;
    EXPECT_THAT(std::string(table.status().message()), HasSubstr(bad.line)) << bad.text;
    EXPECT_THAT(std::string(table.status().message()), HasSubstr("tokens")) << bad.text;
    // A token that stands in the digest's place must not get into the log.
    EXPECT_THAT(std::string(table.status().message()), Not(HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace tenon::server
