#include "backends/cpu/distance.h"

#include <algorithm>
#include <cmath>

#include "backends/core/clones.h"
#include "backends/core/error.h"

namespace tenon::cpu {
namespace {

using measurement::GreatCircle;

constexpr int64_t kRowGroup = 4;                   // rows whose sums stay in registers
constexpr int64_t kTileBytes = int64_t{24} << 10;  // panels that stay in the first-level cache

template <typename T, int kRows>
[[gnu::always_inline]] inline void SquaredDistances(const T* panels, int64_t columns,
                                                    int64_t first_panel, int64_t last_panel,
                                                    const T* rows, double* out, int64_t stride) {
  typedef T Vector __attribute__((vector_size(kPanel * sizeof(T))));
  for (int64_t p = first_panel; p < last_panel; ++p) {
    const Vector* panel = reinterpret_cast<const Vector*>(panels + p * columns * kPanel);
    Vector sums[kRows] = {};
    for (int64_t c = 0; c < columns; ++c) {
      const Vector x = panel[c];
      for (int r = 0; r < kRows; ++r) {
        const Vector difference = rows[r * columns + c] - x;
        sums[r] += difference * difference;
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int lane = 0; lane < kPanel; ++lane) out[r * stride + p * kPanel + lane] = sums[r][lane];
    }
  }
}

template <typename T>
[[gnu::always_inline]] inline void SquaredDistancesOfGroup(int64_t n_rows, const T* panels,
                                                           int64_t columns, int64_t first,
                                                           int64_t last, const T* rows, double* out,
                                                           int64_t stride) {
  if (n_rows == kRowGroup) {
    SquaredDistances<T, kRowGroup>(panels, columns, first, last, rows, out, stride);
    return;
  }
  for (int64_t r = 0; r < n_rows; ++r) {
    SquaredDistances<T, 1>(panels, columns, first, last, rows + r * columns, out + r * stride,
                           stride);
  }
}

TENON_CLONES void SquaredRows(int64_t n_rows, const double* panels, int64_t columns, int64_t first,
                              int64_t last, const double* rows, double* out, int64_t stride) {
  SquaredDistancesOfGroup(n_rows, panels, columns, first, last, rows, out, stride);
}

TENON_CLONES void SquaredRows(int64_t n_rows, const float* panels, int64_t columns, int64_t first,
                              int64_t last, const float* rows, double* out, int64_t stride) {
  SquaredDistancesOfGroup(n_rows, panels, columns, first, last, rows, out, stride);
}

TENON_CLONES void SquareRoots(double* values, int64_t count) {
  for (int64_t j = 0; j < count; ++j) values[j] = __builtin_sqrt(values[j]);
}

// The float32 square root: rounding the float64 one again gives the correctly rounded value.
TENON_CLONES void SquareRootsFloat(double* values, int64_t count) {
  for (int64_t j = 0; j < count; ++j) {
    values[j] = static_cast<float>(__builtin_sqrt(values[j]));
  }
}

template <typename T>
void PackPanels(const tenon_matrix& points, T* packed) {
  const T* data = static_cast<const T*>(points.data);
  for (int64_t j = 0; j < PaddedRows(points.rows); ++j) {
    T* lane = packed + (j / kPanel * points.columns) * kPanel + j % kPanel;
    for (int64_t c = 0; c < points.columns; ++c) {
      lane[c * kPanel] = j < points.rows ? data[j * points.columns + c] : T{0};
    }
  }
}

// Three arrays of PaddedRows(n): longitude, sine and cosine of the latitude.
template <typename T>
void PackAngles(const tenon_matrix& points, double* packed) {
  const T* data = static_cast<const T*>(points.data);
  const int64_t stride = PaddedRows(points.rows);
  for (int64_t j = 0; j < points.rows; ++j) {
    const double latitude = data[j * points.columns + 1];
    packed[j] = data[j * points.columns];
    packed[stride + j] = std::sin(latitude);
    packed[2 * stride + j] = std::cos(latitude);
  }
}

template <typename T>
void EuclideanRows(const tenon_matrix& points, const T* panels, int64_t first_row, int64_t rows,
                   int64_t first_panel, double* out) {
  const int64_t stride = PaddedRows(points.rows);
  const int64_t panel_bytes = points.columns * kPanel * int64_t{sizeof(T)};
  const int64_t tile = std::max<int64_t>(1, kTileBytes / panel_bytes);
  const T* data = static_cast<const T*>(points.data) + first_row * points.columns;
  for (int64_t p = first_panel; p < stride / kPanel; p += tile) {
    const int64_t last = std::min(p + tile, stride / kPanel);
    for (int64_t r = 0; r < rows; r += kRowGroup) {
      SquaredRows(std::min(kRowGroup, rows - r), panels, points.columns, p, last,
                  data + r * points.columns, out + r * stride, stride);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    double* row = out + r * stride + first_panel * kPanel;
    if constexpr (sizeof(T) == sizeof(float)) {
      SquareRootsFloat(row, stride - first_panel * kPanel);
    } else {
      SquareRoots(row, stride - first_panel * kPanel);
    }
  }
}

}  // namespace

int64_t PackedPoints::Bytes(const tenon_matrix& points) {
  const int64_t rows = PaddedRows(points.rows);
  if (points.geodesic != 0) return 3 * rows * int64_t{sizeof(double)};
  return rows * points.columns * (points.dtype == TENON_DTYPE_FLOAT32 ? 4 : 8);
}

absl::StatusOr<PackedPoints> PackedPoints::Pack(const tenon_matrix& points) {
  PackedPoints packed;
  packed.points_ = points;
  TENON_ASSIGN_OR_RETURN(packed.packed_, Buffer::Allocate(Bytes(points)));
  const bool single = points.dtype == TENON_DTYPE_FLOAT32;
  if (points.geodesic != 0) {
    double* out = packed.packed_.as<double>();
    single ? PackAngles<float>(points, out) : PackAngles<double>(points, out);
  } else if (single) {
    PackPanels(points, packed.packed_.as<float>());
  } else {
    PackPanels(points, packed.packed_.as<double>());
  }
  return packed;
}

void PackedPoints::DistanceRows(int64_t first_row, int64_t rows, int64_t first_column,
                                double* out) const {
  const int64_t first_panel = first_column / kPanel;
  if (points_.geodesic != 0) {
    for (int64_t r = 0; r < rows; ++r) {
      GeodesicRow(first_row + r, first_panel * kPanel, out + r * PaddedRows(points_.rows));
    }
  } else if (points_.dtype == TENON_DTYPE_FLOAT32) {
    EuclideanRows(points_, packed_.as<float>(), first_row, rows, first_panel, out);
  } else {
    EuclideanRows(points_, packed_.as<double>(), first_row, rows, first_panel, out);
  }
}

void PackedPoints::GeodesicRow(int64_t i, int64_t first_column, double* out) const {
  const int64_t stride = PaddedRows(points_.rows);
  const double* longitude = packed_.as<double>();
  const double* sine = longitude + stride;
  const double* cosine = sine + stride;
  for (int64_t j = first_column; j < points_.rows; ++j) {
    out[j] = GreatCircle(sine[i], cosine[i], sine[j], cosine[j], longitude[j] - longitude[i]);
  }
}

}  // namespace tenon::cpu
