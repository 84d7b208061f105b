// Runs the command in a test's process, with files in a folder of the test's own.

#ifndef TENON_TESTS_CLIENT_TOOL_FIXTURE_H_
#define TENON_TESTS_CLIENT_TOOL_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "backends/core/npy.h"
#include "backends/core/npy_file.h"
#include "client/cpp/tool/commands.h"

namespace tenon::tool {

struct Result {
  int code;
  std::string out;
  std::string err;
};

inline Result RunWith(std::vector<std::string> arguments, bool interrupted = false) {
  std::ostringstream out;
  std::ostringstream err;
  client::Canceller canceller;
  if (interrupted) canceller.Cancel();
  const int code = RunTool(arguments, {&out, &err, &canceller, false});
  return {code, out.str(), err.str()};
}

class ToolTest : public ::testing::Test {
 protected:
  ToolTest() : folder_(::testing::TempDir() + "/tenon_tool_test_" + std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ToolTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string WriteText(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  std::string WriteNpy(const std::string& name, const Tensor& tensor) const {
    EXPECT_TRUE(WriteNpyFile(Path(name), tensor).ok());
    return Path(name);
  }

 private:
  std::string folder_;
};

}  // namespace tenon::tool

#endif  // TENON_TESTS_CLIENT_TOOL_FIXTURE_H_
