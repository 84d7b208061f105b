// Class angular distortion index.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "backends/core/clones.h"
#include "backends/core/error.h"
#include "backends/measurement/classes.h"
#include "backends/measurement/counter_random.h"
#include "backends/measurement/metric.h"
#include "backends/measurement/numpy_generator.h"

namespace tenon::measurement {
namespace {

constexpr int64_t kBlock = 256;          // triplets of one stream of the counter generator
constexpr int64_t kPass = 256 * kBlock;  // triplets that are kept at once

// The angle at x between y and z, members of another class.
struct Triplet {
  int32_t x, y, z;
};

class TripletSampler {
 public:
  explicit TripletSampler(const ClassMembers& members) : members_(members) {
    for (int64_t c = 0; c < members.classes(); ++c) {
      if (members.Size(c) >= 2) pairs_.push_back(c);
    }
  }

  // The order of the draws is the reference's.
  template <typename Random>
  Triplet Draw(Random& random) const {
    const int64_t b = pairs_[random.Below(static_cast<int64_t>(pairs_.size()))];
    int64_t a = random.Below(members_.classes() - 1);
    if (a >= b) ++a;
    const auto from = members_.Of(a), to = members_.Of(b);
    const int64_t x = random.Below(members_.Size(a));
    const int64_t y = random.Below(members_.Size(b));
    int64_t z = random.Below(members_.Size(b));
    while (z == y) z = random.Below(members_.Size(b));
    return {from[x], to[y], to[z]};
  }

 private:
  const ClassMembers& members_;
  std::vector<int64_t> pairs_;  // classes of two members or more
};

// Directions from x to y and z, divided by their largest absolute components, so that small ones
// survive far from the origin when they are squared. Where a difference overflows the coordinates
// are divided first.
struct Directions {
  explicit Directions(int64_t columns) : to_y(columns), to_z(columns) {}
  std::vector<double> to_y, to_z;
};

// to - from into `direction`; returns the largest absolute component.
template <typename T>
[[gnu::always_inline]] inline double Subtract(const T* __restrict from, const T* __restrict to,
                                              int64_t columns, double* __restrict direction) {
  constexpr int64_t kLanes = 8;
  double lanes[kLanes] = {};
  const int64_t whole = columns / kLanes * kLanes;
  for (int64_t c = 0; c < whole; c += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const double difference = double{to[c + l]} - double{from[c + l]};
      direction[c + l] = difference;
      lanes[l] = std::abs(difference) > lanes[l] ? std::abs(difference) : lanes[l];
    }
  }
  double largest = 0;
  for (int64_t c = whole; c < columns; ++c) {
    direction[c] = double{to[c]} - double{from[c]};
    largest = std::max(largest, std::abs(direction[c]));
  }
  for (int64_t l = 0; l < kLanes; ++l) largest = std::max(largest, lanes[l]);
  return largest;
}

// As Subtract, of coordinates divided by the largest absolute one.
template <typename T>
void SubtractScaled(const T* from, const T* to, int64_t columns, double* direction) {
  double largest = 0;
  for (int64_t c = 0; c < columns; ++c) {
    largest = std::max({largest, std::abs(double{to[c]}), std::abs(double{from[c]})});
  }
  for (int64_t c = 0; c < columns; ++c) direction[c] = to[c] / largest - from[c] / largest;
}

// False if `to` is `from`.
template <typename T>
[[gnu::always_inline]] inline bool Direct(const T* from, const T* to, int64_t columns,
                                          double* __restrict direction) {
  const double largest = Subtract(from, to, columns, direction);
  if (largest == 0) return false;
  if (std::isfinite(largest)) {
    for (int64_t c = 0; c < columns; ++c) direction[c] /= largest;
  } else {
    SubtractScaled(from, to, columns, direction);
  }
  return true;
}

// Cosine of the angle at x; 0 if it has no direction. Sums run from left to right.
template <typename T>
[[gnu::always_inline]] inline double CosineOf(const T* points, int64_t columns,
                                              const Triplet& triplet, Directions& directions) {
  const T* x = points + triplet.x * columns;
  double *to_y = directions.to_y.data(), *to_z = directions.to_z.data();
  if (!Direct(x, points + triplet.y * columns, columns, to_y) ||
      !Direct(x, points + triplet.z * columns, columns, to_z)) {
    return 0;
  }
  double dot = 0, y_square = 0, z_square = 0;
  for (int64_t c = 0; c < columns; ++c) {
    dot += to_y[c] * to_z[c];
    y_square += to_y[c] * to_y[c];
    z_square += to_z[c] * to_z[c];
  }
  return std::clamp(dot / std::sqrt(y_square) / std::sqrt(z_square), -1.0, 1.0);
}

TENON_CLONES double Cosine(const double* points, int64_t columns, const Triplet& triplet,
                           Directions& directions) {
  return CosineOf(points, columns, triplet, directions);
}

TENON_CLONES double Cosine(const float* points, int64_t columns, const Triplet& triplet,
                           Directions& directions) {
  return CosineOf(points, columns, triplet, directions);
}

double CosineIn(const tenon_matrix& points, const Triplet& triplet, Directions& directions) {
  return points.dtype == TENON_DTYPE_FLOAT32
             ? Cosine(static_cast<const float*>(points.data), points.columns, triplet, directions)
             : Cosine(static_cast<const double*>(points.data), points.columns, triplet, directions);
}

// Triplets in the order of the draws. Blocks of the counter generator are drawn where they are
// used; NumPy's generator has one order only.
class TripletSource {
 public:
  TripletSource(const MeasureSpec& spec, const TripletSampler& sampler)
      : sampler_(sampler),
        seed_(static_cast<uint64_t>(spec.Integer("random.seed"))),
        numpy_(spec.Text("random.generator") == "numpy"),
        generator_(seed_) {}

