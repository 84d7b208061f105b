#include "backends/cpu/copy_planner.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"

namespace tenon::cpu {
namespace {

using Loops = absl::InlinedVector<CopyLoop, 32>;
using Stride = int64_t CopyLoop::*;

constexpr int64_t kLineBytes = 64;
constexpr int64_t kLongestRun = 32 * 1024;  // bytes; longer ones are cut so that threads share
constexpr int64_t kBlockBytes = 64 * 1024;  // of a block's target: cancelling waits for one
constexpr int64_t kLongestSteps = 64;       // of a block of tiles or runs
constexpr int64_t kLongestSide = 16;        // vectors along a side of a block of tiles
constexpr int64_t kUnitEntries = 512;       // of a block of single units
constexpr int64_t kUnitLoop = 64;           // loops of single units are cut to this

// Nests by target, drops loops of one iteration and merges neighbours that are one loop.
Loops MergeLoops(std::span<const CopyLoop> loops, int64_t element_bytes) {
  Loops nested;
  for (const CopyLoop& loop : loops) {
    if (loop.extent == 1) continue;
    nested.push_back({loop.extent, loop.source * element_bytes, loop.target * element_bytes});
  }
  std::sort(nested.begin(), nested.end(),
            [](const CopyLoop& x, const CopyLoop& y) { return x.target > y.target; });
  size_t n_merged = 0;
  for (const CopyLoop& loop : nested) {
    CopyLoop* outer = n_merged == 0 ? nullptr : &nested[n_merged - 1];
    if (outer != nullptr && outer->source == loop.source * loop.extent &&
        outer->target == loop.target * loop.extent) {
      *outer = {outer->extent * loop.extent, loop.source, loop.target};
    } else {
      nested[n_merged++] = loop;
    }
  }
  nested.resize(n_merged);
  return nested;
}

// The largest divisor of `extent` that is at most `limit`.
int64_t LargestDivisor(int64_t extent, int64_t limit) {
  if (extent <= limit) return extent;
  for (int64_t divisor = limit; divisor > 1; --divisor) {
    if (extent % divisor == 0) return divisor;
  }
  return 1;
}

// The length to cut a loop to: `limit`, unless a shorter one leaves no rest.
int64_t CutLength(int64_t extent, int64_t limit) {
  const int64_t divisor = LargestDivisor(extent, limit);
  return 2 * divisor > limit ? divisor : limit;
}

// Appends the loop `extra` within `table`: each entry is followed by those of its iterations.
void AppendInner(std::vector<int64_t>& table, int64_t extent, int64_t stride) {
  const size_t count = table.size();
  table.resize(count * static_cast<size_t>(extent));
  for (size_t i = count; i-- > 0;) {
    for (int64_t j = extent; j-- > 0;) {
      table[i * static_cast<size_t>(extent) + static_cast<size_t>(j)] = table[i] + j * stride;
    }
  }
}

// A loop of two iterations, split off the low end of a longer one.
struct Bit {
  int64_t source, target;
};

constexpr int Log2(int64_t power) { return std::countr_zero(static_cast<uint64_t>(power)); }

// Takes the loop of two iterations with this stride out of `loops`.
std::optional<Bit> TakeBit(Loops& loops, Stride stride, int64_t value) {
  for (size_t i = loops.size(); i-- > 0;) {
    CopyLoop& loop = loops[i];
    if (loop.*stride != value || loop.extent % 2 != 0) continue;
    const Bit bit = {loop.source, loop.target};
    loop = {loop.extent / 2, 2 * loop.source, 2 * loop.target};
    if (loop.extent == 1) loops.erase(loops.begin() + static_cast<int64_t>(i));
    return bit;
  }
  return std::nullopt;
}

// Nests the loops around blocks that write `contiguous` bytes. The source is read in order, as the
// memory likes it, except that lines of the target are written in pairs: random lines cost a third
// more, longer pieces don't win.
void NestForMemory(Loops& loops, int64_t contiguous) {
  Loops inner;
  for (int64_t next = contiguous; next < 2 * kLineBytes; next *= 2) {
    const std::optional<Bit> bit = TakeBit(loops, &CopyLoop::target, next);
    if (!bit.has_value()) break;
    inner.push_back({2, bit->source, bit->target});
  }
  std::sort(loops.begin(), loops.end(),
            [](const CopyLoop& x, const CopyLoop& y) { return x.source > y.source; });
  loops.insert(loops.end(), inner.rbegin(), inner.rend());
}

// Loops that follow one another without gaps in one of the two layouts, innermost first.
struct Chain {
  Stride stride;
  int64_t next;  // the stride that continues the chain
  int64_t length = 1;
  Loops loops = {};

