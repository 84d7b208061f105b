// Singular value decomposition of small matrices.

#ifndef TENON_BACKENDS_MEASUREMENT_JACOBI_SVD_H_
#define TENON_BACKENDS_MEASUREMENT_JACOBI_SVD_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace tenon::measurement {

// One-sided Jacobi (Hestenes, 1958): rotates the columns of `w` until they are orthogonal. `w` is a
// matrix of `columns` columns, each of `rows` values that lie together; its squares stay in range.
// `v` becomes the columns x columns product of the rotations (by columns), so that the old w is the
// new w times v transposed: the lengths of the new columns are the singular values, unordered.
// `stop` is asked before each column is compared with the others; false, and unfinished, once it
// says so.
bool OrthogonalizeColumns(int64_t rows, int64_t columns, double* w, double* v,
                          absl::FunctionRef<bool()> stop);

// Householder's triangle: rotates the columns of `w` (laid out as above, with no more columns than
// rows) so that column c ends with its element c, and leaves only those `columns` leading elements
// of each, without gaps. All lengths and angles of the columns stay; what they are is in
// `columns` dimensions then. `stop` as above.
bool ReduceColumns(int64_t rows, int64_t columns, double* w, absl::FunctionRef<bool()> stop);

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_JACOBI_SVD_H_
