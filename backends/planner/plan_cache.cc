#include "backends/planner/plan_cache.h"

#include <utility>

namespace tenon::planner {
namespace {

// List and table nodes, the shared plan's control block, and what allocators add.
constexpr int64_t kEntryBytes = 256;

int64_t BytesOf(const PlanKey& key, const FoundPlan& plan) {
  const size_t lists = plan.plan.path.pairs.size() * sizeof(std::pair<int, int>) +
                       plan.plan.sliced.size() * sizeof(int) + plan.methods.size() * sizeof(Method);
  return kEntryBytes + static_cast<int64_t>(sizeof(FoundPlan) + key.bytes.size() + lists);
}

bool IsBetter(double score, double than) {
  return score < than || (than != than && score == score);
}

}  // namespace

std::shared_ptr<const FoundPlan> PlanCache::Find(const PlanKey& key) {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(&key);
  if (found == by_key_.end()) {
    ++counters_.misses;
    return nullptr;
  }
  ++counters_.hits;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->plan;
}

std::shared_ptr<const FoundPlan> PlanCache::Put(const PlanKey& key, FoundPlan plan) {
  const int64_t bytes = BytesOf(key, plan);
  auto shared = std::make_shared<const FoundPlan>(std::move(plan));
  Entries removed;
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(&key);
  const bool is_new = found == by_key_.end();
  if (!is_new) {
    entries_.splice(entries_.begin(), entries_, found->second);
    if (!IsBetter(shared->score, found->second->plan->score)) {
      ++counters_.rejected;
      return found->second->plan;
    }
    // The better plan comes in its place.
    counters_.bytes -= found->second->bytes;
    by_key_.erase(found);
    removed.splice(removed.begin(), entries_, entries_.begin());
    --counters_.entries;
  }
  if (bytes > max_bytes_) return shared;
  MakeRoom(bytes, removed);
  entries_.push_front(Entry{key, shared, bytes});
  by_key_.emplace(&entries_.front().key, entries_.begin());
  counters_.bytes += bytes;
  ++counters_.entries;
  ++(is_new ? counters_.insertions : counters_.improvements);
  return shared;
}

void PlanCache::MakeRoom(int64_t bytes, Entries& removed) {
  while (bytes > max_bytes_ - counters_.bytes) {
    const auto last = std::prev(entries_.end());
    by_key_.erase(&last->key);
    counters_.bytes -= last->bytes;
    --counters_.entries;
    ++counters_.evictions;
    removed.splice(removed.begin(), entries_, last);
  }
}

void PlanCache::Clear() {
  Entries removed;
  std::lock_guard lock(mutex_);
  by_key_.clear();
  removed.swap(entries_);
  counters_.entries = counters_.bytes = 0;
}

PlanCache::Counters PlanCache::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace tenon::planner
