// This file is compiled once for each instruction set: foreach_target.h includes it again.

#include "backends/cpu/copy_kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backends/cpu/highway_targets.h"
#include "backends/cpu/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/copy_kernels.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kLaneBytes = 4;

// Lines that are asked for ahead of time, into the second cache: its queue of misses is the longest
// of a core, and this many lines keep it full.
constexpr int64_t kLinesAhead = 64;
constexpr int64_t kLineBytes = 64;

constexpr bool AsksAhead(CopyMode mode) {
  return mode == CopyMode::kFar || mode == CopyMode::kStream;
}
constexpr bool IsAdd(CopyMode mode) {
  return mode == CopyMode::kAddFloat || mode == CopyMode::kAddDouble;
}
template <CopyMode kMode>
using NumberOf = std::conditional_t<kMode == CopyMode::kAddDouble, double, float>;

// ---- vectors

#if HWY_TARGET == HWY_SCALAR

constexpr int64_t kVectorLanes = 4;
struct Vector {
  uint32_t lanes[kVectorLanes];
};

HWY_INLINE Vector ZeroVector() { return {}; }
HWY_INLINE Vector LoadLanes(const char* from, int64_t lanes) {
  Vector v = {};
  std::memcpy(v.lanes, from, static_cast<size_t>(lanes * kLaneBytes));
  return v;
}
HWY_INLINE Vector LoadVector(const char* from) { return LoadLanes(from, kVectorLanes); }
HWY_INLINE void PutLanes(const Vector& v, char* to, int64_t lanes) {
  std::memcpy(to, v.lanes, static_cast<size_t>(lanes * kLaneBytes));
}
HWY_INLINE void PutVector(const Vector& v, char* to) { PutLanes(v, to, kVectorLanes); }
HWY_INLINE void StreamVector(const Vector& v, char* to) { PutVector(v, to); }

template <typename Number>
HWY_INLINE Vector Add(const Vector& x, const Vector& y) {
  constexpr size_t kNumbers = sizeof(Vector) / sizeof(Number);
  Number sums[kNumbers], terms[kNumbers];
  std::memcpy(sums, x.lanes, sizeof(sums));
  std::memcpy(terms, y.lanes, sizeof(terms));
  for (size_t i = 0; i < kNumbers; ++i) sums[i] += terms[i];
  Vector v;
  std::memcpy(v.lanes, sums, sizeof(sums));
  return v;
}

// Lanes of two vectors, by choice.
struct Choice {
  const uint8_t* lanes;
  explicit Choice(const LaneChoice& choice) : lanes(choice.lanes) {}
};
HWY_INLINE Vector Choose(const Choice& choice, const Vector& a, const Vector& b) {
  Vector v;
  for (int64_t i = 0; i < kVectorLanes; ++i) {
    const int64_t lane = choice.lanes[i];
    v.lanes[i] = lane < kVectorLanes ? a.lanes[lane] : b.lanes[lane - kVectorLanes];
  }
  return v;
}

#else

namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::ScalableTag<uint32_t>;
using Vector = hn::Vec<Lanes>;
constexpr Lanes kLanes;
constexpr int64_t kVectorLanes = HWY_LANES(uint32_t);

HWY_INLINE Vector ZeroVector() { return hn::Zero(kLanes); }
HWY_INLINE Vector LoadVector(const char* from) {
  return hn::LoadU(kLanes, reinterpret_cast<const uint32_t*>(from));
}
// The first `lanes` lanes; nothing is read behind them.
HWY_INLINE Vector LoadLanes(const char* from, int64_t lanes) {
  return hn::MaskedLoad(hn::FirstN(kLanes, static_cast<size_t>(lanes)), kLanes,
                        reinterpret_cast<const uint32_t*>(from));
}
HWY_INLINE void PutVector(Vector v, char* to) {
  hn::StoreU(v, kLanes, reinterpret_cast<uint32_t*>(to));
}
// Nothing is written behind the first `lanes` lanes.
HWY_INLINE void PutLanes(Vector v, char* to, int64_t lanes) {
  hn::BlendedStore(v, hn::FirstN(kLanes, static_cast<size_t>(lanes)), kLanes,
                   reinterpret_cast<uint32_t*>(to));
}
HWY_INLINE void StreamVector(Vector v, char* to) {
  hn::Stream(v, kLanes, reinterpret_cast<uint32_t*>(to));
}

