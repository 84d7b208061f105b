#include "backends/measurement/numpy_argsort.h"

#include <bit>
#include <numeric>
#include <utility>

namespace tenon::measurement {
namespace {

// Sorts positions of `values`; all ranges have their last element included.
class Introsort {
 public:
  Introsort(std::span<const double> values, std::vector<int32_t>& order)
      : values_(values), order_(order) {}

  // `depth` is how many more partitions may be nested.
  void Sort(int64_t first, int64_t last, int depth) {
    if (depth < 0) return HeapSort(first, last - first + 1);
    while (last - first > kInsertion) {
      const int64_t middle = Partition(first, last);
      --depth;
      // The larger part is nested, so the smaller one never asks for the depth.
      if (middle - first < last - middle) {
        Sort(middle + 1, last, depth);
        last = middle - 1;
      } else {
        Sort(first, middle - 1, depth);
        first = middle + 1;
      }
    }
    InsertionSort(first, last);
  }

 private:
  static constexpr int64_t kInsertion = 15;

  double At(int64_t position) const { return values_[order_[position]]; }
  void Swap(int64_t a, int64_t b) { std::swap(order_[a], order_[b]); }

  // Returns the position of the pivot, which has its final place then.
  int64_t Partition(int64_t first, int64_t last) {
    const int64_t middle = first + (last - first) / 2;
    if (At(middle) < At(first)) Swap(middle, first);
    if (At(last) < At(middle)) Swap(last, middle);
    if (At(middle) < At(first)) Swap(middle, first);
    const double pivot = At(middle);
    int64_t low = first, high = last - 1;
    Swap(middle, high);
    for (;;) {
      do ++low;
      while (At(low) < pivot);
      do --high;
      while (pivot < At(high));
      if (low >= high) break;
      Swap(low, high);
    }
    Swap(low, last - 1);
    return low;
  }

  void InsertionSort(int64_t first, int64_t last) {
    for (int64_t next = first + 1; next <= last; ++next) {
      const int32_t moved = order_[next];
      int64_t place = next;
      for (; place > first && values_[moved] < At(place - 1); --place) {
        order_[place] = order_[place - 1];
      }
      order_[place] = moved;
    }
  }

  // The heap has its root at `first`; children of node i (from 1) are 2i and 2i + 1.
  void HeapSort(int64_t first, int64_t count) {
    for (int64_t node = count / 2; node > 0; --node) {
      SiftDown(first, node, count, order_[first + node - 1]);
    }
    for (int64_t rest = count - 1; rest > 0; --rest) {
      const int32_t moved = order_[first + rest];
      order_[first + rest] = order_[first];
      SiftDown(first, 1, rest, moved);
    }
  }

  void SiftDown(int64_t first, int64_t node, int64_t count, int32_t moved) {
    for (int64_t child = 2 * node; child <= count; child = 2 * node) {
      if (child < count && At(first + child - 1) < At(first + child)) ++child;
      if (!(values_[moved] < At(first + child - 1))) break;
      order_[first + node - 1] = order_[first + child - 1];
      node = child;
    }
    order_[first + node - 1] = moved;
  }

  std::span<const double> values_;
  std::vector<int32_t>& order_;
};

}  // namespace

std::vector<int32_t> NumpyArgsort(std::span<const double> values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  if (values.empty()) return order;
  const int depth = 2 * (static_cast<int>(std::bit_width(values.size())) - 1);
  Introsort(values, order).Sort(0, static_cast<int64_t>(values.size()) - 1, depth);
  return order;
}

}  // namespace tenon::measurement
