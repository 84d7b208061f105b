// The iteration order of CPython's sets of integers.

#ifndef TENON_BACKENDS_MEASUREMENT_PYTHON_SET_H_
#define TENON_BACKENDS_MEASUREMENT_PYTHON_SET_H_

#include <cstdint>
#include <vector>

namespace tenon::measurement {

// A set of integers in [0, 2^31) that iterates in the order of a set of CPython 3.11 which got the
// same insertions: the slots of its hash table. Not thread-safe.
class PythonSet {
 public:
  void Insert(int32_t value);
  int64_t size() const { return size_; }
  std::vector<int32_t> Values() const;

 private:
  static constexpr int32_t kEmpty = -1;
  static constexpr uint64_t kSmallest = 8;  // slots

  // The slot that holds `value`, or the one that it goes to.
  uint64_t SlotOf(int32_t value) const;
  void Rebuild(uint64_t slots);

  std::vector<int32_t> slots_ = std::vector<int32_t>(kSmallest, kEmpty);
  int64_t size_ = 0;
};

}  // namespace tenon::measurement

#endif  // TENON_BACKENDS_MEASUREMENT_PYTHON_SET_H_
