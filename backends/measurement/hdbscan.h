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
// distances, max(core distance of i, core distance of j, distance of i and j). weights[t] is the
// weight of the edge that reached order[t + 1]. Edges of these weights between consecutive points
// have the same single-linkage tree as the minimum spanning tree.
struct PrimOrder {
  std::vector<int32_t> order;   // every point once
  std::vector<double> weights;  // one fewer, not negative, finite
};

// HDBSCAN (Campello, Moulavi and Sander: Density-based clustering based on hierarchical density
// estimates, PAKDD 2013) with clusters of at least kMinClusterSize points chosen by excess of mass,
// where the set of all points may be the only cluster. Returns one label a point: clusters count
// from 0, noise is -1. Equal weights merge in the order of NumpyArgsort and the stability of two
// children counts in single precision, as in the hdbscan package (0.8.37), whose labels these are.
// At least two points.
std::vector<int32_t> HdbscanLabels(const PrimOrder& prim);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_HDBSCAN_H_
