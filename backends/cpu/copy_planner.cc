#include "backends/cpu/copy_planner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "backends/cpu/copy_lanes.h"
#include "backends/cpu/copy_loops.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kLongestRun = int64_t{32}
                                << 10;  // bytes; longer ones are cut so that threads share
constexpr int64_t kBlockBytes = int64_t{64} << 10;  // of a block's target: cancelling waits for one
constexpr int64_t kLongestSteps = 64;               // of a block of tiles or runs
constexpr int64_t kLongestSide = 16;                // vectors along a side of a block of tiles
constexpr int64_t kUnitEntries = 512;               // of a block of single units
constexpr int64_t kUnitLoop = 64;                   // loops of single units are cut to this
constexpr int64_t kWorthPeeling = 512;              // bytes of a run whose ends need not be aligned
constexpr int64_t kEnoughRun = 2048;  // bytes of a run in a buffer: it grows up to this
constexpr int64_t kLongestStagedRun = 8192;

class Planner {
 public:
  // `is_far`: the target is to be written past the caches.
  Planner(int64_t vector_bytes, bool is_far) : vector_bytes_(vector_bytes), is_far_(is_far) {}

  // The innermost loop is a run if there is one.
  void Plan(Loops loops, int64_t element_bytes) {
    int64_t unit = element_bytes;
    if (!loops.empty() && loops.back().source == unit && loops.back().target == unit) {
      if (loops.back().extent * unit > kLongestRun) {
        const int64_t length = CutLength(loops.back().extent, kLongestRun / unit);
        const size_t last = loops.size() - 1;  // before the loops are moved
        return Cut(std::move(loops), last, length,
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

  // For loops around units of contiguous bytes.
  void PlanUnits(Loops loops, int64_t unit) {
    const size_t first = parts_.size();
    PlanDirectly(loops, unit);
    const auto streams = [](const CopyPart& part) { return part.may_stream; };
    const auto begin = parts_.begin() + static_cast<int64_t>(first);
    if (!is_far_ || std::all_of(begin, parts_.end(), streams)) return;
    if (std::optional<CopyPart> part = PlanStaged(std::move(loops), unit); part.has_value()) {
      parts_.resize(first);
      parts_.push_back(*std::move(part));
    }
  }

  void PlanDirectly(Loops loops, int64_t unit) {
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
    NestForMemory(loops, unit);
    AddSteps(part, loops, unit);
    Finish(std::move(part), loops, unit);
  }

  bool PlanNetwork(const Loops& all, int64_t unit);
  bool PlanTiles(const Loops& all, int64_t unit);
  void PlanScattered(Loops loops, int64_t unit);
  std::optional<CopyPart> PlanStaged(Loops loops, int64_t unit);

  // Moves inner loops into the steps of a block as far as they fit. `bytes`: of one step.
  void AddSteps(CopyPart& part, Loops& loops, int64_t bytes);
  // Adds the loops that are left and what follows from them.
  void Finish(CopyPart part, const Loops& loops, int64_t step_bytes);
  bool IsAligned(const CopyPart& part) const;

  const int64_t vector_bytes_;
  const bool is_far_;
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
  const bool is_runs = part.form == CopyPart::Form::kRuns;
  part.may_stream = (is_runs && part.unit >= kWorthPeeling) ||
                    (part.form != CopyPart::Form::kUnits && IsAligned(part));
  parts_.push_back(std::move(part));
}

// Whether the part writes whole vectors of an aligned target.
bool Planner::IsAligned(const CopyPart& part) const {
  const auto aligned = [this](int64_t offset) { return offset % vector_bytes_ == 0; };
  return aligned(part.target) && (part.form == CopyPart::Form::kTiles || aligned(part.unit)) &&
         std::all_of(part.targets.begin(), part.targets.end(), aligned) &&
         std::all_of(part.steps.begin(), part.steps.end(),
                     [&](const CopyPart::Step& step) { return aligned(step.target); }) &&
         std::all_of(part.outer.begin(), part.outer.end(),
                     [&](const CopyLoop& loop) { return aligned(loop.target); });
}

bool Planner::PlanNetwork(const Loops& all, int64_t unit) {
  Loops loops = all;
  CopyPart part = NewPart(CopyPart::Form::kTiles, unit);
  if (!MixLowLoops(part, loops, vector_bytes_)) return false;
  const int32_t rows = 1 << part.stages;
  part.steps.push_back({0, 0, 0, 0, rows, static_cast<int32_t>(vector_bytes_ / unit)});
  NestForMemory(loops, vector_bytes_);
  AddSteps(part, loops, rows * vector_bytes_);
  Finish(std::move(part), loops, rows * vector_bytes_);
  return true;
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
  TransposeUnits(part, vector_bytes_);
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

// ---- blocks that are built in a buffer

// A block of long runs of the target, and of the source loops that fill lines: what no vectors fill
// as it is goes to a buffer first, and leaves it in whole lines.
std::optional<CopyPart> Planner::PlanStaged(Loops loops, int64_t unit) {
  Chain run{&CopyLoop::target, unit};
  while (run.next < kEnoughRun) {
    const size_t i = run.Find(loops);
    if (i == Chain::kNone) break;
    const int64_t extent = LargestDivisor(loops[i].extent, kLongestStagedRun / run.next);
    if (extent == 1) break;
    run.Take(loops, i, extent);
  }
  if (run.next < kWorthPeeling) return std::nullopt;
  const int64_t pitch = (run.next / kLineBytes + 2) * kLineBytes;

  // Source loops continue either within the run or with one that repeats it.
  Loops repeats;
  int64_t n_runs = 1;
  for (int64_t next = unit; next < 2 * kLineBytes;) {
    const auto continues = [next](const CopyLoop& loop) { return loop.source == next; };
    const auto within = std::find_if(run.loops.begin(), run.loops.end(), continues);
    if (within != run.loops.end()) {
      next *= within->extent;
      continue;
    }
    const auto found = std::find_if(loops.begin(), loops.end(), continues);
    if (found == loops.end()) break;
    const int64_t extent = LargestDivisor(found->extent, kStageBytes / pitch / n_runs);
    if (extent == 1) break;
    repeats.push_back({extent, found->source, found->target});
    n_runs *= extent;
    next *= extent;
    *found = {found->extent / extent, found->source * extent, found->target * extent};
    if (found->extent == 1) loops.erase(found);
  }

  CopyPart part = NewPart(CopyPart::Form::kStaged, run.next);
  part.pitch = pitch;
  part.targets = {0};
  Loops staged(run.loops.begin(), run.loops.end());
  int64_t stage = pitch;
  for (size_t i = repeats.size(); i-- > 0; stage *= repeats[i].extent) {
    staged.push_back({repeats[i].extent, repeats[i].source, stage});
  }
  for (const CopyLoop& loop : repeats) AppendInner(part.targets, loop.extent, loop.target);
  Planner planner(vector_bytes_, /*is_far=*/false);
  planner.PlanUnits(MergeLoops(staged, 1), unit);
  part.inner = planner.TakeParts();
  NestForMemory(loops, run.next);
  part.outer.assign(loops.begin(), loops.end());
  for (const CopyLoop& loop : loops) part.outer_count *= loop.extent;
  part.block_bytes = run.next * n_runs;
  part.may_stream = true;
  return part;
}

}  // namespace

std::vector<CopyPart> PlanCopy(std::span<const CopyLoop> loops, int64_t element_bytes,
                               int64_t vector_bytes) {
  int64_t bytes = element_bytes;
  for (const CopyLoop& loop : loops) bytes *= loop.extent;
  Planner planner(vector_bytes, bytes >= kStreamBytes);
  planner.Plan(MergeLoops(loops, element_bytes), element_bytes);
  return planner.TakeParts();
}

}  // namespace tenon::cpu
