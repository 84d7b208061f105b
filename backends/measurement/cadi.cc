// Class angular distortion index.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

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

// The largest absolute component of to - from, or of both where that overflows.
template <typename T>
std::pair<double, bool> ScaleOf(const T* from, const T* to, int64_t columns) {
  double largest = 0;
  for (int64_t c = 0; c < columns; ++c) {
    largest = std::max(largest, std::abs(double{to[c]} - double{from[c]}));
  }
  if (std::isfinite(largest)) return {largest, false};
  largest = 0;
  for (int64_t c = 0; c < columns; ++c) {
    largest = std::max({largest, std::abs(double{to[c]}), std::abs(double{from[c]})});
  }
  return {largest, true};
}

double ScaledDifference(double from, double to, std::pair<double, bool> scale) {
  return scale.second ? to / scale.first - from / scale.first : (to - from) / scale.first;
}

// Cosine of the angle at x; 0 if it has no direction. Differences are scaled before they are
// squared, so small ones survive far from the origin.
template <typename T>
double Cosine(const T* points, int64_t columns, const Triplet& triplet) {
  const T* x = points + triplet.x * columns;
  const T* y = points + triplet.y * columns;
  const T* z = points + triplet.z * columns;
  const auto y_scale = ScaleOf(x, y, columns), z_scale = ScaleOf(x, z, columns);
  if (y_scale.first == 0 || z_scale.first == 0) return 0;
  double dot = 0, y_square = 0, z_square = 0;
  for (int64_t c = 0; c < columns; ++c) {
    const double to_y = ScaledDifference(x[c], y[c], y_scale);
    const double to_z = ScaledDifference(x[c], z[c], z_scale);
    dot += to_y * to_z;
    y_square += to_y * to_y;
    z_square += to_z * to_z;
  }
  return std::clamp(dot / std::sqrt(y_square) / std::sqrt(z_square), -1.0, 1.0);
}

double CosineIn(const tenon_matrix& points, const Triplet& triplet) {
  return points.dtype == TENON_DTYPE_FLOAT32
             ? Cosine(static_cast<const float*>(points.data), points.columns, triplet)
             : Cosine(static_cast<const double*>(points.data), points.columns, triplet);
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
          source.ForBlock(start, first, end, [&](int64_t t, const Triplet& triplet) {
            const double difference =
                CosineIn(input.original, triplet) - CosineIn(input.embedded, triplet);
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
