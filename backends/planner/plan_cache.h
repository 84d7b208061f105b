// Plans by the question they answer.

#ifndef TENON_BACKENDS_PLANNER_PLAN_CACHE_H_
#define TENON_BACKENDS_PLANNER_PLAN_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "backends/planner/plan_key.h"
#include "backends/planner/search.h"

namespace tenon::planner {

// Least recently used plans go first when the limit in bytes is passed. Thread-safe. Plans that are
// handed out stay alive without it.
class PlanCache {
 public:
  struct Counters {
    int64_t hits = 0, misses = 0;            // of Find
    int64_t insertions = 0, evictions = 0;   // of questions
    int64_t improvements = 0, rejected = 0;  // of plans for a question that had one
    int64_t entries = 0, bytes = 0;          // now
  };

  // The bytes are an estimate of what keys, plans and bookkeeping take. 0: nothing is kept.
  explicit PlanCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Null when there is none. The whole key is compared, not its hash alone.
  std::shared_ptr<const FoundPlan> Find(const PlanKey& key);

  // Keeps the plan unless there is one with a score that is no higher, and returns the one that was
  // kept; the plan itself if it is too large for the cache. A score that is no number is the worst.
  std::shared_ptr<const FoundPlan> Put(const PlanKey& key, FoundPlan plan);

  void Clear();
  Counters counters() const;
  int64_t limit_bytes() const { return max_bytes_; }

 private:
  struct Entry {
    PlanKey key;
    std::shared_ptr<const FoundPlan> plan;
    int64_t bytes;
  };
  using Entries = std::list<Entry>;
  struct Hash {
    size_t operator()(const PlanKey* key) const { return key->hash[0]; }
  };
  struct Equal {
    bool operator()(const PlanKey* a, const PlanKey* b) const {
      return a->hash == b->hash && a->bytes == b->bytes;
    }
  };

  // Takes entries of the end out until `bytes` more fit; they are destroyed by the caller, without
  // the lock.
  void MakeRoom(int64_t bytes, Entries& removed);

  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  Entries entries_;  // most recently used first
  std::unordered_map<const PlanKey*, Entries::iterator, Hash, Equal> by_key_;
  Counters counters_;
};

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_PLAN_CACHE_H_
