#include "backends/cpu/distance_filter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backends/core/error.h"
#include "backends/cpu/distance_kernels.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kTileBytes = int64_t{24} << 10;  // panels that stay in the first-level cache

int64_t PanelFloats(const tenon_matrix& points) {
  return DistanceFilter::Stride(points.rows) * points.columns;
}

float RoundUp(double value) {
  const auto rounded = static_cast<float>(value);
  return rounded < value ? std::nextafter(rounded, HUGE_VALF) : rounded;
}

float RoundDown(double value) { return -RoundUp(-value); }

// Squares of distances must neither overflow nor lose their relative precision.
bool IsInRange(double radius, bool single) {
  return single ? radius >= 0x1p-20 && radius <= 0x1p+60 : radius >= 0x1p-460 && radius <= 0x1p+490;
}

template <typename T>
std::vector<double> Means(const tenon_matrix& points) {
  const T* data = static_cast<const T*>(points.data);
  std::vector<double> means(points.columns, 0.0);
  for (int64_t j = 0; j < points.rows; ++j) {
    for (int64_t c = 0; c < points.columns; ++c) means[c] += data[j * points.columns + c];
  }
  for (double& mean : means) mean /= static_cast<double>(points.rows);
  return means;
}

// Distances of all rows from the mean.
template <typename T>
std::vector<double> Radii(const tenon_matrix& points, const std::vector<double>& means) {
  const T* data = static_cast<const T*>(points.data);
  std::vector<double> radii(points.rows);
  for (int64_t j = 0; j < points.rows; ++j) {
    double sum = 0;
    for (int64_t c = 0; c < points.columns; ++c) {
      const double centred = data[j * points.columns + c] - means[c];
      sum += centred * centred;
    }
    radii[j] = std::sqrt(sum);
  }
  return radii;
}

// Exact keys of kCount columns at once: their sums are chains of dependent operations.
template <int kCount, typename T>
void ExactKeys(const T* data, int64_t columns, int64_t i, const int32_t* js, double* keys) {
  const T* row = data + i * columns;
  const T* others[kCount];
  T sums[kCount] = {};
  for (int p = 0; p < kCount; ++p) others[p] = data + js[p] * columns;
  for (int64_t c = 0; c < columns; ++c) {
    for (int p = 0; p < kCount; ++p) {
      const T difference = row[c] - others[p][c];
      sums[p] += difference * difference;
    }
  }
  for (int p = 0; p < kCount; ++p) keys[p] = sums[p];
}

template <typename T>
void AllExactKeys(const T* data, int64_t columns, int64_t i, const int32_t* js, int64_t count,
                  double* keys) {
  constexpr int kTogether = 6;
  int64_t p = 0;
  for (; p + kTogether <= count; p += kTogether) {
    ExactKeys<kTogether>(data, columns, i, js + p, keys + p);
  }
  for (; p < count; ++p) ExactKeys<1>(data, columns, i, js + p, keys + p);
}

}  // namespace

bool DistanceFilter::Pays(const tenon_matrix& points) {
  constexpr int64_t kLeastColumns = 12, kMostColumns = 1 << 16, kRows = 512;
  return points.geodesic == 0 && points.columns >= kLeastColumns &&
         points.columns <= kMostColumns && points.rows >= kRows;
}

int64_t DistanceFilter::Stride(int64_t n) {
  return (n + kFilterPanel - 1) / kFilterPanel * kFilterPanel;
}

int64_t DistanceFilter::Bytes(const tenon_matrix& points) {
  const int64_t floats =
      PanelFloats(points) + points.rows * points.columns + Stride(points.rows) + kFilterPanel;
  // Means, radii and margins beside them.
  return floats * int64_t{sizeof(float)} +
         (points.columns + 2 * points.rows) * int64_t{sizeof(double)};
}