  // The loop that continues the chain; npos if none does.
  size_t Find(const Loops& from) const {
    for (size_t i = from.size(); i-- > 0;) {
      if (from[i].*stride == next) return i;
    }
    return kNone;
  }
  void Take(Loops& from, size_t i) {
    length *= from[i].extent;
    next *= from[i].extent;
    loops.push_back(from[i]);
    from.erase(from.begin() + static_cast<int64_t>(i));
  }
  std::vector<int64_t> Tabulate(Stride other) const {
    std::vector<int64_t> table = {0};
    table.reserve(static_cast<size_t>(length));
    for (size_t i = loops.size(); i-- > 0;) AppendInner(table, loops[i].extent, loops[i].*other);
    return table;
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);
};

class Planner {
 public:
  explicit Planner(int64_t vector_bytes) : vector_bytes_(vector_bytes) {}

  // The innermost loop is a run if there is one.
  void Plan(Loops loops, int64_t element_bytes) {
    int64_t unit = element_bytes;
    if (!loops.empty() && loops.back().source == unit && loops.back().target == unit) {
      if (loops.back().extent * unit > kLongestRun) {
        const int64_t length = CutLength(loops.back().extent, kLongestRun / unit);
        return Cut(std::move(loops), loops.size() - 1, length,
                   [&](Loops part) { Plan(std::move(part), element_bytes); });
      }
      unit *= loops.back().extent;
      loops.pop_back();
    }
    PlanUnits(std::move(loops), unit);
  }

  std::vector<CopyPart> TakeParts() { return std::move(parts_); }

 private:
  using Continue = absl::FunctionRef<void(Loops)>;

  static bool IsUnit(int64_t bytes) {
    return bytes == 4 || bytes == 8 || bytes == 16 || bytes == 32;
  }

  // Plans for loops in which loop `i` is cut into one of pieces of `length` and a rest.
  void Cut(Loops loops, size_t i, int64_t length, Continue plan) {
    const CopyLoop loop = loops[i];
    const int64_t pieces = loop.extent / length, rest = loop.extent % length;
    Loops cut = loops;
    cut[i].extent = length;
    if (pieces > 1) {
      cut.insert(cut.begin() + static_cast<int64_t>(i),
                 CopyLoop{pieces, loop.source * length, loop.target * length});
    }
    plan(std::move(cut));
    if (rest == 0) return;
    const int64_t source = source_, target = target_;
    source_ += pieces * length * loop.source;
    target_ += pieces * length * loop.target;
    if (rest == 1) {
      loops.erase(loops.begin() + static_cast<int64_t>(i));
    } else {
      loops[i].extent = rest;
    }
    plan(std::move(loops));
    source_ = source;
    target_ = target;
  }

  void PlanUnits(Loops loops, int64_t unit) {
    if (!IsUnit(unit) || unit >= vector_bytes_) return PlanRuns(std::move(loops), unit);
    if (PlanNetwork(loops, unit) || PlanTiles(loops, unit)) return;
    if (unit == 32) return PlanRuns(std::move(loops), unit);
    PlanScattered(std::move(loops), unit);
  }

  CopyPart NewPart(CopyPart::Form form, int64_t unit) const {
    CopyPart part;
    part.form = form;
    part.unit = unit;
    part.source = source_;
    part.target = target_;
    return part;
  }

  void PlanRuns(Loops loops, int64_t unit) {
    CopyPart part = NewPart(CopyPart::Form::kRuns, unit);
    part.steps.push_back({});
    constexpr int64_t kWorthPeeling = 512;
    part.may_stream = unit >= kWorthPeeling || unit % vector_bytes_ == 0;
    NestForMemory(loops, unit);
    AddSteps(part, loops, unit);
    Finish(std::move(part), loops, unit);
  }

  bool PlanNetwork(const Loops& all, int64_t unit);
  bool PlanTiles(const Loops& all, int64_t unit);
  void PlanScattered(Loops loops, int64_t unit);

  // Moves inner loops into the steps of a block as far as they fit. `bytes`: of one step.
  void AddSteps(CopyPart& part, Loops& loops, int64_t bytes);
  // Adds the loops that are left and what follows from them.
  void Finish(CopyPart part, const Loops& loops, int64_t step_bytes);

