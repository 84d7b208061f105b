#include "client/cpp/tool/contract_report.h"

#include <utility>

namespace tenon::tool {
namespace {

// Moves the members of `object[key]` into `object`; those that `object` has already stay.
void Flatten(const char* key, Json* object) {
  const auto found = object->find(key);
  if (found == object->end() || !found->is_object()) return;
  const Json inner = std::move(*found);
  object->erase(key);
  for (const auto& [name, value] : inner.items()) {
    if (!object->contains(name)) (*object)[name] = value;
  }
}

}  // namespace

Json ReportToJson(const v1::ContractionReport& report) {
  v1::ContractionReport copy = report;
  // Absent parts would leave their keys out.
  copy.mutable_timing();
  copy.mutable_memory();
  Json full = MessageToJson(copy);
  Flatten("timing", &full);
  full["memory_plan"] = full["memory"].contains("plan") ? full["memory"]["plan"] : Json(nullptr);
  full["memory"].erase("plan");
  Flatten("memory", &full);
  full["fingerprint"] = report.plan().program_fingerprint();
  Json kernels = Json::array();
  for (Json& provider : full["providers"]) {
    Flatten("timing", &provider);
    for (Json kernel : provider["kernels"]) {
      kernel["provider"] = provider["provider"];
      kernels.push_back(std::move(kernel));
    }
    provider.erase("kernels");
  }
  full["kernels"] = std::move(kernels);
  return full;
}

}  // namespace tenon::tool
