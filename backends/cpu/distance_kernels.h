// Vector kernels over rows of keys of distances (distance_key.h), compiled per instruction set.
// Vector lanes hold different pairs and nothing fuses where the definition of a distance does not,
// so keys have the same bits on every instruction set. All functions are thread-safe.

#ifndef TENON_BACKENDS_CPU_DISTANCE_KERNELS_H_
#define TENON_BACKENDS_CPU_DISTANCE_KERNELS_H_

#include <cstdint>

namespace tenon::cpu {

// Points that share one vector: a panel. Rows of keys are padded to whole panels.
inline constexpr int64_t kPanel = 8;

// Rows whose sums stay in registers.
inline constexpr int64_t kRowGroup = 6;

// out[r * stride + 8 p + lane] = sum over the columns, from left to right, of the squared
// difference of row r and the point in that lane of panel p, for r < n_rows <= kRowGroup and panels
// [first, last). Panels hold 8 points, column by column. `out` and panels are aligned to 64 bytes.
// With `roots` the square roots are stored: they take little time while the next sums are formed.
void SquaredRows(int64_t n_rows, const double* panels, int64_t columns, int64_t first, int64_t last,
                 const double* rows, bool roots, double* out, int64_t stride);
void SquaredRows(int64_t n_rows, const float* panels, int64_t columns, int64_t first, int64_t last,
                 const float* rows, bool roots, double* out, int64_t stride);

// Points of a panel of the filter (distance_filter.h).
inline constexpr int64_t kFilterPanel = 32;

// out[r * stride + 32 p + lane] = row_norms[r] + norms[32 p + lane] - 2 (row r . that point), for
// r < n_rows <= kRowGroup; products and sums may be fused. `out` and panels are aligned to 64
// bytes.
void ApproximateRows(int64_t n_rows, const float* panels, int64_t columns, int64_t first,
                     int64_t last, const float* rows, const float* row_norms, const float* norms,
                     float* out, int64_t stride);

// values[j] = its square root.
void SquareRoots(double* values, int64_t count);

// counts[t] += how many of values[0 .. count) are at most bounds[t].
void CountNotAbove(const double* values, int64_t count, const double* bounds, int64_t n_bounds,
                   int64_t* counts);
void CountNotAbove(const float* values, int64_t count, const float* bounds, int64_t n_bounds,
                   int64_t* counts);

// Appends to `found` the positions in [begin, end) whose value is at most `bound`, in order, until
// `capacity` are found or more (at most 63 more). Returns where to go on; `*n_found` grows.
int64_t FindNotAbove(const double* values, int64_t begin, int64_t end, double bound,
                     int64_t capacity, int32_t* found, int64_t* n_found);
int64_t FindNotAbove(const float* values, int64_t begin, int64_t end, float bound, int64_t capacity,
                     int32_t* found, int64_t* n_found);
// The same for values above `above` and at most `bound`.
int64_t FindBetween(const float* values, int64_t begin, int64_t end, float above, float bound,
                    int64_t capacity, int32_t* found, int64_t* n_found);

// Minima of interleaved parts of values[0 .. count): the value at j belongs to part j modulo
// n_parts. Parts without a value have infinity. n_parts is a multiple of kMinimaUnit<T>, at most
// kMaxMinima.
inline constexpr int64_t kMaxMinima = 512;
template <typename T>
inline constexpr int64_t kMinimaUnit = 64 / static_cast<int64_t>(sizeof(T));
void PartMinima(const float* values, int64_t count, int64_t n_parts, float* minima);
void PartMinima(const double* values, int64_t count, int64_t n_parts, double* minima);

double Maximum(const double* values, int64_t count);  // at least 0

// Sum over j of exp(factor * squares[j]), factor < 0, within a few units of the last place; squares
// are not negative. A fixed number of partial sums: the bits depend on values and instruction set.
double GaussianSum(const double* squares, int64_t count, double factor);

// Adds exp(factor * squares[i * stride + j]) to row_sums[i] and, unless that is null, to
// column_sums[j], for i < rows, j < columns. The order of the sums is fixed as above.
void GaussianTile(const double* squares, int64_t rows, int64_t columns, int64_t stride,
                  double factor, double* row_sums, double* column_sums);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_DISTANCE_KERNELS_H_
