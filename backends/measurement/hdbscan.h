// Density clusters from the order in which Prim's algorithm reaches points.

#ifndef TENON_BACKENDS_MEASUREMENT_HDBSCAN_H_
#define TENON_BACKENDS_MEASUREMENT_HDBSCAN_H_

#include <cstdint>
#include <vector>

namespace tenon::measurement {

inline constexpr int64_t kMinClusterSize = 5;
// A point's core distance is that to its neighbour of this number; of fewer points, the last one.
inline constexpr int64_t kMinSamples = 5;

// Points in the order in which Prim's algorithm reaches them in the graph of mutual reachability
// distances, max(core distance of i, core distance of j, distance of i and j). The edge of weight
// weights[t] reached order[t + 1] from sources[t], the first reached one of several as close.
struct PrimOrder {
  std::vector<int32_t> order;    // every point once
  std::vector<int32_t> sources;  // one fewer
  std::vector<double> weights;   // one fewer, not negative, finite
};

// The edges that make the single-linkage tree. Both choices have the same tree if all weights
// differ. Where many points are equally far from everything, the minimum spanning tree holds each
// of them by an edge of its own, while the path ties them to each other in groups that can be large
// enough for clusters.
enum class LinkageEdges {
  kSpanningTree,  // from the source: the hdbscan package since it does so (seen in 0.8.44)
  kPath,          // from the point before in the order: the hdbscan package up to 0.8.37
};

// HDBSCAN (Campello, Moulavi and Sander: Density-based clustering based on hierarchical density
// estimates, PAKDD 2013) with clusters of at least kMinClusterSize points chosen by excess of mass,
// where the set of all points may be the only cluster. Returns one label a point: clusters count
// from 0, noise is -1. Equal weights merge in the order of NumpyArgsort and the stability of two
// children counts in single precision, as in the hdbscan package, whose labels these are. At least
// two points.
std::vector<int32_t> HdbscanLabels(const PrimOrder& prim, LinkageEdges edges);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_HDBSCAN_H_
