#include "server/measurement_seconds.h"

#include <algorithm>
#include <cmath>

namespace tenon::server {
namespace {

constexpr size_t kMaxKinds = 256;
constexpr size_t kMaxSizes = 16;  // of one kind

// How a slower call counts against faster ones, which may have had the machine to themselves.
constexpr double kSlowerShare = 1.0 / 8;
// What an estimate loses when it refuses a call.
constexpr double kRefusedShare = 1.0 / 8;

double Distance(int64_t extent, int64_t other) {
  return std::abs(std::log(static_cast<double>(extent) / static_cast<double>(other)));
}

// Rows count more than columns.
std::pair<double, double> Distances(const std::pair<int64_t, int64_t>& size,
                                    const MeasurementSeconds::Work& work) {
  return {Distance(size.first, work.rows), Distance(size.second, work.columns)};
}

// By how much the seconds differ at least: no measure grows slower than its rows, and none that is
// worth waiting for faster than their cube.
double Scale(int64_t rows, int64_t columns, int64_t seen_rows, int64_t seen_columns) {
  const double by_rows = static_cast<double>(rows) / static_cast<double>(seen_rows);
  const double by_columns = static_cast<double>(columns) / static_cast<double>(seen_columns);
  return std::pow(by_rows, by_rows < 1 ? 3 : 1) * std::min(1.0, by_columns);
}

}  // namespace

void MeasurementSeconds::Observe(const Work& work, double seconds,
                                 std::optional<double> Seconds::*side) {
  if (work.rows <= 0 || work.columns <= 0) return;
  std::lock_guard lock(mutex_);
  auto [entry, is_new] = kinds_.try_emplace(work.kind);
  if (is_new) {
    uses_.push_front(work.kind);
    entry->second.use = uses_.begin();
  } else {
    uses_.splice(uses_.begin(), uses_, entry->second.use);
  }
  auto& sizes = entry->second.sizes;
  const Size size(work.rows, work.columns);
  if (!sizes.contains(size) && sizes.size() == kMaxSizes) {
    // The one that this one stands for best.
    sizes.erase(std::min_element(sizes.begin(), sizes.end(), [&](const auto& a, const auto& b) {
      return Distances(a.first, work) < Distances(b.first, work);
    }));
  }
  std::optional<double>& held = sizes[size].*side;
  if (!held.has_value() || seconds < *held) {
    held = seconds;
  } else {
    *held += (seconds - *held) * kSlowerShare;
  }
  if (kinds_.size() > kMaxKinds) {
    kinds_.erase(uses_.back());
    uses_.pop_back();
  }
}

void MeasurementSeconds::ObserveOriginal(const Work& work, double seconds) {
  Observe(work, seconds, &Seconds::original);
}

void MeasurementSeconds::ObserveProjection(const Work& work, double seconds) {
  Observe(work, seconds, &Seconds::projection);
}

const std::pair<const MeasurementSeconds::Size, MeasurementSeconds::Seconds>*
MeasurementSeconds::Nearest(const Work& work) const {
  const auto kind = kinds_.find(work.kind);
  if (kind == kinds_.end() || work.rows <= 0 || work.columns <= 0) return nullptr;
  const auto& sizes = kind->second.sizes;
  const auto nearest =
      std::min_element(sizes.begin(), sizes.end(), [&](const auto& a, const auto& b) {
        return Distances(a.first, work) < Distances(b.first, work);
      });
  return Distance(nearest->first.first, work.rows) > std::log(kFarthest) ? nullptr : &*nearest;
}

std::optional<double> MeasurementSeconds::UntilFirstScore(const Work& work) const {
  std::lock_guard lock(mutex_);
  const auto* seen = Nearest(work);
  if (seen == nullptr) return std::nullopt;
  const double seconds = seen->second.original.value_or(0) + seen->second.projection.value_or(0);
  return seconds * Scale(work.rows, work.columns, seen->first.first, seen->first.second);
}

void MeasurementSeconds::Refused(const Work& work) {
  std::lock_guard lock(mutex_);
  const auto* seen = Nearest(work);
  if (seen == nullptr) return;
  Seconds& seconds = kinds_.at(work.kind).sizes.at(seen->first);
  for (std::optional<double>* side : {&seconds.original, &seconds.projection}) {
    if (side->has_value()) **side *= 1 - kRefusedShare;
  }
}

}  // namespace tenon::server
