// Plans that the server made, by their ids.

#ifndef TENON_SERVER_PLAN_STORE_H_
#define TENON_SERVER_PLAN_STORE_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/planner/search.h"
#include "tenon/v1/plan.pb.h"

namespace tenon::server {

struct StoredPlan {
  std::string owner;    // the principal that made it
  std::string id;       // "plans/{hexadecimal}"
  std::string network;  // what it is for: the bytes of NetworkKey
  planner::Plan plan;
  v1::PlanProvenance provenance;
};

// The same for equal networks up to names: what a plan can be used for.
std::string NetworkKey(const contraction::Expression& expression);

// The least recently used go first when the limit in bytes is passed. Each owner finds only its
// own; equal plans of two owners are kept twice. Thread-safe.
class PlanStore {
 public:
  explicit PlanStore(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Keeps a plan and returns it with its id: equal plans have equal ids.
  std::shared_ptr<const StoredPlan> Put(std::string owner, std::string network, planner::Plan plan,
                                        v1::PlanProvenance provenance);
  // Null: unknown, gone, or another's.
  std::shared_ptr<const StoredPlan> Find(const std::string& owner, const std::string& id);
  // Those for a network, most recently used first.
  std::vector<std::shared_ptr<const StoredPlan>> FindFor(const std::string& owner,
                                                         const std::string& network) const;
  void Clear();
  // An estimate of the memory of all plans.
  int64_t bytes() const;

 private:
  using Plans = std::list<std::shared_ptr<const StoredPlan>>;
  static int64_t Bytes(const StoredPlan& plan);

  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  Plans plans_;  // most recently used first
  std::map<std::pair<std::string, std::string>, Plans::iterator> by_id_;  // owner, id
  int64_t bytes_ = 0;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_PLAN_STORE_H_
