#include "server/plan_store.h"

#include <utility>

#include "backends/core/sha256.h"
#include "backends/planner/plan_key.h"

namespace tenon::server {
namespace {

void AppendNumber(int64_t number, std::string& text) {
  text.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

std::string IdOf(const StoredPlan& plan) {
  std::string text = plan.network;
  for (const auto& [left, right] : plan.plan.path.pairs) {
    AppendNumber(left, text);
    AppendNumber(right, text);
  }
  AppendNumber(-1, text);
  for (const int index : plan.plan.sliced) AppendNumber(index, text);
  return "plans/" + HexDigits(Sha256(text).data(), 16);
}

}  // namespace

std::string NetworkKey(const contraction::Expression& expression) {
  return planner::MakePlanKey(expression, {}, "").bytes;
}

int64_t PlanStore::Bytes(const StoredPlan& plan) {
  constexpr int64_t kOverhead = 512;
  return kOverhead + static_cast<int64_t>(plan.network.size() + 2 * plan.owner.size()) +
         static_cast<int64_t>(plan.plan.path.pairs.size()) * 8 +
         static_cast<int64_t>(plan.plan.sliced.size()) * 4;
}

std::shared_ptr<const StoredPlan> PlanStore::Put(std::string owner, std::string network,
                                                 planner::Plan plan,
                                                 v1::PlanProvenance provenance) {
  auto stored = std::make_shared<StoredPlan>();
  stored->owner = std::move(owner);
  stored->network = std::move(network);
  stored->plan = std::move(plan);
  stored->provenance = std::move(provenance);
  stored->id = IdOf(*stored);
  std::lock_guard lock(mutex_);
  const auto known = by_id_.find({stored->owner, stored->id});
  if (known != by_id_.end()) {
    plans_.splice(plans_.begin(), plans_, known->second);
    return plans_.front();
  }
  bytes_ += Bytes(*stored);
  plans_.push_front(stored);
  by_id_[{stored->owner, stored->id}] = plans_.begin();
  while (bytes_ > max_bytes_ && plans_.size() > 1) {
    bytes_ -= Bytes(*plans_.back());
    by_id_.erase({plans_.back()->owner, plans_.back()->id});
    plans_.pop_back();
  }
  return stored;
}

std::shared_ptr<const StoredPlan> PlanStore::Find(const std::string& owner, const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto known = by_id_.find({owner, id});
  if (known == by_id_.end()) return nullptr;
  plans_.splice(plans_.begin(), plans_, known->second);
  return plans_.front();
}

std::vector<std::shared_ptr<const StoredPlan>> PlanStore::FindFor(
    const std::string& owner, const std::string& network) const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const StoredPlan>> found;
  for (const auto& plan : plans_) {
    if (plan->owner == owner && plan->network == network) found.push_back(plan);
  }
  return found;
}

int64_t PlanStore::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

void PlanStore::Clear() {
  std::lock_guard lock(mutex_);
  plans_.clear();
  by_id_.clear();
  bytes_ = 0;
}

}  // namespace tenon::server