  // Draws what triplets [0, count) of the pass need beforehand.
  void StartPass(int64_t count) {
    if (!numpy_) return;
    drawn_.clear();
    for (int64_t t = 0; t < count; ++t) drawn_.push_back(sampler_.Draw(generator_));
  }

  // Calls body(t, triplet) for t in [first, end) of the pass that begins with triplet `start`.
  template <typename Body>
  void ForBlock(int64_t start, int64_t first, int64_t end, const Body& body) const {
    CounterRandom random(seed_, static_cast<uint64_t>((start + first) / kBlock));
    for (int64_t t = first; t < end; ++t) body(t, numpy_ ? drawn_[t] : sampler_.Draw(random));
  }

 private:
  const TripletSampler& sampler_;
  const uint64_t seed_;
  const bool numpy_;
  NumpyGenerator generator_;
  std::vector<Triplet> drawn_;
};

absl::StatusOr<MeasureScores> ClassAngularDistortion(const MeasureSpec& spec,
                                                     const MetricInput& input) {
  const int64_t wanted = spec.Integer("n_triplets");
  const int64_t count = wanted > 0 ? wanted : 10 * input.n;
  const ClassMembers members(input);
  const TripletSampler sampler(members);
  TripletSource source(spec, sampler);
  std::vector<double> squares(std::min(count, kPass));
  double sum = 0;
  for (int64_t start = 0; start < count; start += kPass) {
    const int64_t triplets = std::min(kPass, count - start);
    source.StartPass(triplets);
    TENON_RETURN_IF_ERROR(
        input.parallel->ForEach((triplets + kBlock - 1) / kBlock, [&](int64_t block, int) {
          const int64_t first = block * kBlock, end = std::min(triplets, first + kBlock);
          Directions original(input.original.columns), embedded(input.embedded.columns);
          source.ForBlock(start, first, end, [&](int64_t t, const Triplet& triplet) {
            const double difference = CosineIn(input.original, triplet, original) -
                                      CosineIn(input.embedded, triplet, embedded);
            squares[t] = difference * difference;
          });
        }));
    for (int64_t t = 0; t < triplets; ++t) sum += squares[t];
  }
  return OneScore(spec, sum / (4.0 * static_cast<double>(count)));
}

absl::Status CheckTriplets(const MeasureSpec& spec, const MetricInput& input) {
  TENON_RETURN_IF_ERROR(CheckTwoClasses(spec, input));
  if (input.n_classes < input.n) return absl::OkStatus();
  return BadLabels(spec, "every row has a label of its own, a class of two members is needed");
}

int64_t WorkingBytes(const MeasureSpec& spec, const MetricShape& shape) {
  const int64_t wanted = spec.Integer("n_triplets");
  const int64_t kept = std::min(kPass, wanted > 0 ? wanted : 10 * shape.n);
  return 2 * ClassMembers::Bytes(shape.n) + kept * int64_t{sizeof(double) + 2 * sizeof(Triplet)};
}

constexpr Metric kMetrics[] = {
    {.alias = "cadi",
     .original_points = true,
     .embedded_points = true,
     .evaluate = ClassAngularDistortion,
     .check_original = CheckTriplets,
     .working_bytes = WorkingBytes},
};

}  // namespace

std::span<const Metric> AngleMetrics() { return kMetrics; }

}  // namespace tenon::measurement
