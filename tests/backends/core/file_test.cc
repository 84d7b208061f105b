#include "backends/core/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/test_data.h"

namespace tenon {
namespace {

class WriteFileTest : public ::testing::Test {
 protected:
  WriteFileTest() : folder_(::testing::TempDir() + "/tenon_file_test_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~WriteFileTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  const std::string folder_;
};

TEST_F(WriteFileTest, ReplacesAFileAndLeavesNothingElse) {
  ASSERT_TRUE(WriteFile(Path("a"), {"long first text"}).ok());
  ASSERT_TRUE(WriteFile(Path("a"), {"sec", "ond"}).ok());
  EXPECT_EQ(testing::ReadFileOrDie(Path("a")), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(WriteFileTest, FollowsALinkThatStays) {
  ASSERT_TRUE(WriteFile(Path("target"), {"old"}).ok());
  std::filesystem::create_symlink("target", Path("link"));
  ASSERT_TRUE(WriteFile(Path("link"), {"new"}).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_EQ(testing::ReadFileOrDie(Path("target")), "new");
}

// Anything that is no regular file is written to, as a shell would, and never replaced.
TEST_F(WriteFileTest, WritesIntoAPipe) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const int reader = open(Path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(WriteFile(Path("pipe"), {"through"}).ok());
  char text[16] = {};
  EXPECT_EQ(read(reader, text, sizeof(text)), 7);
  EXPECT_STREQ(text, "through");
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(Path("pipe")));
}

TEST_F(WriteFileTest, RefusesAFolder) {
  EXPECT_FALSE(WriteFile(folder_, {"x"}).ok());
  EXPECT_FALSE(WriteFile(Path("missing/a"), {"x"}).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace tenon
