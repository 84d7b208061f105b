// A folder of a test's own, gone with it.

#ifndef TENON_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
#define TENON_TESTS_SUPPORT_TEMPORARY_FOLDER_H_

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

namespace tenon::testing {

// Ends the program where none can be made: nothing can be tested then.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(std::filesystem::temp_directory_path() / "tenon_test_XXXXXX") {
    if (mkdtemp(path_.data()) != nullptr) return;
    std::perror("no temporary folder");
    std::abort();
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tenon::testing

#endif  // TENON_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
