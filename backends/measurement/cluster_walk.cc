#include "backends/measurement/cluster_walk.h"

#include "backends/core/error.h"

namespace tenon::measurement {
namespace {

void Clear(RowSet& members) { members.Clear(); }
void Clear(PythonSet& members) { members = PythonSet(); }

bool CanExpand(const SharedNeighbors& space, int64_t row) {
  const double* similarity = space.neighbors.data() + row * space.lists.k;
  return std::any_of(similarity, similarity + space.lists.k, [](double s) { return s > 0; });
}

// NumPy's draws go on after every row is reached, for the sake of those that follow.
bool IsComplete(const RowSet& members, int64_t n) { return members.size() == n; }
bool IsComplete(const PythonSet&, int64_t) { return false; }

template <typename Random, typename Members>
absl::Status WalkFrom(const SharedNeighbors& space, int32_t start, int64_t visits,
                      const Parallel& parallel, Random& random, Members& members) {
  const int64_t k = space.lists.k;
  Clear(members);
  members.Insert(start);
  std::vector<int32_t> queue = {start};
  // All but the start were drawn.
  for (size_t next = 0; next < queue.size() && static_cast<int64_t>(queue.size()) - 1 < visits &&
                        !IsComplete(members, space.lists.n);
       ++next) {
    if (next % 1024 == 0) TENON_RETURN_IF_ERROR(parallel.CheckCancelled());
    const int64_t row = queue[next];
    const int32_t* neighbors = space.lists.table.Row(row);
    const double* similarity = space.neighbors.data() + row * k;
    for (int64_t r = 0; r < k; ++r) {
      if (!(random.Uniform() > 1 - similarity[r])) continue;
      queue.push_back(neighbors[r]);
      members.Insert(neighbors[r]);
    }
  }
  return absl::OkStatus();
}

template <typename Random, typename Members>
absl::StatusOr<std::vector<int32_t>> Walk(const SharedNeighbors& space, int64_t visits,
                                          const Parallel& parallel, Random& random,
                                          Members& members) {
  constexpr int64_t kFewestStarts = 100, kStartsPerRow = 10, kWalksPerStart = 1000;
  const int64_t n = space.lists.n;
  const int64_t starts = std::max(kFewestStarts, kStartsPerRow * n);
  for (int64_t attempt = 0; attempt < starts; ++attempt) {
    const auto start = static_cast<int32_t>(random.Below(n));
    if (attempt % 1024 == 0) TENON_RETURN_IF_ERROR(parallel.CheckCancelled());
    if (!CanExpand(space, start)) continue;
    for (int64_t walk = 0; walk < kWalksPerStart; ++walk) {
      TENON_RETURN_IF_ERROR(WalkFrom(space, start, visits, parallel, random, members));
      if (members.size() > 1) return members.Values();
    }
  }
  return std::vector<int32_t>{};
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> WalkCluster(const SharedNeighbors& space, int64_t visits,
                                                 const Parallel& parallel, CounterRandom& random,
                                                 RowSet& members) {
  auto rows = Walk(space, visits, parallel, random, members);
  members.Clear();
  return rows;
}

absl::StatusOr<std::vector<int32_t>> WalkCluster(const SharedNeighbors& space, int64_t visits,
                                                 const Parallel& parallel,
                                                 NumpyRandomState& random) {
  PythonSet members;
  return Walk(space, visits, parallel, random, members);
}

}  // namespace tenon::measurement