template <typename Number>
HWY_INLINE Vector Add(Vector x, Vector y) {
  const hn::ScalableTag<Number> numbers;
  return hn::BitCast(kLanes, hn::Add(hn::BitCast(numbers, x), hn::BitCast(numbers, y)));
}

// Lanes of two vectors, by choice. Highway has no such operation.
#if HWY_TARGET == HWY_AVX3
struct Choice {
  __m512i lanes;
  explicit Choice(const LaneChoice& choice)
      : lanes(
            _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(choice.lanes)))) {
  }
};
HWY_INLINE Vector Choose(const Choice& choice, Vector a, Vector b) {
  return Vector{_mm512_permutex2var_epi32(a.raw, choice.lanes, b.raw)};
}
#else
struct Choice {
  __m256i lanes;
  explicit Choice(const LaneChoice& choice)
      : lanes(
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(choice.lanes)))) {
  }
};
HWY_INLINE Vector Choose(const Choice& choice, Vector a, Vector b) {
  const __m256 from_a = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(a.raw, choice.lanes));
  const __m256 from_b = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(b.raw, choice.lanes));
  // The bit that says "second vector" becomes the sign, which selects.
  const __m256 is_b = _mm256_castsi256_ps(_mm256_slli_epi32(choice.lanes, 28));
  return Vector{_mm256_castps_si256(_mm256_blendv_ps(from_a, from_b, is_b))};
}
#endif

#endif  // HWY_TARGET == HWY_SCALAR

constexpr int64_t kVectorBytes = kVectorLanes * kLaneBytes;
constexpr int kMostStages = kVectorLanes == 16 ? 4 : kVectorLanes == 8 ? 3 : 2;

template <CopyMode kMode>
HWY_INLINE void StoreVector(Vector v, char* to) {
  if constexpr (kMode == CopyMode::kStream) {
    StreamVector(v, to);
  } else if constexpr (IsAdd(kMode)) {
    PutVector(Add<NumberOf<kMode>>(LoadVector(to), v), to);
  } else {
    PutVector(v, to);
  }
}

template <CopyMode kMode>
HWY_INLINE void StoreLanes(Vector v, char* to, int64_t lanes) {
  if constexpr (IsAdd(kMode)) v = Add<NumberOf<kMode>>(LoadLanes(to, lanes), v);
  PutLanes(v, to, lanes);
}

// ---- tiles

template <int kStages>
struct Choices {
  Choice at[std::max(kStages, 1)][2];
  explicit Choices(const CopyPart& part)
      : Choices(part, std::make_integer_sequence<int, std::max(kStages, 1)>()) {}
  template <int... kStage>
  Choices(const CopyPart& part, std::integer_sequence<int, kStage...>)
      : at{{Choice(part.choices[kStage][0]), Choice(part.choices[kStage][1])}...} {}
};

template <int kStages>
HWY_INLINE void Mix(const Choices<kStages>& choices, Vector* v) {
  constexpr int kVectors = 1 << kStages;
  if constexpr (kStages == 0) v[0] = Choose(choices.at[0][0], v[0], v[0]);
  HWY_UNROLL(4)
  for (int stage = 0; stage < kStages; ++stage) {
    HWY_UNROLL(16)
    for (int i = 0; i < kVectors; ++i) {
      const int j = i | 1 << stage;
      if (j == i) continue;
      const Vector low = Choose(choices.at[stage][0], v[i], v[j]);
      v[j] = Choose(choices.at[stage][1], v[i], v[j]);
      v[i] = low;
    }
  }
}

template <int kStages, CopyMode kMode>
HWY_INLINE void MoveTile(const Choices<kStages>& choices, const int64_t* sources,
                         const int64_t* targets, const char* from, char* to) {
  constexpr int kVectors = 1 << kStages;
  Vector v[kVectors];
  HWY_UNROLL(16)
  for (int i = 0; i < kVectors; ++i) v[i] = LoadVector(from + sources[i]);
  Mix(choices, v);
  HWY_UNROLL(16)
  for (int i = 0; i < kVectors; ++i) StoreVector<kMode>(v[i], to + targets[i]);
}