absl::StatusOr<std::optional<DistanceFilter>> DistanceFilter::Create(const tenon_matrix& points) {
  DistanceFilter filter;
  filter.points_ = points;
  const bool single = points.dtype == TENON_DTYPE_FLOAT32;
  filter.kind_ = single ? KeyKind::kSquareSingle : KeyKind::kSquare;
  TENON_ASSIGN_OR_RETURN(filter.packed_, Buffer::Allocate(Bytes(points)));
  if (!(single ? filter.Pack<float>() : filter.Pack<double>())) return std::nullopt;
  return filter;
}

template <typename T>
bool DistanceFilter::Pack() {
  const int64_t n = points_.rows, columns = points_.columns;
  const T* data = static_cast<const T*>(points_.data);
  const std::vector<double> means = Means<T>(points_);
  std::vector<double> radii = Radii<T>(points_, means);
  const double largest = *std::max_element(radii.begin(), radii.end());
  const bool single = kind_ == KeyKind::kSquareSingle;
  if (!IsInRange(largest, single)) return false;
  int exponent = 0;
  std::frexp(largest, &exponent);
  const double scale = std::ldexp(1.0, -exponent);
  square_scale_ = scale * scale;

  auto* panels = packed_.as<float>();
  float* rows = panels + PanelFloats(points_);
  float* norms = rows + n * columns;
  std::fill_n(panels, PanelFloats(points_), 0.0f);
  std::fill_n(norms, Stride(n), 0.0f);
  for (int64_t j = 0; j < n; ++j) {
    float* lane = panels + (j / kFilterPanel * columns) * kFilterPanel + j % kFilterPanel;
    double norm = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const auto value = static_cast<float>((data[j * columns + c] - means[c]) * scale);
      lane[c * kFilterPanel] = rows[j * columns + c] = value;
      norm += double{value} * value;
    }
    norms[j] = static_cast<float>(norm);
  }
  constexpr double kUnit = 0x1p-24, kSlack = 1.05, kUnderflow = 0x1p-80;
  const auto d = static_cast<double>(columns);
  const double factor = kSlack * kUnit * (d / 2 + 8 + (single ? d + 3 : 0)) / (1 - d * kUnit);
  for (double& radius : radii) {
    const double sum = (radius + largest) * scale;
    radius = factor * sum * sum + kUnderflow;
  }
  margins_ = std::move(radii);
  return true;
}

void DistanceFilter::Rows(int64_t first_row, int64_t rows, float* out) const {
  const int64_t columns = points_.columns, stride = Stride(points_.rows);
  const auto* panels = packed_.as<float>();
  const float* packed_rows = panels + PanelFloats(points_);
  const float* norms = packed_rows + points_.rows * columns;
  const int64_t panel_bytes = columns * kFilterPanel * int64_t{sizeof(float)};
  const int64_t tile = std::max<int64_t>(1, kTileBytes / panel_bytes);
  for (int64_t p = 0; p < stride / kFilterPanel; p += tile) {
    const int64_t last = std::min(p + tile, stride / kFilterPanel);
    for (int64_t r = 0; r < rows; r += kRowGroup) {
      const int64_t i = first_row + r;
      ApproximateRows(std::min(kRowGroup, rows - r), panels, columns, p, last,
                      packed_rows + i * columns, norms + i, norms, out + r * stride, stride);
    }
  }
}

float DistanceFilter::Upper(int64_t i, double key) const {
  return RoundUp(key * square_scale_ + margins_[i]);
}

float DistanceFilter::Lower(int64_t i, double key) const {
  return RoundDown(key * square_scale_ - margins_[i]);
}

float DistanceFilter::UpperOfValue(int64_t i, float value) const {
  return RoundUp(value + 2 * margins_[i]);
}

void DistanceFilter::Keys(int64_t i, const int32_t* columns, int64_t count, double* keys) const {
  if (kind_ == KeyKind::kSquareSingle) {
    AllExactKeys(static_cast<const float*>(points_.data), points_.columns, i, columns, count, keys);
  } else {
    AllExactKeys(static_cast<const double*>(points_.data), points_.columns, i, columns, count,
                 keys);
  }
}

}  // namespace tenon::cpu
