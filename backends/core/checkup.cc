#include "backends/core/checkup.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "backends/core/strings.h"

namespace tenon {
namespace {

// Quotes stay as they are: this is for people.
std::string OneLine(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += "\\n";
    } else if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      line += absl::StrCat("\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
  }
  return "";
}

bool AnyFailed(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::kFail; });
}

std::string FindingsText(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.subject.size());
  std::string text;
  int warned = 0, failed = 0;
  for (const Finding& finding : findings) {
    warned += finding.verdict == Verdict::kWarn ? 1 : 0;
    failed += finding.verdict == Verdict::kFail ? 1 : 0;
    std::string verdict = VerdictName(finding.verdict);
    verdict.resize(6, ' ');
    std::string subject = finding.subject;
    subject.resize(width + 2, ' ');
    text += StrCat(verdict, subject, OneLine(finding.fact), "\n");
    if (!finding.advice.empty()) {
      text += StrCat(std::string(width + 8, ' '), "-> ", OneLine(finding.advice), "\n");
    }
  }
  return StrCat(text, findings.size(), " checks, ", warned, " warnings, ", failed, " failures\n");
}

std::string FindingsJson(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"subject", finding.subject},
                    {"verdict", VerdictName(finding.verdict)},
                    {"fact", finding.fact},
                    {"advice", finding.advice}});
  }
  nlohmann::ordered_json object;
  object["ok"] = !AnyFailed(findings);
  object["findings"] = std::move(list);
  return object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tenon
