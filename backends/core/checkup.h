// The findings of a check-up and how they are shown: by `tenond --doctor` and by `tenon doctor`.

#ifndef TENON_BACKENDS_CORE_CHECKUP_H_
#define TENON_BACKENDS_CORE_CHECKUP_H_

#include <string>
#include <vector>

namespace tenon {

// kWarn: it works, but not as it could. kFail: it does not.
enum class Verdict { kOk, kWarn, kFail };

struct Finding {
  std::string subject;  // "memory", "port 127.0.0.1:50551"
  Verdict verdict = Verdict::kOk;
  std::string fact;    // what was found
  std::string advice;  // what to do; empty where all is well
};

// "ok", "warn", "fail".
const char* VerdictName(Verdict verdict);
bool AnyFailed(const std::vector<Finding>& findings);

// One line each, verdict first, and the advice on a line of its own below; the last line counts.
// Control characters of facts are escaped.
std::string FindingsText(const std::vector<Finding>& findings);
// {"ok": false, "findings": [{"subject": ..., "verdict": "fail", "fact": ..., "advice": ...}]}
std::string FindingsJson(const std::vector<Finding>& findings);

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_CHECKUP_H_
