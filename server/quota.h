// What one principal may have of something.

#ifndef TENON_SERVER_QUOTA_H_
#define TENON_SERVER_QUOTA_H_

#include <cstdint>
#include <string>
#include <utility>

#include "backends/core/error.h"

namespace tenon::server {

struct Quota {
  int64_t limit = 0;  // 0: no limit
  int64_t used = 0;
};

// The error of a principal that would have more than its quota: QUOTA with the metadata principal,
// quota (what is counted: "calls", "stored_bytes", "jobs") and quota_value (the limit), which the
// status tells as google.rpc.QuotaFailure, too. More may be added.
inline Error QuotaError(const std::string& principal, const char* quota, int64_t limit,
                        std::string text) {
  return Error(Reason::kQuota, std::move(text))
      .Meta("principal", principal)
      .Meta("quota", quota)
      .Meta("quota_value", limit);
}

}  // namespace tenon::server

#endif  // TENON_SERVER_QUOTA_H_
