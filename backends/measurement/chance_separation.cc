#include "backends/measurement/chance_separation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "backends/core/clones.h"
#include "backends/core/error.h"
#include "backends/measurement/counter_random.h"
#include "backends/measurement/numpy_arithmetic.h"
#include "backends/measurement/numpy_random_state.h"

namespace tenon::measurement {
namespace {

constexpr int64_t kShuffles = 20;
constexpr int64_t kEvaluations = kShuffles + 1;  // number 0 has the true labels
constexpr int kSpaces = 2;
constexpr int64_t kPairs = 256;  // of a batch at most
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using Flags = std::vector<uint8_t>;  // 1: the point belongs to the second class

// What all evaluations of a pair in one space share.
struct Cloud {
  std::vector<double> mean;
  double deviation = 0;  // of distances to the mean
};

struct ClassPair {
  int64_t number = 0;  // among all pairs
  int64_t second = 0;  // points of the second class
  std::vector<int32_t> rows;
  std::array<Flags, kSpaces> shuffled;  // [shuffle][row] of NumPy's generator
  std::array<Cloud, kSpaces> clouds;
  std::array<std::array<double, kEvaluations>, kSpaces> raw;

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
  Flags TrueFlags() const {
    Flags flags(rows.size());
    std::fill(flags.end() - second, flags.end(), uint8_t{1});
    return flags;
  }
};

template <typename T>
Cloud CloudOf(const tenon_matrix& matrix, std::span<const int32_t> rows) {
  const PointRows<T> points(matrix);
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<T> mean(points.columns()), buffer(points.columns()), distances(count);
  ColumnMeans(points, rows, 0, points.columns(), mean.data());
  for (int64_t r = 0; r < count; ++r) {
    distances[r] =
        NormOfDifference(points.Read(rows[r], buffer.data()), mean.data(), points.columns());
  }
  const T size = static_cast<T>(count);
  const T middle = PairwiseSum(0, count, [&](int64_t r) { return distances[r]; }) / size;
  const T variance =
      PairwiseSum(0, count,
                  [&](int64_t r) { return (distances[r] - middle) * (distances[r] - middle); }) /
      size;
  return {std::vector<double>(mean.begin(), mean.end()), std::sqrt(variance)};
}

TENON_CLONES void AddRow(const double* __restrict row, int64_t columns, double* __restrict sum) {
  for (int64_t c = 0; c < columns; ++c) sum[c] += row[c];
}

TENON_CLONES double Distance(const double* a, const double* b, int64_t columns) {
  return NormOfDifference(a, b, columns);
}

// The index before it is compared with that of shuffles.
double RawIndex(const tenon_matrix& matrix, std::span<const int32_t> rows, const Cloud& cloud,
                const Flags& flags) {
  const PointRows<double> points(matrix);
  const int64_t columns = points.columns(), count = static_cast<int64_t>(rows.size());
  std::vector<double> buffer(columns), means(2 * columns), exponentials(count);
  std::array<double, 2> sizes = {};
  for (int64_t r = 0; r < count; ++r) {
    AddRow(points.Read(rows[r], buffer.data()), columns, means.data() + flags[r] * columns);
    sizes[flags[r]] += 1;
  }
  for (int64_t p = 0; p < 2 * columns; ++p) means[p] /= sizes[p / columns];
  for (int64_t r = 0; r < count; ++r) {
    const double distance =
        Distance(points.Read(rows[r], buffer.data()), means.data() + flags[r] * columns, columns);
    exponentials[r] = std::exp(distance / cloud.deviation);
  }
  double separability = 0;
  for (int64_t c = 0; c < 2; ++c) {
    const double distance = Distance(means.data() + c * columns, cloud.mean.data(), columns);
    separability += std::exp(distance / cloud.deviation) * sizes[c];
  }
  const double compactness = PairwiseSum(0, count, [&](int64_t r) { return exponentials[r]; });
  return separability * static_cast<double>(count - 2) / compactness;
}

// (v - E) / (1 - E); NaN if some raw index is not a positive number.
double OverChance(const std::array<double, kEvaluations>& raw) {
  double sum = 0;
  for (const double index : raw) {
    if (!std::isfinite(index) || !(index > 0)) return kNaN;
  }
  for (int64_t e = 1; e < kEvaluations; ++e) sum += raw[e];
  const double value = 1 / (1 + 1 / raw[0]);
  const double expected = 1 / (1 + 1 / (sum / double{kShuffles}));
  return expected == 1 ? 0.0 : (value - expected) / (1 - expected);
}

// Pairs of classes in batches that are worth sharing among threads.
class Evaluation {
 public:
  Evaluation(const ClassPoints& original, const ClassPoints& embedded, const ClassMembers& members,
             const ShuffleOptions& options, const Parallel& parallel)
      : spaces_{original, embedded},
        members_(members),
        options_(options),
        parallel_(parallel),
        legacy_(static_cast<uint32_t>(options.seed)) {}