// A tile at the edge: fewer rows or columns than vectors and lanes.
template <int kStages, CopyMode kMode>
HWY_NOINLINE void MoveEdge(const Choices<kStages>& choices, const CopyPart::Step& step,
                           int64_t unit_lanes, const int64_t* sources, const int64_t* targets,
                           const char* from, char* to) {
  constexpr int kVectors = 1 << kStages;
  Vector v[kVectors];
  HWY_UNROLL(16)
  for (int i = 0; i < kVectors; ++i) {
    v[i] =
        i < step.n_rows ? LoadLanes(from + sources[i], step.n_columns * unit_lanes) : ZeroVector();
  }
  Mix(choices, v);
  HWY_UNROLL(16)
  for (int i = 0; i < kVectors; ++i) {
    if (i < step.n_columns) StoreLanes<kMode>(v[i], to + targets[i], step.n_rows * unit_lanes);
  }
}

// ---- loops

// Where the blocks of a part are, one after the other.
class Walk {
 public:
  Walk(const std::vector<CopyLoop>& loops, int64_t start)
      : loops_(loops.data()), n_(static_cast<int64_t>(loops.size())) {
    for (int64_t i = n_; i-- > 0;) {
      index_[i] = 0;
      if (start == 0) continue;
      index_[i] = start % loops_[i].extent;
      start /= loops_[i].extent;
      source_ += index_[i] * loops_[i].source;
      target_ += index_[i] * loops_[i].target;
    }
  }

  int64_t source() const { return source_; }
  int64_t target() const { return target_; }

  HWY_INLINE void Next() {
    for (int64_t i = n_; i-- > 0;) {
      const CopyLoop& loop = loops_[i];
      source_ += loop.source;
      target_ += loop.target;
      if (++index_[i] < loop.extent) return;
      index_[i] = 0;
      source_ -= loop.extent * loop.source;
      target_ -= loop.extent * loop.target;
    }
  }

 private:
  const CopyLoop* loops_;
  int64_t n_;
  int64_t source_ = 0, target_ = 0;
  int64_t index_[kLargestLoops];
};

struct Range {
  int64_t begin, end;
  const char* source;
  char* target;
  const int32_t* cancel;
};

// Calls `block(source, target, source of the next block)` for the blocks of a range.
template <typename Block>
HWY_INLINE void ForBlocks(const CopyPart& part, const Range& range, Block&& block) {
  Walk walk(part.outer, range.begin);
  const char* source = range.source + part.source;
  char* target = range.target + part.target;
  for (int64_t i = range.begin; i < range.end; ++i) {
    if (IsCancelled(range.cancel)) return;
    const char* from = source + walk.source();
    char* to = target + walk.target();
    if (i + 1 < range.end) walk.Next();
    block(from, to, source + walk.source());
  }
}

HWY_INLINE void AskFor(const char* line) { __builtin_prefetch(line, 0, 2); }

template <int kStages, CopyMode kMode>
void RunTiles(const CopyPart& part, const Range& range) {
  constexpr int kVectors = 1 << kStages;
  const Choices<kStages> choices(part);
  const int64_t unit_lanes = part.unit / kLaneBytes;
  const auto full = static_cast<int32_t>(kVectorLanes / unit_lanes);
  const auto n_steps = static_cast<int64_t>(part.steps.size());
  const int64_t ahead = std::min(n_steps, std::max<int64_t>(1, kLinesAhead / kVectors));
  const CopyPart::Step* const steps = part.steps.data();
  const int64_t *const sources = part.sources.data(), *const targets = part.targets.data();
  ForBlocks(part, range, [&](const char* from, char* to, const char* next) HWY_ATTR {
    for (int64_t i = 0; i < n_steps; ++i) {
      const CopyPart::Step& step = steps[i];
      if constexpr (AsksAhead(kMode)) {
        const bool wraps = i + ahead >= n_steps;
        const CopyPart::Step& later = steps[wraps ? i + ahead - n_steps : i + ahead];
        const char* later_from = (wraps ? next : from) + later.source;
        HWY_UNROLL(16)
        for (int row = 0; row < kVectors; ++row) {
          if (row < later.n_rows) AskFor(later_from + sources[later.row + row]);
        }
      }
      if (HWY_LIKELY(step.n_rows >= kVectors && step.n_columns >= full)) {
        MoveTile<kStages, kMode>(choices, sources + step.row, targets + step.column,
                                 from + step.source, to + step.target);
      } else {
        MoveEdge<kStages, kMode == CopyMode::kStream ? CopyMode::kFar : kMode>(
            choices, step, unit_lanes, sources + step.row, targets + step.column,
            from + step.source, to + step.target);
      }
    }
  });
}

