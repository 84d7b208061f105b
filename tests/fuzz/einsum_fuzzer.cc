// Einsum texts. What parses prints and parses back the same; sizes are made up from the names.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "backends/core/network.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/network_check.h"

namespace tenon::fuzz {
namespace {

std::string Print(const Network& network) {
  std::string text;
  for (size_t k = 0; k < network.inputs.size(); ++k) {
    if (k > 0) text += ',';
    for (const std::string& name : network.inputs[k]) text += name;
  }
  text += "->";
  for (const std::string& name : network.output) text += name;
  return text;
}

// Without an arrow: the indices that occur once, in order of code points.
void CheckImplicitOutput(const Network& network) {
  std::map<std::string, int> occurrences;  // bytes of UTF-8 sort as code points do
  for (const auto& input : network.inputs) {
    for (const std::string& name : input) ++occurrences[name];
  }
  size_t at = 0;
  for (const auto& [name, count] : occurrences) {
    if (count != 1) continue;
    FUZZ_CHECK(at < network.output.size() && network.output[at] == name);
    ++at;
  }
  FUZZ_CHECK(at == network.output.size());
}

void CheckOne(std::string_view equation) {
  const auto parsed = ParseEinsum(equation);
  if (!parsed.ok()) return CheckError(parsed.status());
  FUZZ_CHECK(IsUtf8(equation) && parsed->sizes.empty());
  size_t bytes = 0;
  for (const auto& input : parsed->inputs) {
    for (const std::string& name : input) {
      FUZZ_CHECK(!name.empty() && Utf8Length(name) == name.size());
      bytes += name.size();
    }
  }
  FUZZ_CHECK(bytes <= equation.size());
  if (equation.find("->") == std::string_view::npos) CheckImplicitOutput(*parsed);
  const auto again = ParseEinsum(Print(*parsed));
  FUZZ_CHECK(again.ok() && again->inputs == parsed->inputs && again->output == parsed->output);

  Network network = *parsed;
  constexpr int64_t kSizes[] = {2, 3, 1, 0, 64, int64_t{1} << 20, int64_t{1} << 62, 5};
  for (const auto& input : network.inputs) {
    for (const std::string& name : input) {
      network.sizes[name] = kSizes[static_cast<unsigned char>(name.back()) % 8];
    }
  }
  CheckNetwork(network, std::nullopt, {});
}

}  // namespace
}  // namespace tenon::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenon::fuzz::CheckOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