  // Appends the next pair; the labels of NumPy's generator are drawn here, in order.
  void Append(int64_t a, int64_t b) {
    ClassPair pair;
    pair.number = next_number_++;
    pair.second = members_.Size(b);
    for (const int64_t c : {a, b}) {
      const auto rows = members_.Of(c);
      pair.rows.insert(pair.rows.end(), rows.begin(), rows.end());
    }
    for (Flags& all : pair.shuffled) {
      Flags flags = pair.TrueFlags();
      for (int64_t s = 0; options_.numpy && s < kShuffles; ++s) {
        legacy_.Shuffle(std::span(flags));
        all.insert(all.end(), flags.begin(), flags.end());
      }
    }
    batch_rows_ += pair.size();
    batch_.push_back(std::move(pair));
  }

  bool BatchIsFull() const {
    return batch_rows_ >= members_.rows() || static_cast<int64_t>(batch_.size()) == kPairs;
  }

  absl::Status FinishBatch(const std::function<absl::Status(double, double)>& add) {
    const auto pairs = static_cast<int64_t>(batch_.size());
    TENON_RETURN_IF_ERROR(parallel_.ForEach(pairs * kSpaces, [&](int64_t task, int) {
      ClassPair& pair = batch_[task / kSpaces];
      const int space = static_cast<int>(task % kSpaces);
      const ClassPoints& points = spaces_[space];
      pair.clouds[space] = points.single ? CloudOf<float>(points.points, pair.rows)
                                         : CloudOf<double>(points.points, pair.rows);
    }));
    TENON_RETURN_IF_ERROR(parallel_.ForEach(pairs * kSpaces * kEvaluations, [&](int64_t task, int) {
      ClassPair& pair = batch_[task / (kSpaces * kEvaluations)];
      const int space = static_cast<int>(task / kEvaluations % kSpaces);
      const int64_t evaluation = task % kEvaluations;
      pair.raw[space][evaluation] = RawIndex(spaces_[space].points, pair.rows, pair.clouds[space],
                                             FlagsOf(pair, space, evaluation));
    }));
    for (const ClassPair& pair : batch_) {
      TENON_RETURN_IF_ERROR(add(OverChance(pair.raw[0]), OverChance(pair.raw[1])));
    }
    batch_.clear();
    batch_rows_ = 0;
    return absl::OkStatus();
  }

 private:
  Flags FlagsOf(const ClassPair& pair, int space, int64_t evaluation) const {
    if (evaluation == 0 || !options_.numpy) {
      Flags flags = pair.TrueFlags();
      if (evaluation == 0) return flags;
      const int64_t stream = (pair.number * kSpaces + space) * kShuffles + evaluation - 1;
      CounterRandom(options_.seed, static_cast<uint64_t>(stream)).Shuffle(std::span(flags));
      return flags;
    }
    const auto first = pair.shuffled[space].begin() + (evaluation - 1) * pair.size();
    return Flags(first, first + pair.size());
  }

  const std::array<ClassPoints, kSpaces> spaces_;
  const ClassMembers& members_;
  const ShuffleOptions options_;
  const Parallel& parallel_;
  NumpyRandomState legacy_;
  int64_t next_number_ = 0;
  std::vector<ClassPair> batch_;
  int64_t batch_rows_ = 0;
};

}  // namespace

absl::Status ForEachChanceSeparation(const ClassPoints& original, const ClassPoints& embedded,
                                     const ClassMembers& members, const ShuffleOptions& options,
                                     const Parallel& parallel,
                                     const std::function<absl::Status(double, double)>& add) {
  Evaluation evaluation(original, embedded, members, options, parallel);
  for (int64_t a = 0; a < members.classes(); ++a) {
    for (int64_t b = a + 1; b < members.classes(); ++b) {
      evaluation.Append(a, b);
      if (evaluation.BatchIsFull()) TENON_RETURN_IF_ERROR(evaluation.FinishBatch(add));
    }
  }
  return evaluation.FinishBatch(add);
}

int64_t ChanceSeparationBytes(int64_t n, int64_t columns) {
  const int64_t rows = 2 * n;  // the last pair of a batch may have as many as all before
  return rows * int64_t{sizeof(int32_t) + kSpaces * kShuffles} +
         kPairs * (int64_t{sizeof(ClassPair)} + columns * int64_t{sizeof(double)});
}

}  // namespace tenon::measurement
