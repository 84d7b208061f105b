#include "server/state.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "backends/core/error.h"

namespace tenon::server {
namespace {

constexpr char kDefaultProvider[] = "cpu";

std::string ResolvedName(const std::string& name) {
  return name.empty() || name == "auto" ? kDefaultProvider : name;
}

// `entry` as it stands now.
ProviderRegistry::Entry Current(ProviderRegistry::Entry entry) {
  if (entry.usable()) entry.absence = entry.provider->health().Check();
  return entry;
}

}  // namespace

void ProviderRegistry::Set(Entry entry) {
  std::lock_guard lock(mutex_);
  const auto same = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const Entry& other) { return other.name == entry.name; });
  if (same != entries_.end()) {
    *same = std::move(entry);
  } else {
    entries_.push_back(std::move(entry));
  }
}

std::vector<ProviderRegistry::Entry> ProviderRegistry::entries() const {
  std::lock_guard lock(mutex_);
  std::vector<Entry> current;
  current.reserve(entries_.size());
  for (const Entry& entry : entries_) current.push_back(Current(entry));
  return current;
}

absl::StatusOr<std::shared_ptr<plugin::Provider>> ProviderRegistry::Find(
    const std::string& name) const {
  const std::string resolved = ResolvedName(name);
  std::vector<std::string> known;
  {
    std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      if (entry.name != resolved) {
        known.push_back(entry.name);
        continue;
      }
      const Entry current = Current(entry);
      if (current.usable()) return current.provider;
      return current.absence;
    }
  }
  const std::string names = absl::StrJoin(known, ", ");
  return Error(Reason::kUnknownProvider,
               StrCat("there is no provider '", resolved, "'; this server has: ", names))
      .Field("")
      .Meta("provider", resolved)
      .Meta("available", names);
}

absl::StatusOr<std::vector<std::shared_ptr<plugin::Provider>>> ProviderRegistry::Resolve(
    const std::vector<std::string>& names) const {
  std::vector<std::string> wanted = names;
  if (wanted.empty()) wanted.emplace_back(kDefaultProvider);
  std::vector<std::shared_ptr<plugin::Provider>> providers;
  std::set<std::string> seen;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string field = StrCat("providers[", i, "]");
    const std::string name = ResolvedName(wanted[i]);
    if (!seen.insert(name).second) {
      return Error(Reason::kBadParameter, StrCat("provider '", name, "' is named twice"))
          .Field(field)
          .Meta("provider", name);
    }
    absl::StatusOr<std::shared_ptr<plugin::Provider>> provider = Find(name);
    if (!provider.ok()) {
      // An absent provider is no fault of the request's form, but the field helps to find it.
      if (GetErrorDetails(provider.status()).fields.empty()) return provider.status();
      return PrefixFields(provider.status(), field);
    }
    providers.push_back(*std::move(provider));
  }
  return providers;
}

}  // namespace tenon::server
