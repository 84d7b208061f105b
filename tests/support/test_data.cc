#include "tests/support/test_data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace tenon::testing {

std::string TestPath(std::string_view relative) {
  return std::string(TENON_TESTS_DIR) + "/" + std::string(relative);
}

std::optional<std::string> SharedPath(std::string_view relative) {
  std::string path = std::string(TENON_SHARED_DIR) + "/" + std::string(relative);
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

std::string ReadFileOrDie(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << "cannot read " << path;
  std::ostringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

nlohmann::json ReadJsonOrDie(const std::string& path) {
  return nlohmann::json::parse(ReadFileOrDie(path));
}

}  // namespace tenon::testing
