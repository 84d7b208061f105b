#include "backends/schedule/ordered_sum.h"

#include <algorithm>
#include <utility>

namespace tenon::schedule {
namespace {

// Elements as their bytes: they are moved, never computed with.
template <size_t kBytes>
struct Element {
  std::byte bytes[kBytes];
};

template <typename T>
void PlaceAxis(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, size_t axis,
               const T*& block, T* result) {
  if (axis == shape.size()) {
    *result = *block++;
    return;
  }
  if (axis + 1 == shape.size()) {
    const int64_t stride = strides[axis];
    if (stride == 1) {
      std::copy(block, block + shape[axis], result);
    } else {
      for (int64_t i = 0; i < shape[axis]; ++i) result[i * stride] = block[i];
    }
    block += shape[axis];
    return;
  }
  for (int64_t i = 0; i < shape[axis]; ++i) {
    PlaceAxis(shape, strides, axis + 1, block, result + i * strides[axis]);
  }
}

template <typename T>
void AddElements(std::byte* left, const std::byte* right, int64_t count) {
  T* target = reinterpret_cast<T*>(left);
  const T* source = reinterpret_cast<const T*>(right);
  for (int64_t i = 0; i < count; ++i) target[i] += source[i];
}

// Levels of the tree over `groups` leaves: sums of 1, 2, 4, ... groups.
int Levels(int64_t groups) {
  int levels = 1;
  while ((int64_t{1} << levels) <= groups) ++levels;
  return levels;
}

}  // namespace

void PlaceBlock(DType dtype, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                int64_t offset, const void* block, void* result) {
  const auto place = [&]<typename T>(const T* source) {
    PlaceAxis(shape, strides, 0, source, static_cast<T*>(result) + offset);
  };
  switch (DTypeSize(dtype)) {
    case 4:
      return place(static_cast<const Element<4>*>(block));
    case 8:
      return place(static_cast<const Element<8>*>(block));
    default:
      return place(static_cast<const Element<16>*>(block));
  }
}

int64_t OrderedSum::BuffersNeeded(const contraction::Program& program, int64_t first, int64_t last,
                                  int window) {
  return window + Levels(std::min(last - first, program.groups_per_block()));
}

bool OrderedSum::IsNode(int64_t first, int64_t last, int64_t groups) {
  const int64_t length = last - first;
  if ((length & (length - 1)) == 0 && first % length == 0) return true;
  return last == groups && (first == 0 || length < (first & -first));
}

OrderedSum::OrderedSum(const contraction::Program& program, int64_t first, int64_t last, int window,
                       void* memory, void* result)
    : program_(program),
      dtype_(static_cast<DType>(program.descriptor().dtype)),
      first_(first),
      last_(last),
      window_(window),
      result_(result),
      claimed_(first),
      combined_(first),
      finished_(window, false) {
  const int64_t block_bytes = program.descriptor().block_elements * DTypeSize(dtype_);
  auto* next = static_cast<std::byte*>(memory);
  const int64_t levels = BuffersNeeded(program, first, last, window) - window;
  for (int i = 0; i < window; ++i, next += block_bytes) slots_.push_back(next);
  for (int64_t i = 0; i < levels; ++i, next += block_bytes) levels_.push_back(next);
  occupied_.resize(levels, false);
}

bool OrderedSum::Next(Claim* claim) {
  std::unique_lock lock(mutex_);
  freed_.wait(lock,
              [&] { return stopped_ || claimed_ >= last_ || claimed_ < combined_ + window_; });
  if (stopped_ || claimed_ >= last_) return false;
  claim->group = claimed_++;
  claim->partial_sum = slots_[(claim->group - first_) % window_];
  return true;
}

void OrderedSum::Finish(const Claim& claim) {
  std::unique_lock lock(mutex_);
  finished_[(claim.group - first_) % window_] = true;
  // One thread at a time combines; it takes along what others finish meanwhile.
  if (combining_) return;
  combining_ = true;
  while (combined_ < claimed_ && finished_[(combined_ - first_) % window_]) {
    const int64_t group = combined_;
    lock.unlock();
    Combine(group);
    lock.lock();
    finished_[(group - first_) % window_] = false;
    ++combined_;
    freed_.notify_all();
  }
  combining_ = false;
}

void OrderedSum::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  freed_.notify_all();
}

void OrderedSum::Add(std::byte* left, const std::byte* right) const {
  const int64_t count = program_.descriptor().block_elements * (IsComplex(dtype_) ? 2 : 1);
  if (dtype_ == DType::kFloat32 || dtype_ == DType::kComplex64) {
    AddElements<float>(left, right, count);
  } else {
    AddElements<double>(left, right, count);
  }
}

// A binary counter over buffers: two sums of 2^l groups make one of 2^(l+1), the earlier on the
// left. Buffers are swapped, never copied. At a block's end what is left is added right to left.
void OrderedSum::Combine(int64_t group) {
  std::byte*& slot = slots_[(group - first_) % window_];
  size_t level = 0;
  for (; occupied_[level]; ++level) {
    Add(levels_[level], slot);
    std::swap(levels_[level], slot);
    occupied_[level] = false;
  }
  std::swap(levels_[level], slot);
  occupied_[level] = true;

  const bool last_of_block = group + 1 == last_ || (group + 1) % program_.groups_per_block() == 0;
  if (!last_of_block) return;
  std::byte* sum = nullptr;
  for (size_t l = 0; l < levels_.size(); ++l) {
    if (!occupied_[l]) continue;
    if (sum != nullptr) Add(levels_[l], sum);
    sum = levels_[l];
    occupied_[l] = false;
  }
  PlaceBlock(dtype_, program_.block_shape(), program_.block_strides(),
             program_.BlockOffset(group / program_.groups_per_block()), sum, result_);
}

}  // namespace tenon::schedule
