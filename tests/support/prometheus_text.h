// Reads Prometheus' text format back.

#ifndef TENON_TESTS_SUPPORT_PROMETHEUS_TEXT_H_
#define TENON_TESTS_SUPPORT_PROMETHEUS_TEXT_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace tenon::testing {

// One family. Series by their labels as written, e.g. `method="x",code="OK"`; those of a histogram
// have their suffix in front: `_sum method="x"`.
struct PrometheusFamily {
  std::string help, type;
  std::map<std::string, double> series;
};

// The families of an exposition by name; fails the test at a line that is not of the format.
inline std::map<std::string, PrometheusFamily> ParsePrometheus(const std::string& text) {
  static const std::regex kSample(R"(^([a-z_0-9]+?)(_bucket|_sum|_count)?(?:\{(.*)\})? (\S+)$)");
  std::map<std::string, PrometheusFamily> families;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, kind, name;
    if (line.rfind("# ", 0) == 0) {
      words >> hash >> kind >> name;
      std::string rest;
      std::getline(words >> std::ws, rest);
      (kind == "HELP" ? families[name].help : families[name].type) = rest;
      continue;
    }
    std::smatch match;
    if (!std::regex_match(line, match, kSample)) {
      ADD_FAILURE() << "no sample: " << line;
      continue;
    }
    name = match[1].str();
    std::string suffix = match[2].str();
    const auto family = families.find(name);
    if (family == families.end() || (family->second.type != "histogram" && !suffix.empty())) {
      name += suffix;  // a name that ends so by itself
      suffix.clear();
    }
    if (families.count(name) == 0) ADD_FAILURE() << "a sample without its family: " << line;
    const std::string labels = match[3].str();
    const std::string gap = suffix.empty() || labels.empty() ? "" : " ";
    families[name].series[suffix + gap + labels] = std::strtod(match[4].str().c_str(), nullptr);
  }
  return families;
}

// All series of all families, without their values.
inline std::set<std::string> SeriesOf(const std::map<std::string, PrometheusFamily>& families) {
  std::set<std::string> all;
  for (const auto& [name, family] : families) {
    for (const auto& [labels, value] : family.series) all.insert(name + "{" + labels + "}");
  }
  return all;
}

}  // namespace tenon::testing

#endif  // TENON_TESTS_SUPPORT_PROMETHEUS_TEXT_H_
