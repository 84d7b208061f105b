// Prim's algorithm on the mutual reachability of some rows of a space.

#ifndef TENON_BACKENDS_MEASUREMENT_REACHABILITY_H_
#define TENON_BACKENDS_MEASUREMENT_REACHABILITY_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/measurement/hdbscan.h"
#include "backends/measurement/shared_neighbors.h"

namespace tenon::measurement {

// Finds the order in which Prim's algorithm reaches the members from the first one, always the
// closest next and the first of equally close ones, in the graph of mutual reachability distances
// of their dissimilarities. As the dense algorithm would, to the last bit, but pairs without shared
// neighbours, which are all equally far and never closer than others, are not looked at. Keeps its
// memory between calls; not thread-safe.
class ReachabilityOrder {
 public:
  // `members` are at least two different rows. CLIENT_CANCELLED.
  absl::StatusOr<PrimOrder> Find(const SharedNeighbors& space, double alpha,
                                 std::span<const int32_t> members, const Parallel& parallel);

  // For a space of n rows with k neighbours and up to `members` members.
  static int64_t Bytes(int64_t n, int64_t k, int64_t members) {
    return GroupsOfNeighbors::Bytes(n, k, members) + SparseSums::Bytes(n) +
           members * (kKeptPerMember * int64_t{sizeof(Link)} + int64_t{8 * sizeof(double)});
  }

 private:
  static constexpr int64_t kKeptPerMember = 64;

  using Candidate = std::pair<double, int32_t>;  // distance, member

  struct Link {
    int32_t other;
    double product;
  };

  // The similar ones of the other members, valid until the next call. Kept rows are not computed
  // again.
  std::span<const Link> Links(int32_t member);
  void Keep(std::span<const Link> links);
  // The product that makes a member's core distance, for every member.
  absl::Status FindCores(const Parallel& parallel);
  void Relax(int32_t from);
  // The closest of the members that are not reached yet.
  Candidate Next();

  const SharedNeighbors* space_ = nullptr;
  double alpha_ = 0, farthest_ = 0;
  std::span<const int32_t> members_;
  GroupsOfNeighbors groups_;
  SparseSums sums_;
  std::vector<Link> links_, kept_links_;
  std::vector<int64_t> kept_;  // where the kept links of member 0, 1, ... begin, and the last end
  std::vector<double> cores_, products_;  // by member; products to the members reached
  std::vector<int32_t> sources_;          // the member that is as close as any reached one
  std::vector<char> reached_;
  std::vector<Candidate> heap_;  // closest first; entries may be out of date
  int32_t first_left_ = 0;       // every member before it is reached
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_REACHABILITY_H_