// `bytes` is a multiple of a lane.
template <CopyMode kMode>
HWY_INLINE void MoveRun(const char* from, char* to, int64_t bytes) {
  constexpr CopyMode kEdge = kMode == CopyMode::kStream ? CopyMode::kFar : kMode;
  constexpr int64_t kUnrolled = 4 * kVectorBytes;
  int64_t at = 0;
  if constexpr (kMode == CopyMode::kStream) {
    at = std::min(bytes, static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) % kVectorBytes));
    if (at > 0) StoreLanes<kEdge>(LoadLanes(from, at / kLaneBytes), to, at / kLaneBytes);
  }
  for (; at + kUnrolled <= bytes; at += kUnrolled) {
    if constexpr (AsksAhead(kMode)) {
      for (int64_t line = at; line < at + kUnrolled; line += kLineBytes) {
        AskFor(from + std::min(line + kLinesAhead * kLineBytes, bytes - 1));
      }
    }
    Vector v[4];
    HWY_UNROLL(4)
    for (int64_t i = 0; i < 4; ++i) v[i] = LoadVector(from + at + i * kVectorBytes);
    HWY_UNROLL(4)
    for (int64_t i = 0; i < 4; ++i) StoreVector<kMode>(v[i], to + at + i * kVectorBytes);
  }
  for (; at + kVectorBytes <= bytes; at += kVectorBytes) {
    StoreVector<kMode>(LoadVector(from + at), to + at);
  }
  if (at < bytes) {
    const int64_t lanes = (bytes - at) / kLaneBytes;
    StoreLanes<kEdge>(LoadLanes(from + at, lanes), to + at, lanes);
  }
}

template <CopyMode kMode>
void RunRuns(const CopyPart& part, const Range& range) {
  const auto n_steps = static_cast<int64_t>(part.steps.size());
  const CopyPart::Step* const steps = part.steps.data();
  const int64_t bytes = part.unit;
  constexpr int64_t kBytesAhead = kLinesAhead * kLineBytes;
  const int64_t ahead = std::min(n_steps, std::max<int64_t>(1, kBytesAhead / bytes));
  ForBlocks(part, range, [&](const char* from, char* to, const char* next) HWY_ATTR {
    for (int64_t i = 0; i < n_steps; ++i) {
      if constexpr (AsksAhead(kMode)) {
        const bool wraps = i + ahead >= n_steps;
        const char* later =
            (wraps ? next : from) + steps[wraps ? i + ahead - n_steps : i + ahead].source;
        for (int64_t line = 0; line < std::min(bytes, kBytesAhead); line += kLineBytes) {
          AskFor(later + line);
        }
      }
      MoveRun<kMode>(from + steps[i].source, to + steps[i].target, bytes);
    }
  });
}

struct Unit16 {
  uint64_t low, high;
};
struct Unit32 {
  Unit16 low, high;
};

template <typename Unit>
HWY_INLINE void MoveUnit(const char* from, char* to) {
  Unit unit;
  std::memcpy(&unit, from, sizeof(unit));
  std::memcpy(to, &unit, sizeof(unit));
}

