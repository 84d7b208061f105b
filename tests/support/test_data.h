// Where test inputs lie, and small readers for them.

#ifndef TENON_TESTS_SUPPORT_TEST_DATA_H_
#define TENON_TESTS_SUPPORT_TEST_DATA_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tenon::testing {

// Path of a file kept under tests/, e.g. TestPath("data/networks/ml_bilinear.json").
std::string TestPath(std::string_view relative);

// Path of a file of the larger corpus that stands beside the repository, if it is there. Tests that
// need it skip, saying so, when it is not.
std::optional<std::string> SharedPath(std::string_view relative);

// Reads a whole file; fails the test when it cannot be read.
std::string ReadFileOrDie(const std::string& path);
nlohmann::json ReadJsonOrDie(const std::string& path);

}  // namespace tenon::testing

#endif  // TENON_TESTS_SUPPORT_TEST_DATA_H_
