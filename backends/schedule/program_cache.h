// Prepared contractions by what decides them, so that a repeated request is not compiled again.

#ifndef TENON_BACKENDS_SCHEDULE_PROGRAM_CACHE_H_
#define TENON_BACKENDS_SCHEDULE_PROGRAM_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backends/plugin/provider.h"
#include "backends/schedule/contraction_job.h"

namespace tenon::schedule {

struct PreparedContraction;

// Everything that decides a prepared contraction, serialised: equal keys mean equal results of
// PreparedContraction::Make. Providers count by identity: a cache that holds the contraction holds
// them too.
std::string PreparationKey(const ContractionRequest& request,
                           const std::vector<std::shared_ptr<plugin::Provider>>& providers,
                           int threads);

// Least recently used entries go first when a limit is passed. Thread-safe.
class ProgramCache {
 public:
  ProgramCache(size_t max_entries, int64_t max_bytes)
      : max_entries_(max_entries), max_bytes_(max_bytes) {}

  // Null when there is none.
  std::shared_ptr<const PreparedContraction> Find(const std::string& key);
  // The same for who only asks: it counts neither as a look-up nor as a use.
  std::shared_ptr<const PreparedContraction> Peek(const std::string& key) const;
  // Keeps the first of two contractions with one key.
  void Insert(std::string key, std::shared_ptr<const PreparedContraction> contraction);

  void Clear();

  struct Counters {
    int64_t hits = 0, misses = 0;  // of Find
    int64_t evictions = 0;
  };
  Counters counters() const;
  size_t entries() const;
  // An estimate of the memory of all entries.
  int64_t bytes() const;
  int64_t limit_bytes() const { return max_bytes_; }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const PreparedContraction> contraction;
    int64_t bytes = 0;
  };

  const size_t max_entries_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
  int64_t bytes_ = 0;
  Counters counters_;
};

}  // namespace tenon::schedule

#endif  // TENON_BACKENDS_SCHEDULE_PROGRAM_CACHE_H_