  const int64_t vector_bytes_;
  int64_t source_ = 0, target_ = 0;  // where what is being planned begins
  std::vector<CopyPart> parts_;
};

void Planner::AddSteps(CopyPart& part, Loops& loops, int64_t bytes) {
  while (!loops.empty()) {
    const auto steps = static_cast<int64_t>(part.steps.size());
    const int64_t limit = std::min(kLongestSteps, kBlockBytes / bytes) / steps;
    CopyLoop& loop = loops.back();
    const int64_t extent = limit < 2 ? 1 : LargestDivisor(loop.extent, limit);
    if (extent == 1) return;
    part.steps.reserve(static_cast<size_t>(steps * extent));
    // The loops come innermost first, so that later copies of the steps lie around earlier ones.
    for (int64_t i = 1; i < extent; ++i) {
      for (int64_t j = 0; j < steps; ++j) {
        CopyPart::Step step = part.steps[static_cast<size_t>(j)];
        step.source += i * loop.source;
        step.target += i * loop.target;
        part.steps.push_back(step);
      }
    }
    if (extent == loop.extent) {
      loops.pop_back();
    } else {
      loop = {loop.extent / extent, loop.source * extent, loop.target * extent};
      return;
    }
  }
}

void Planner::Finish(CopyPart part, const Loops& loops, int64_t step_bytes) {
  part.outer.assign(loops.begin(), loops.end());
  for (const CopyLoop& loop : loops) part.outer_count *= loop.extent;
  part.block_bytes = step_bytes * std::max<int64_t>(1, static_cast<int64_t>(part.steps.size()));
  if (part.form == CopyPart::Form::kTiles) {
    const auto aligned = [this](int64_t offset) { return offset % vector_bytes_ == 0; };
    part.may_stream =
        aligned(part.target) && std::all_of(part.targets.begin(), part.targets.end(), aligned) &&
        std::all_of(part.steps.begin(), part.steps.end(),
                    [&](const CopyPart::Step& step) { return aligned(step.target); }) &&
        std::all_of(loops.begin(), loops.end(),
                    [&](const CopyLoop& loop) { return aligned(loop.target); });
  }
  parts_.push_back(std::move(part));
}

// ---- tiles of powers of two

// Which loop of two iterations each bit of a lane's number stands for.
struct LaneOrder {
  int n_bits;  // of the number; the low ones, within a unit, stay where they are
  int unit_bits;
  const Bit* bits[8];  // by position, from unit_bits on

  int PositionOf(const Bit* bit) const {
    for (int i = unit_bits; i < n_bits; ++i) {
      if (bits[i] == bit) return i;
    }
    return -1;
  }
};

// The choice that leads from one order of lanes to another. `incoming` tells the two vectors apart
// before, `outgoing` after; null where the vector stays alone.
LaneChoice Choose(const LaneOrder& before, const LaneOrder& after, const Bit* incoming,
                  const Bit* outgoing, bool is_second) {
  int weights[Log2(kLargestLanes)] = {};  // of the bits of a lane's number
  for (int i = 0; i < after.n_bits; ++i) {
    const int position = i < after.unit_bits         ? i
                         : after.bits[i] == incoming ? after.n_bits
                                                     : before.PositionOf(after.bits[i]);
    weights[i] = 1 << position;
  }
  LaneChoice choice = {};
  if (is_second) choice.lanes[0] = static_cast<uint8_t>(1 << before.PositionOf(outgoing));
  for (unsigned lane = 1; lane < kLargestLanes; ++lane) {
    choice.lanes[lane] =
        static_cast<uint8_t>(choice.lanes[lane & (lane - 1)] + weights[std::countr_zero(lane)]);
  }
  return choice;
}

// The loops of two iterations next to the unit, as many as a vector holds of either side.
struct VectorBits {
  LaneOrder before, after;  // in the source's vectors and in the target's
  int n_mixed = 0;          // bits that are in only one of them
  const Bit *incoming[kLargestStages], *outgoing[kLargestStages];

  VectorBits(int n_bits, int unit_bits) : before{n_bits, unit_bits, {}}, after(before) {}
  VectorBits(const VectorBits&) = delete;

