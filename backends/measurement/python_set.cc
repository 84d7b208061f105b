#include "backends/measurement/python_set.h"

#include <utility>

namespace tenon::measurement {

uint64_t PythonSet::SlotOf(int32_t value) const {
  constexpr uint64_t kNeighborhood = 9;  // slots after the first one that are tried as well
  const uint64_t mask = slots_.size() - 1;
  auto perturbation = static_cast<uint64_t>(value);
  uint64_t first = perturbation & mask;
  for (;;) {
    const uint64_t last = first + kNeighborhood <= mask ? first + kNeighborhood : first;
    for (uint64_t slot = first; slot <= last; ++slot) {
      if (slots_[slot] == kEmpty || slots_[slot] == value) return slot;
    }
    perturbation >>= 5;
    first = (5 * first + 1 + perturbation) & mask;
  }
}

void PythonSet::Insert(int32_t value) {
  int32_t& slot = slots_[SlotOf(value)];
  if (slot == value) return;
  slot = value;
  ++size_;
  const auto used = static_cast<uint64_t>(size_);
  if (5 * used < 3 * (slots_.size() - 1)) return;
  constexpr uint64_t kLarge = 50000;
  const uint64_t wanted = used > kLarge ? 2 * used : 4 * used;
  uint64_t slots = kSmallest;
  while (slots <= wanted) slots *= 2;
  Rebuild(slots);
}

void PythonSet::Rebuild(uint64_t slots) {
  const std::vector<int32_t> old = std::exchange(slots_, std::vector<int32_t>(slots, kEmpty));
  for (const int32_t value : old) {
    if (value != kEmpty) slots_[SlotOf(value)] = value;
  }
}

std::vector<int32_t> PythonSet::Values() const {
  std::vector<int32_t> values;
  values.reserve(size_);
  for (const int32_t value : slots_) {
    if (value != kEmpty) values.push_back(value);
  }
  return values;
}

}  // namespace tenon::measurement
