// Singular value decomposition of small matrices.

#ifndef TENON_BACKENDS_MEASUREMENT_JACOBI_SVD_H_
#define TENON_BACKENDS_MEASUREMENT_JACOBI_SVD_H_

#include <cstdint>

namespace tenon::measurement {

// One-sided Jacobi (Hestenes, 1958): rotates the columns of `w` until they are orthogonal. `w` is a
// matrix of `columns` columns, each of `rows` values that lie together; its squares stay in range.
// `v` becomes the columns x columns product of the rotations (by columns), so that the old w is the
// new w times v transposed: the lengths of the new columns are the singular values, unordered.
void OrthogonalizeColumns(int64_t rows, int64_t columns, double* w, double* v);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_JACOBI_SVD_H_