  // Takes them out of `loops`; false if there are not enough.
  bool Take(Loops& loops) {
    const int first = before.unit_bits, end = before.n_bits;
    for (int i = first; i < end; ++i) {
      before.bits[i] = New(loops, &CopyLoop::source, i);
      if (before.bits[i] == nullptr) return false;
    }
    const Bit *const pool = pool_, *const source_end = pool + n_pool_;
    for (int i = first; i < end; ++i) {
      const Bit* shared = std::find_if(
          pool, source_end, [i](const Bit& bit) { return bit.target == int64_t{4} << i; });
      if (shared == source_end) {
        shared = incoming[n_mixed++] = New(loops, &CopyLoop::target, i);
        if (shared == nullptr) return false;
      }
      after.bits[i] = shared;
    }
    int n_outgoing = 0;
    for (int i = first; i < end; ++i) {
      if (after.PositionOf(before.bits[i]) < 0) outgoing[n_outgoing++] = before.bits[i];
    }
    return true;
  }

 private:
  const Bit* New(Loops& loops, Stride stride, int position) {
    const std::optional<Bit> bit = TakeBit(loops, stride, int64_t{4} << position);
    if (!bit.has_value()) return nullptr;
    pool_[n_pool_] = *bit;
    return &pool_[n_pool_++];
  }

