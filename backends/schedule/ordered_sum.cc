#include "backends/schedule/ordered_sum.h"

#include <algorithm>
#include <utility>

#include "backends/core/binary_scale.h"
#include "backends/core/error.h"

namespace tenon::schedule {
namespace {

// Elements as their bytes: they are moved, never computed with.
template <size_t kBytes>
struct Element {
  std::byte bytes[kBytes];
};

// Calls `run(position in the block, offset in the result, count, stride)` for every run along the
// block's last axis.
template <typename Run>
void ForEachRun(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, size_t axis,
                int64_t& position, int64_t offset, const Run& run) {
  if (axis + 1 >= shape.size()) {
    const int64_t count = shape.empty() ? 1 : shape.back();
    run(position, offset, count, strides.empty() ? 1 : strides.back());
    position += count;
    return;
  }
  for (int64_t i = 0; i < shape[axis]; ++i) {
    ForEachRun(shape, strides, axis + 1, position, offset + i * strides[axis], run);
  }
}

template <typename T>
void PlaceElements(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                   int64_t offset, const T* block, T* result) {
  int64_t position = 0;
  ForEachRun(shape, strides, 0, position, offset,
             [&](int64_t from, int64_t to, int64_t count, int64_t stride) {
               if (stride == 1) {
                 std::copy(block + from, block + from + count, result + to);
               } else {
                 for (int64_t i = 0; i < count; ++i) result[to + i * stride] = block[from + i];
               }
             });
}

template <typename T>
void AddElements(std::byte* left, const std::byte* right, int64_t count) {
  T* target = reinterpret_cast<T*>(left);
  const T* source = reinterpret_cast<const T*>(right);
  for (int64_t i = 0; i < count; ++i) target[i] += source[i];
}

// Blocks that the groups [first, last) belong to.
int64_t BlocksOf(const contraction::Program& program, int64_t first, int64_t last) {
  if (first >= last) return 0;
  return (last - 1) / program.groups_per_block() - first / program.groups_per_block() + 1;
}

// What is wrong with an exponent of a resume point, whose arithmetic must not overflow.
bool IsPossibleExponent(bool normalizes, int64_t exponent) {
  constexpr int64_t kLargest = int64_t{1} << 60;
  if (!normalizes) return exponent == 0;
  return exponent == kNoExponent || (exponent >= -kLargest && exponent <= kLargest);
}

Error BadResumePoint(const std::string& what) {
  return Error(Reason::kBadParameter, StrCat("the resume point does not fit the run: ", what))
      .Field("resume");
}

bool FitsBlock(const contraction::Program& program, const std::vector<std::byte>& data,
               int64_t exponent) {
  const tenon_program& descriptor = program.descriptor();
  const int64_t bytes = descriptor.block_elements * DTypeSize(static_cast<DType>(descriptor.dtype));
  return data.size() == static_cast<size_t>(bytes) &&
         IsPossibleExponent(descriptor.normalize != 0, exponent);
}

// The blocks of `point` are the `count` blocks from `first` on, each once.
absl::Status CheckBlocks(const contraction::Program& program, int64_t first, int64_t count,
                         const ResumePoint& point) {
  if (static_cast<int64_t>(point.blocks.size()) != count) {
    return BadResumePoint(
        StrCat("it has ", point.blocks.size(), " complete blocks instead of ", count));
  }
  std::vector<bool> seen(static_cast<size_t>(count), false);
  for (const ResumePoint::Block& block : point.blocks) {
    const int64_t at = block.block - first;
    if (at < 0 || at >= count || seen[static_cast<size_t>(at)]) {
      return BadResumePoint(StrCat("block ", block.block, " is none of its blocks, or repeated"));
    }
    seen[static_cast<size_t>(at)] = true;
    if (!FitsBlock(program, block.data, block.exponent)) {
      return BadResumePoint(StrCat("block ", block.block, " has a wrong size or exponent"));
    }
  }
  return absl::OkStatus();
}

// The occupied nodes over `groups` groups are the binary digits of that number.
absl::Status CheckLevels(const contraction::Program& program, int64_t groups,
                         const ResumePoint& point) {
  for (const ResumePoint::Level& level : point.levels) {
    const bool is_digit =
        level.level >= 0 && level.level < 62 && (groups & -groups) == int64_t{1} << level.level;
    if (groups == 0 || !is_digit) {
      return BadResumePoint(StrCat("it has no node of level ", level.level, " there"));
    }
    groups &= groups - 1;
    if (!FitsBlock(program, level.data, level.exponent)) {
      return BadResumePoint(StrCat("level ", level.level, " has a wrong size or exponent"));
    }
  }
  if (groups != 0) return BadResumePoint("nodes of the tree are missing");
  return absl::OkStatus();
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
    PlaceElements(shape, strides, offset, source, static_cast<T*>(result));
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

void ScalePlacedBlock(DType dtype, const std::vector<int64_t>& shape,
                      const std::vector<int64_t>& strides, int64_t offset, int64_t shift,
                      void* result) {
  int64_t position = 0;
  auto* bytes = static_cast<std::byte*>(result);
  ForEachRun(shape, strides, 0, position, offset,
             [&](int64_t, int64_t to, int64_t count, int64_t stride) {
               ScaleStrided(dtype, bytes + to * DTypeSize(dtype), count, stride, shift);
             });
}

int64_t ResultExponent(DType dtype, const void* result, int64_t count, int64_t exponent) {
  if (exponent != kNoExponent) return exponent;
  return HasNonZero(dtype, result, count) ? 0 : kNoExponent;
}

int64_t OrderedSum::BuffersNeeded(const contraction::Program& program, int64_t first, int64_t last,
                                  int window) {
  return window + Levels(std::min(last - first, program.groups_per_block()));
}

int64_t OrderedSum::BytesNeeded(const contraction::Program& program, int64_t first, int64_t last,
                                int window, int64_t limit) {
  const tenon_program& descriptor = program.descriptor();
  const __int128 block =
      __int128{descriptor.block_elements} * DTypeSize(program.output_spec().dtype);
  __int128 bytes = block * BuffersNeeded(program, first, last, window);
  if (descriptor.normalize != 0) {
    bytes += __int128{BlocksOf(program, first, last)} * static_cast<int64_t>(sizeof(int64_t));
  }
  return static_cast<int64_t>(std::min<__int128>(bytes, limit));
}

bool OrderedSum::IsNode(int64_t first, int64_t last, int64_t groups) {
  const int64_t length = last - first;
  if ((length & (length - 1)) == 0 && first % length == 0) return true;
  return last == groups && (first == 0 || length < (first & -first));
}

absl::Status OrderedSum::CheckResumePoint(const contraction::Program& program, int64_t first,
                                          int64_t last, const ResumePoint& point) {
  if (point.next_group == 0 && point.levels.empty() && point.blocks.empty()) {
    return absl::OkStatus();  // the beginning of any range
  }
  if (point.next_group < first || point.next_group > last) {
    return BadResumePoint(
        StrCat("group ", point.next_group, " is not in [", first, ", ", last, "]"));
  }
  const int64_t per_block = program.groups_per_block();
  const bool complete = point.next_group == last;
  const int64_t blocks =
      complete ? BlocksOf(program, first, last) : point.next_group / per_block - first / per_block;
  TENON_RETURN_IF_ERROR(CheckBlocks(program, first / per_block, blocks, point));
  const int64_t begin = std::max(first, point.next_group / per_block * per_block);
  return CheckLevels(program, complete ? 0 : point.next_group - begin, point);
}

OrderedSum::OrderedSum(const contraction::Program& program, int64_t first, int64_t last, int window,
                       void* memory, void* result, Checkpoint* checkpoint)
    : program_(program),
      dtype_(static_cast<DType>(program.descriptor().dtype)),
      first_(first),
      last_(last),
      window_(window),
      result_(result),
      checkpoint_(checkpoint),
      claimed_(first),
      combined_(first),
      finished_(window, false) {
  const int64_t block_bytes = program.descriptor().block_elements * DTypeSize(dtype_);
  auto* next = static_cast<std::byte*>(memory);
  if (normalizes()) {
    const int64_t blocks = BlocksOf(program, first, last);
    block_exponents_ = reinterpret_cast<int64_t*>(next);
    std::fill_n(block_exponents_, blocks, kNoExponent);
    next += blocks * static_cast<int64_t>(sizeof(int64_t));
  }
  const int64_t levels = BuffersNeeded(program, first, last, window) - window;
  for (int i = 0; i < window; ++i, next += block_bytes) slots_.push_back({next, 0});
  for (int64_t i = 0; i < levels; ++i, next += block_bytes) levels_.push_back({next, 0});
  occupied_.resize(levels, false);
}

void OrderedSum::Resume(const ResumePoint& point) {
  for (const ResumePoint::Block& block : point.blocks) {
    PutBlock(block.block, block.data.data(), block.exponent);
  }
  for (const ResumePoint::Level& level : point.levels) {
    Sum& sum = levels_[level.level];
    std::copy(level.data.begin(), level.data.end(), sum.data);
    sum.exponent = level.exponent;
    occupied_[level.level] = true;
  }
  claimed_ = combined_ = std::max(point.next_group, first_);
}

bool OrderedSum::TryNext(Claim* claim) {
  std::lock_guard lock(mutex_);
  if (!NextFits()) return false;
  claim->group = claimed_++;
  claim->partial_sum = SlotOf(claim->group).data;
  return true;
}

bool OrderedSum::HasNext() const {
  std::lock_guard lock(mutex_);
  return NextFits();
}

bool OrderedSum::AllClaimed() const {
  std::lock_guard lock(mutex_);
  return claimed_ >= last_;
}

void OrderedSum::Finish(const Claim& claim) {
  std::lock_guard lock(mutex_);
  finished_[(claim.group - first_) % window_] = true;
  SlotOf(claim.group).exponent = claim.exponent;
}

absl::StatusOr<bool> OrderedSum::CombineNext() {
  int64_t group;
  {
    std::lock_guard lock(mutex_);
    if (combining_ || combined_ >= claimed_ || !finished_[(combined_ - first_) % window_]) {
      return false;
    }
    combining_ = true;
    group = combined_;
  }
  // After an error `combining_` stays set, so that nobody combines or tells anything any more.
  TENON_RETURN_IF_ERROR(Combine(group));
  std::lock_guard lock(mutex_);
  finished_[(group - first_) % window_] = false;
  ++combined_;
  combining_ = false;
  return true;
}

void OrderedSum::Add(Sum& left, const Sum& right) const {
  const int64_t elements = program_.descriptor().block_elements;
  if (normalizes()) {
    left.exponent =
        AddScaled(dtype_, left.data, left.exponent, right.data, right.exponent, elements);
    return;
  }
  const int64_t count = elements * (IsComplex(dtype_) ? 2 : 1);
  if (dtype_ == DType::kFloat32 || dtype_ == DType::kComplex64) {
    AddElements<float>(left.data, right.data, count);
  } else {
    AddElements<double>(left.data, right.data, count);
  }
}

// A binary counter over buffers: two sums of 2^l groups make one of 2^(l+1), the earlier on the
// left. Buffers are swapped, never copied. At a block's end what is left is added right to left.
absl::Status OrderedSum::Combine(int64_t group) {
  Sum& slot = SlotOf(group);
  size_t level = 0;
  for (; occupied_[level]; ++level) {
    Add(levels_[level], slot);
    std::swap(levels_[level], slot);
    occupied_[level] = false;
  }
  std::swap(levels_[level], slot);
  occupied_[level] = true;

  const bool last_of_block = group + 1 == last_ || (group + 1) % program_.groups_per_block() == 0;
  if (!last_of_block) return TellCombined(group + 1);
  const Sum* sum = nullptr;
  for (size_t l = 0; l < levels_.size(); ++l) {
    if (!occupied_[l]) continue;
    if (sum != nullptr) Add(levels_[l], *sum);
    sum = &levels_[l];
    occupied_[l] = false;
  }
  TENON_RETURN_IF_ERROR(Place(group / program_.groups_per_block(), *sum));
  return TellCombined(group + 1);
}

absl::Status OrderedSum::Place(int64_t block, Sum sum) {
  if (normalizes()) {
    sum.exponent =
        ScaleToUnit(dtype_, sum.data, sum.exponent, program_.descriptor().block_elements);
  }
  PutBlock(block, sum.data, sum.exponent);
  if (checkpoint_ == nullptr) return absl::OkStatus();
  return checkpoint_->BlockDone(block, normalizes() ? sum.exponent : 0,
                                {sum.data, static_cast<size_t>(block_bytes())});
}

void OrderedSum::PutBlock(int64_t block, const void* data, int64_t exponent) {
  if (normalizes()) {
    block_exponents_[block - first_ / program_.groups_per_block()] = exponent;
  }
  PlaceBlock(dtype_, program_.block_shape(), program_.block_strides(), program_.BlockOffset(block),
             data, result_);
}

absl::Status OrderedSum::TellCombined(int64_t next_group) {
  if (checkpoint_ == nullptr) return absl::OkStatus();
  state_.next_group = next_group;
  state_.levels.clear();
  for (size_t l = 0; l < levels_.size(); ++l) {
    if (!occupied_[l]) continue;
    state_.levels.push_back({static_cast<int>(l),
                             normalizes() ? levels_[l].exponent : 0,
                             {levels_[l].data, static_cast<size_t>(block_bytes())}});
  }
  return checkpoint_->Combined(state_);
}

int64_t OrderedSum::FinishResult() {
  const int64_t blocks = BlocksOf(program_, first_, last_);
  int64_t common = kNoExponent;
  for (int64_t i = 0; i < blocks; ++i) common = std::max(common, block_exponents_[i]);
  const int64_t first_block = first_ / program_.groups_per_block();
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t exponent = block_exponents_[i];
    if (exponent == kNoExponent || exponent == common) continue;
    ScalePlacedBlock(dtype_, program_.block_shape(), program_.block_strides(),
                     program_.BlockOffset(first_block + i), exponent - common, result_);
  }
  const tenon_program& descriptor = program_.descriptor();
  return ResultExponent(dtype_, result_, descriptor.block_elements * descriptor.n_blocks, common);
}

}  // namespace tenon::schedule