template <typename Unit, CopyMode kMode>
void RunUnits(const CopyPart& part, const Range& range) {
  const auto n_units = static_cast<int64_t>(part.sources.size());
  const int64_t *const sources = part.sources.data(), *const targets = part.targets.data();
  ForBlocks(part, range, [&](const char* from, char* to, const char* next) HWY_ATTR {
    for (int64_t i = 0; i < n_units; ++i) {
      if constexpr (AsksAhead(kMode)) {
        const int64_t later = i + kLinesAhead;
        AskFor(later < n_units ? from + sources[later]
                               : next + sources[std::min(later - n_units, n_units - 1)]);
      }
      const char* source = from + sources[i];
      char* target = to + targets[i];
      if constexpr (IsAdd(kMode)) {
        using Number = NumberOf<kMode>;
        constexpr size_t kNumbers =
            sizeof(Unit) / sizeof(Number);  // NOLINT: 0 where no copy has it
        for (size_t n = 0; n < kNumbers; ++n) {
          Number term, sum;
          std::memcpy(&term, source + n * sizeof(Number), sizeof(term));
          std::memcpy(&sum, target + n * sizeof(Number), sizeof(sum));
          sum += term;
          std::memcpy(target + n * sizeof(Number), &sum, sizeof(sum));
        }
      } else {
        MoveUnit<Unit>(source, target);
      }
    }
  });
}

// ---- choosing

template <CopyMode kMode>
void RunUnitsOfPart(const CopyPart& part, const Range& range) {
  // There is nothing to stream.
  constexpr CopyMode kUnitMode = kMode == CopyMode::kStream ? CopyMode::kFar : kMode;
  switch (part.unit) {
    case 4:
      return RunUnits<uint32_t, kUnitMode>(part, range);
    case 8:
      return RunUnits<uint64_t, kUnitMode>(part, range);
    case 16:
      return RunUnits<Unit16, kUnitMode>(part, range);
    default:
      return RunUnits<Unit32, kUnitMode>(part, range);
  }
}

template <CopyMode kMode, int kStages = kMostStages>
void RunTilesOfPart(const CopyPart& part, const Range& range) {
  if constexpr (kStages > 0) {
    if (part.stages < kStages) return RunTilesOfPart<kMode, kStages - 1>(part, range);
  }
  RunTiles<kStages, kMode>(part, range);
}

template <CopyMode kMode>
void RunPart(const CopyPart& part, const Range& range);

template <CopyMode kMode>
void RunStaged(const CopyPart& part, const Range& range) {
  HWY_ALIGN char stage[kStageBytes];
  ForBlocks(part, range, [&](const char* from, char* to, const char*) HWY_ATTR {
    for (const CopyPart& inner : part.inner) {
      RunPart<CopyMode::kFar>(inner, {0, inner.outer_count, from, stage, nullptr});
    }
    const char* run = stage;
    for (const int64_t offset : part.targets) {
      MoveRun<kMode>(run, to + offset, part.unit);
      run += part.pitch;
    }
  });
}

template <CopyMode kMode>
void RunPart(const CopyPart& part, const Range& range) {
  switch (part.form) {
    case CopyPart::Form::kRuns:
      return RunRuns<kMode>(part, range);
    case CopyPart::Form::kTiles:
      return RunTilesOfPart<kMode>(part, range);
    case CopyPart::Form::kUnits:
      return RunUnitsOfPart<kMode>(part, range);
    case CopyPart::Form::kStaged:
      if constexpr (kMode == CopyMode::kStream || IsAdd(kMode)) RunStaged<kMode>(part, range);
  }
}

void Run(const CopyPart& part, int64_t begin, int64_t end, const char* source, char* target,
         CopyMode mode, const int32_t* cancel) {
  const Range range = {begin, end, source, target, cancel};
  switch (mode) {
    case CopyMode::kNear:
      return RunPart<CopyMode::kNear>(part, range);
    case CopyMode::kFar:
      return RunPart<CopyMode::kFar>(part, range);
    case CopyMode::kStream:
      RunPart<CopyMode::kStream>(part, range);
      return hwy::FlushStream();
    case CopyMode::kAddFloat:
      return RunPart<CopyMode::kAddFloat>(part, range);
    case CopyMode::kAddDouble:
      return RunPart<CopyMode::kAddDouble>(part, range);
  }
}

}  // namespace

const CopyKernels& Kernels() {
  static constexpr CopyKernels kernels = {kVectorBytes, &Run};
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace tenon::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Kernels);

const CopyKernels& BestCopyKernels() { return HWY_DYNAMIC_DISPATCH(Kernels)(); }

}  // namespace tenon::cpu
#endif  // HWY_ONCE