  Bit pool_[2 * kLargestStages];
  int n_pool_ = 0;
};

// The stages that bring the lanes of the source into the target's order.
void MixBits(CopyPart& part, const VectorBits& bits) {
  part.stages = bits.n_mixed;
  part.sources = part.targets = {0};
  for (int i = bits.n_mixed; i-- > 0;) {
    AppendInner(part.sources, 2, bits.incoming[i]->source);
    AppendInner(part.targets, 2, bits.outgoing[i]->target);
  }
  if (part.stages == 0) {
    part.choices[0][0] = Choose(bits.before, bits.after, nullptr, nullptr, false);
  }
  LaneOrder order = bits.before;
  for (int stage = 0; stage < part.stages; ++stage) {
    const Bit *in = bits.incoming[stage], *out = bits.outgoing[stage];
    LaneOrder next = order;
    next.bits[order.PositionOf(out)] = in;
    if (stage == part.stages - 1) next = bits.after;
    for (const bool is_second : {false, true}) {
      part.choices[stage][is_second] = Choose(order, next, in, out, is_second);
    }
    order = next;
  }
}

bool Planner::PlanNetwork(const Loops& all, int64_t unit) {
  Loops loops = all;
  VectorBits bits(Log2(vector_bytes_ / 4), Log2(unit / 4));
  if (!bits.Take(loops)) return false;
  CopyPart part = NewPart(CopyPart::Form::kTiles, unit);
  MixBits(part, bits);
  const int32_t rows = 1 << part.stages;
  part.steps.push_back({0, 0, 0, 0, rows, static_cast<int32_t>(vector_bytes_ / unit)});
  NestForMemory(loops, vector_bytes_);
  AddSteps(part, loops, rows * vector_bytes_);
  Finish(std::move(part), loops, rows * vector_bytes_);
  return true;
}

// ---- tiles of any shape

// The choices that transpose tiles of vectors.
void TransposeChoices(CopyPart& part, int64_t vector_bytes) {
  const int n_bits = Log2(vector_bytes / 4), unit_bits = Log2(part.unit / 4);
  part.stages = n_bits - unit_bits;
  Bit rows[kLargestStages], columns[kLargestStages];
  LaneOrder order = {n_bits, unit_bits, {}};
  for (int i = unit_bits; i < n_bits; ++i) order.bits[i] = &columns[i - unit_bits];
  for (int stage = 0; stage < part.stages; ++stage) {
    LaneOrder next = order;
    next.bits[unit_bits + stage] = &rows[stage];
    for (const bool is_second : {false, true}) {
      part.choices[stage][is_second] =
          Choose(order, next, &rows[stage], &columns[stage], is_second);
    }
    order = next;
  }
}

bool Planner::PlanTiles(const Loops& all, int64_t unit) {
  Loops loops = all;
  Chain rows{&CopyLoop::target, unit}, columns{&CopyLoop::source, unit};
  const int64_t side = vector_bytes_ / unit, limit = kLongestSide * side;
  // Each side gets its innermost loop before either grows into what the other needs.
  for (Chain* chain : {&rows, &columns}) {
    const size_t i = chain->Find(loops);
    if (i == Chain::kNone) return false;
    if (loops[i].extent > limit) {
      // What has been taken so far is innermost as well: look for the loop where it was.
      const auto at = static_cast<size_t>(std::find_if(all.begin(), all.end(),
                                                       [&](const CopyLoop& loop) {
                                                         return loop.source == loops[i].source &&
                                                                loop.target == loops[i].target;
                                                       }) -
                                          all.begin());
      Cut(all, at, CutLength(all[at].extent, limit / 2),
          [&](Loops part) { PlanUnits(std::move(part), unit); });
      return true;
    }
    chain->Take(loops, i);
  }
  for (Chain* chain : {&rows, &columns}) {
    while (chain->length < limit / 4) {
      const size_t i = chain->Find(loops);
      if (i == Chain::kNone || chain->length * loops[i].extent > limit) break;
      chain->Take(loops, i);
    }
  }
  // A tile that is mostly empty costs more than single units do.
  const int64_t stages = Log2(side);
  if (std::min(rows.length, side) * std::min(columns.length, side) < side * stages) return false;

  CopyPart part = NewPart(CopyPart::Form::kTiles, unit);
  TransposeChoices(part, vector_bytes_);
  part.sources = rows.Tabulate(&CopyLoop::source);
  part.targets = columns.Tabulate(&CopyLoop::target);
  for (int64_t row = 0; row < rows.length; row += side) {
    for (int64_t column = 0; column < columns.length; column += side) {
      part.steps.push_back({column * unit, row * unit, static_cast<int32_t>(row),
                            static_cast<int32_t>(column),
                            static_cast<int32_t>(std::min(side, rows.length - row)),
                            static_cast<int32_t>(std::min(side, columns.length - column))});
    }
  }
  const int64_t bytes = rows.length * columns.length * unit;
  const auto tiles = static_cast<int64_t>(part.steps.size());
  NestForMemory(loops, rows.next);
  AddSteps(part, loops, (bytes + tiles - 1) / tiles);
  Finish(std::move(part), loops, (bytes + tiles - 1) / tiles);
  return true;
}

// ---- single units

void Planner::PlanScattered(Loops loops, int64_t unit) {
  Chain rows{&CopyLoop::target, unit}, columns{&CopyLoop::source, unit};
  for (size_t i = 0; i < loops.size(); ++i) {
    if (loops[i].extent <= kUnitLoop) continue;
    const int64_t length = CutLength(loops[i].extent, kUnitLoop);
    const bool ends = i + 1 == loops.size() || loops[i].source == unit || loops[i].target == unit;
    if (!ends) continue;
    return Cut(std::move(loops), i, length, [&](Loops part) { PlanUnits(std::move(part), unit); });
  }
  // The loops of a block: those next to the unit on either side until whole lines are used, then
  // others while the table stays small.
  Loops block;
  int64_t entries = 1;
  const auto take = [&](size_t i) {
    entries *= loops[i].extent;
    block.push_back(loops[i]);
    loops.erase(loops.begin() + static_cast<int64_t>(i));
  };
  for (const Stride stride : {&CopyLoop::target, &CopyLoop::source}) {
    int64_t next = unit;
    while (next < 2 * kLineBytes) {
      const auto continues = [&](const CopyLoop& loop) { return loop.*stride == next; };
      if (const auto taken = std::find_if(block.begin(), block.end(), continues);
          taken != block.end()) {
        next *= taken->extent;
        continue;
      }
      const auto found = std::find_if(loops.begin(), loops.end(), continues);
      if (found == loops.end() || entries * found->extent > kUnitEntries) break;
      next *= found->extent;
      take(static_cast<size_t>(found - loops.begin()));
    }
  }
  constexpr int64_t kEnoughEntries = 64;
  while (!loops.empty() && entries < kEnoughEntries &&
         entries * loops.back().extent <= kUnitEntries) {
    take(loops.size() - 1);
  }
  std::sort(block.begin(), block.end(),
            [](const CopyLoop& x, const CopyLoop& y) { return x.target > y.target; });

  CopyPart part = NewPart(CopyPart::Form::kUnits, unit);
  part.sources = part.targets = {0};
  for (std::vector<int64_t>* table : {&part.sources, &part.targets}) {
    table->reserve(static_cast<size_t>(entries));
  }
  for (const CopyLoop& loop : block) {
    AppendInner(part.sources, loop.extent, loop.source);
    AppendInner(part.targets, loop.extent, loop.target);
  }
  Finish(std::move(part), loops, entries * unit);
}

}  // namespace

std::vector<CopyPart> PlanCopy(std::span<const CopyLoop> loops, int64_t element_bytes,
                               int64_t vector_bytes) {
  Planner planner(vector_bytes);
  planner.Plan(MergeLoops(loops, element_bytes), element_bytes);
  return planner.TakeParts();
}

}  // namespace tenon::cpu
