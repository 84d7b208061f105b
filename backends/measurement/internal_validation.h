// Validity of classes as clusters of points, by the definitions of scikit-learn.
//
// All functions: every class has members, there are at least two. Sums are formed in an order that
// depends on the sizes alone. Single points are computed with as scikit-learn computes with
// float32; squared distances are then formed in double precision and rounded before the root. The
// result is not finite where means or distances overflow. Errors are those of `parallel`.

#ifndef TENON_BACKENDS_MEASUREMENT_INTERNAL_VALIDATION_H_
#define TENON_BACKENDS_MEASUREMENT_INTERNAL_VALIDATION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "backends/core/parallel.h"
#include "backends/measurement/class_separation.h"
#include "backends/measurement/classes.h"

namespace tenon::measurement {

// Mean over the points of (b - a) / max(a, b): a is the mean distance to the other members of the
// point's class, b the least mean distance to the members of another one; 0 for a point that is
// alone in its class, and where a = b = 0 (Rousseeuw: Silhouettes, J. Comput. Appl. Math. 20,
// 1987).
absl::StatusOr<double> Silhouette(const ClassPoints& points, const ClassMembers& members,
                                  const Parallel& parallel);

// Dispersion between the classes over that within, each by its degrees of freedom:
// B (n - C) / (W (C - 1)); 1 if W = 0 (Calinski and Harabasz, Communications in Statistics 3,
// 1974).
absl::StatusOr<double> CalinskiHarabasz(const ClassPoints& points, const ClassMembers& members,
                                        const Parallel& parallel);

// Mean over the classes of the largest (S_c + S_d) / |m_c - m_d| with another class d, S being the
// mean distance of members to their mean m; a pair with the same mean counts 0. 0 if no S, or no
// distance of means, is above 1e-8 (Davies and Bouldin, IEEE TPAMI 1, 1979).
absl::StatusOr<double> DaviesBouldin(const ClassPoints& points, const ClassMembers& members,
                                     const Parallel& parallel);

// What any of them takes for n rows.
int64_t InternalValidationBytes(int64_t n, int64_t columns, int threads);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_INTERNAL_VALIDATION_H_
