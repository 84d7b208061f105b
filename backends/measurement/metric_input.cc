#include "backends/measurement/metric_input.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/measurement/summation.h"

namespace tenon::measurement {
namespace {

// "all distances between rows of the projection (ld) <what>".
absl::Status UndefinedDistances(const MeasureSpec& spec, int32_t space, const char* what) {
  return Undefined(spec, space,
                   absl::StrCat("all distances between rows of the ",
                                space == kOriginal ? "data set (hd) " : "projection (ld) ", what));
}

}  // namespace

const tenon_resource& Find(const MetricInput& input, const ResourceKey& key) {
  return *std::find_if(input.resources.begin(), input.resources.end(),
                       [&](const tenon_resource& resource) {
                         ResourceKey same = resource.key;
                         same.k = key.k;
                         return resource.key.k >= key.k && SameKey(same, key);
                       });
}

IndexTable Neighbors(const MetricInput& input, int32_t space, int64_t k) {
  const tenon_resource& resource = Find(input, {TENON_RESOURCE_KNN, space, k, 0});
  return {static_cast<const int32_t*>(resource.data), resource.key.k};
}

IndexTable SelectedRanks(const MetricInput& input, int64_t k, int64_t half) {
  const tenon_resource& resource = Find(input, {TENON_RESOURCE_SELECTED_RANKS, kPair, k, 0});
  return {static_cast<const int32_t*>(resource.data) + half * input.n * resource.key.k,
          resource.key.k};
}

void StoreMean(const MeasureSpec& spec, const MetricInput& input, size_t number,
               const std::function<double(int64_t i)>& local, MeasureScores& result) {
  const OutputInfo& output = spec.info->outputs[number];
  std::vector<double> values;
  if (input.return_local) values.reserve(input.n);
  CompensatedSum sum;
  for (int64_t i = 0; i < input.n; ++i) {
    const double value = local(i);
    sum.Add(value);
    if (input.return_local) values.push_back(value);
  }
  result.scores[output.key] = sum.Value() / static_cast<double>(input.n);
  if (input.return_local) result.local_scores[output.local_key] = std::move(values);
}

absl::StatusOr<MeasureScores> OneScore(const MeasureSpec& spec, double value) {
  if (!std::isfinite(value)) {
    return Undefined(
        spec, kEmbedded,
        "distances of the projection (ld) or of the data set (hd) overflow or underflow");
  }
  MeasureScores result;
  result.scores[spec.info->outputs.front().key] = value;
  return result;
}

absl::Status Undefined(const MeasureSpec& spec, int32_t space, const std::string& what) {
  return Error(Reason::kUndefinedScore, absl::StrCat(spec.info->id, " is not defined: ", what))
      .Field(space == kOriginal ? "dataset" : "projection");
}

absl::Status ZeroDistances(const MeasureSpec& spec, int32_t space) {
  return UndefinedDistances(spec, space, "are zero");
}

absl::Status EqualDistances(const MeasureSpec& spec, int32_t space, double distance) {
  return distance == 0 ? ZeroDistances(spec, space) : UndefinedDistances(spec, space, "are equal");
}

absl::Status Overflow(const MeasureSpec& spec, int32_t space, double largest) {
  const char* sums = std::isfinite(largest) ? "sums of squares of distances" : "distances";
  return Undefined(
      spec, space,
      absl::StrCat(sums, " between rows of the ",
                   space == kOriginal ? "data set (hd)" : "projection (ld)", " overflow"));
}

}  // namespace tenon::measurement
