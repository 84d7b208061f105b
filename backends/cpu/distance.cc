#include "backends/cpu/distance.h"

#include <algorithm>
#include <cmath>

#include "backends/core/error.h"

namespace tenon::cpu {
namespace {

using measurement::GreatCircle;

constexpr int64_t kTileBytes = int64_t{24} << 10;  // panels that stay in the first-level cache

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

// out[r * stride] is the key of the first lane of panel 0.
template <typename T>
void EuclideanRows(const tenon_matrix& points, const T* panels, int64_t first_row, int64_t rows,
                   int64_t first_panel, int64_t last_panel, bool roots, double* out,
                   int64_t stride) {
  const int64_t panel_bytes = points.columns * kPanel * int64_t{sizeof(T)};
  const int64_t tile = std::max<int64_t>(1, kTileBytes / panel_bytes);
  const T* data = static_cast<const T*>(points.data) + first_row * points.columns;
  for (int64_t p = first_panel; p < last_panel; p += tile) {
    const int64_t last = std::min(p + tile, last_panel);
    for (int64_t r = 0; r < rows; r += kRowGroup) {
      SquaredRows(std::min(kRowGroup, rows - r), panels, points.columns, p, last,
                  data + r * points.columns, roots, out + r * stride, stride);
    }
  }
}

}  // namespace

void KeysToDistances(KeyKind kind, double* keys, int64_t count) {
  if (kind == KeyKind::kDistance) return;
  SquareRoots(keys, count);
  if (kind == KeyKind::kSquare) return;
  for (int64_t j = 0; j < count; ++j) keys[j] = static_cast<float>(keys[j]);
}

int64_t PackedPoints::Bytes(const tenon_matrix& points) {
  const int64_t rows = PaddedRows(points.rows);
  if (points.geodesic != 0) return 3 * rows * int64_t{sizeof(double)};
  return rows * points.columns * (points.dtype == TENON_DTYPE_FLOAT32 ? 4 : 8);
}

absl::StatusOr<PackedPoints> PackedPoints::Pack(const tenon_matrix& points, bool roots) {
  PackedPoints packed;
  packed.roots_ = roots;
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

KeyKind PackedPoints::kind() const {
  if (points_.geodesic != 0 || roots_) return KeyKind::kDistance;
  return points_.dtype == TENON_DTYPE_FLOAT32 ? KeyKind::kSquareSingle : KeyKind::kSquare;
}

void PackedPoints::KeyRows(int64_t first_row, int64_t rows, int64_t first_column,
                           double* out) const {
  const int64_t first_panel = first_column / kPanel, stride = PaddedRows(points_.rows);
  if (points_.geodesic != 0) {
    for (int64_t r = 0; r < rows; ++r) {
      GeodesicRow(first_row + r, first_panel * kPanel, out + r * stride);
    }
    return;
  }
  KeyPanels(first_row, rows, first_panel, stride / kPanel, out, stride);
}

void PackedPoints::KeyTile(int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
                           double* out, int64_t stride) const {
  const int64_t first_panel = first_column / kPanel;
  KeyPanels(first_row, rows, first_panel, first_panel + columns / kPanel, out - first_column,
            stride);
}

void PackedPoints::KeyPanels(int64_t first_row, int64_t rows, int64_t first_panel,
                             int64_t last_panel, double* out, int64_t stride) const {
  if (points_.dtype == TENON_DTYPE_FLOAT32) {
    EuclideanRows(points_, packed_.as<float>(), first_row, rows, first_panel, last_panel, roots_,
                  out, stride);
  } else {
    EuclideanRows(points_, packed_.as<double>(), first_row, rows, first_panel, last_panel, roots_,
                  out, stride);
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
