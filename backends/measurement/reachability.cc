#include "backends/measurement/reachability.h"

#include <algorithm>
#include <functional>

#include "backends/core/error.h"

namespace tenon::measurement {

std::span<const ReachabilityOrder::Link> ReachabilityOrder::Links(int32_t member) {
  if (member + 1 < static_cast<int64_t>(kept_.size())) {
    return {kept_links_.data() + kept_[member], kept_links_.data() + kept_[member + 1]};
  }
  AddRow(space_->lists, members_[member], groups_, sums_);
  links_.clear();
  for (const int32_t other : sums_.touched()) {
    if (other != member) links_.push_back({other, sums_.At(other)});
  }
  sums_.Clear();
  return links_;
}

void ReachabilityOrder::Keep(std::span<const Link> links) {
  const size_t most = members_.size() * kKeptPerMember;
  if (kept_links_.size() + links.size() > most) return;
  kept_links_.insert(kept_links_.end(), links.begin(), links.end());
  kept_.push_back(static_cast<int64_t>(kept_links_.size()));
}

absl::Status ReachabilityOrder::FindCores(const Parallel& parallel) {
  const auto count = static_cast<int32_t>(members_.size());
  const auto rank = static_cast<size_t>(std::min<int64_t>(kMinSamples, count - 1));
  cores_.assign(count, 0);
  kept_.assign(1, 0);
  kept_links_.clear();
  std::vector<double> largest;
  for (int32_t member = 0; member < count; ++member) {
    TENON_RETURN_IF_ERROR(parallel.CheckCancelled());
    const std::span<const Link> links = Links(member);
    largest.clear();
    for (const auto& [other, product] : links) {
      if (largest.size() == rank && product <= largest.back()) continue;
      if (largest.size() == rank) largest.pop_back();
      largest.insert(std::upper_bound(largest.begin(), largest.end(), product, std::greater<>()),
                     product);
    }
    if (largest.size() == rank) cores_[member] = largest.back();
    if (static_cast<int64_t>(kept_.size()) == member + 1) Keep(links);
  }
  return absl::OkStatus();
}

void ReachabilityOrder::Relax(int32_t from) {
  if (cores_[from] == 0) return;  // as far from everything as can be
  for (const auto& [other, shared] : Links(from)) {
    if (reached_[other]) continue;
    // The largest distance has the smallest product.
    const double product = std::min({shared, cores_[from], cores_[other]});
    if (product <= products_[other]) continue;
    const double distance = space_->Dissimilarity(product, 1, alpha_);
    const double before = space_->Dissimilarity(products_[other], 1, alpha_);
    products_[other] = product;
    if (!(distance < before)) continue;  // rounded to the same
    sources_[other] = from;
    heap_.emplace_back(distance, other);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
}

ReachabilityOrder::Candidate ReachabilityOrder::Next() {
  while (!heap_.empty()) {
    const Candidate candidate = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
    // An entry that is out of date comes after the one that replaced it.
    if (!reached_[candidate.second]) return candidate;
  }
  while (reached_[first_left_]) ++first_left_;
  return {farthest_, first_left_};
}

absl::StatusOr<PrimOrder> ReachabilityOrder::Find(const SharedNeighbors& space, double alpha,
                                                  std::span<const int32_t> members,
                                                  const Parallel& parallel) {
  space_ = &space;
  alpha_ = alpha;
  farthest_ = space.Dissimilarity(0, 1, alpha);
  members_ = members;
  groups_.ResetToRows(space.lists, members);
  sums_.Resize(space.lists.n);
  TENON_RETURN_IF_ERROR(FindCores(parallel));
  products_.assign(members.size(), 0);
  sources_.assign(members.size(), 0);
  reached_.assign(members.size(), 0);
  heap_.clear();
  first_left_ = 0;
  PrimOrder prim;
  prim.order.reserve(members.size());
  prim.order.push_back(0);
  while (prim.order.size() < members.size()) {
    TENON_RETURN_IF_ERROR(parallel.CheckCancelled());
    reached_[prim.order.back()] = 1;
    Relax(prim.order.back());
    const auto [distance, member] = Next();
    prim.order.push_back(member);
    prim.sources.push_back(sources_[member]);
    prim.weights.push_back(distance);
  }
  return prim;
}

}  // namespace tenon::measurement
