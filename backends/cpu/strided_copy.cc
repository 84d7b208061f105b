#include "backends/cpu/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/core/strings.h"
#include "backends/cpu/step_view.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kLongestLoop = 1024;      // longer loops are cut: tables stay small
constexpr int64_t kLongestRun = 64 * 1024;  // bytes; longer ones are cut so that threads share
constexpr int64_t kTableEntries = 256;      // of a block of runs or single units
constexpr int64_t kTransposeSide = 32;      // a side of a transposed block grows up to this
constexpr int64_t kShortestSide = 4;        // a shorter side is not worth a transposing block

// Nests by target, drops loops of one iteration and merges neighbours that are one loop.
std::vector<CopyLoop> MergeLoops(std::vector<CopyLoop> loops) {
  std::erase_if(loops, [](const CopyLoop& loop) { return loop.extent == 1; });
  std::stable_sort(loops.begin(), loops.end(),
                   [](const CopyLoop& x, const CopyLoop& y) { return x.target > y.target; });
  std::vector<CopyLoop> merged;
  for (const CopyLoop& loop : loops) {
    if (!merged.empty() && merged.back().source == loop.source * loop.extent &&
        merged.back().target == loop.target * loop.extent) {
      merged.back() = {merged.back().extent * loop.extent, loop.source, loop.target};
    } else {
      merged.push_back(loop);
    }
  }
  return merged;
}

// Offsets of all iterations of nested loops, the last one fastest.
std::vector<int64_t> Tabulate(const std::vector<CopyLoop>& loops, int64_t CopyLoop::*stride) {
  std::vector<int64_t> table = {0};
  for (const CopyLoop& loop : loops) {
    std::vector<int64_t> next;
    for (const int64_t base : table) {
      for (int64_t i = 0; i < loop.extent; ++i) next.push_back(base + i * (loop.*stride));
    }
    table = std::move(next);
  }
  return table;
}

// Loops that follow one another without gaps in one of the two layouts, outermost first.
struct ContiguousChain {
  int64_t CopyLoop::*stride;
  int64_t next;  // the stride that continues the chain
  int64_t length = 1;
  std::vector<CopyLoop> loops = {};

  // Adds the loop that continues the chain, unless there is none or it would grow too long.
  bool TakeNext(const std::vector<CopyLoop>& from, std::vector<bool>& is_taken) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (is_taken[i] || from[i].*stride != next || length * from[i].extent > kLongestLoop)
        continue;
      is_taken[i] = true;
      length *= from[i].extent;
      next *= from[i].extent;
      loops.insert(loops.begin(), from[i]);
      return true;
    }
    return false;
  }
};

template <typename Unit>
inline void MoveUnit(const char* source, char* target) {
  Unit unit;
  std::memcpy(&unit, source, sizeof(unit));
  std::memcpy(target, &unit, sizeof(unit));
}

struct Unit16 {
  uint64_t low, high;
};

// Rows are contiguous in the target, columns in the source. A strip of rows fills whole cache lines
// of the target, and is narrow enough that its lines of the source don't evict each other when
// strides are powers of two.
template <typename Unit>
void TransposeBlock(const int64_t* sources, int64_t rows, const int64_t* targets, int64_t columns,
                    const char* source, char* target) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Unit));
  constexpr int64_t kStrip = 64 / kBytes;
  for (int64_t strip = 0; strip < rows; strip += kStrip) {
    const int64_t n_rows = std::min(kStrip, rows - strip);
    const char* from[kStrip];
    for (int64_t i = 0; i < n_rows; ++i) from[i] = source + sources[strip + i];
    char* to = target + strip * kBytes;
    if (n_rows == kStrip) {
      for (int64_t j = 0; j < columns; ++j) {
        for (int64_t i = 0; i < kStrip; ++i) {
          MoveUnit<Unit>(from[i] + j * kBytes, to + targets[j] + i * kBytes);
        }
      }
    } else {
      for (int64_t j = 0; j < columns; ++j) {
        for (int64_t i = 0; i < n_rows; ++i) {
          MoveUnit<Unit>(from[i] + j * kBytes, to + targets[j] + i * kBytes);
        }
      }
    }
  }
}

template <typename Unit>
void GatherBlock(const int64_t* sources, const int64_t* targets, int64_t count, const char* source,
                 char* target) {
  for (int64_t i = 0; i < count; ++i) MoveUnit<Unit>(source + sources[i], target + targets[i]);
}

// Calls `f` with the type of `bytes` bytes.
template <typename F>
void DispatchUnit(int64_t bytes, F&& f) {
  switch (bytes) {
    case 4:
      return f(std::type_identity<uint32_t>());
    case 8:
      return f(std::type_identity<uint64_t>());
    default:
      return f(std::type_identity<Unit16>());
  }
}

void Transpose(int64_t unit, const int64_t* sources, int64_t rows, const int64_t* targets,
               int64_t columns, const char* source, char* target) {
  DispatchUnit(unit, [&](auto type) {
    TransposeBlock<typename decltype(type)::type>(sources, rows, targets, columns, source, target);
  });
}

void Gather(int64_t unit, const int64_t* sources, const int64_t* targets, int64_t count,
            const char* source, char* target) {
  DispatchUnit(unit, [&](auto type) {
    GatherBlock<typename decltype(type)::type>(sources, targets, count, source, target);
  });
}

}  // namespace

StridedCopy::StridedCopy(const std::vector<CopyLoop>& loops, int64_t element_bytes) {
  std::vector<CopyLoop> in_bytes = loops;
  for (CopyLoop& loop : in_bytes) {
    loop.source *= element_bytes;
    loop.target *= element_bytes;
  }
  Plan(MergeLoops(std::move(in_bytes)), element_bytes, 0, 0);
}

// Cuts loops that are too long into a loop of chunks and a rest; each combination is a part.
void StridedCopy::Plan(std::vector<CopyLoop> loops, int64_t unit, int64_t source, int64_t target) {
  for (size_t i = 0; i < loops.size(); ++i) {
    const CopyLoop loop = loops[i];
    const bool is_run = loop.source == unit && loop.target == unit;
    const bool is_innermost = loop.source == unit || loop.target == unit;
    const int64_t limit = is_run ? kLongestRun / unit : kLongestLoop;
    if (!is_innermost || loop.extent <= limit) continue;
    const int64_t chunks = loop.extent / limit, rest = loop.extent % limit;
    std::vector<CopyLoop> chunked = loops;
    chunked[i].extent = limit;
    chunked.insert(chunked.begin() + static_cast<int64_t>(i),
                   CopyLoop{chunks, loop.source * limit, loop.target * limit});
    Plan(std::move(chunked), unit, source, target);
    if (rest > 0) {
      loops[i].extent = rest;
      Plan(std::move(loops), unit, source + chunks * limit * loop.source,
           target + chunks * limit * loop.target);
    }
    return;
  }
  PlanBlock(std::move(loops), unit, source, target);
}

void StridedCopy::PlanBlock(std::vector<CopyLoop> loops, int64_t unit, int64_t source,
                            int64_t target) {
  Part part;
  part.source = source;
  part.target = target;
  part.unit = unit;
  if (!loops.empty() && loops.back().source == unit && loops.back().target == unit) {
    const int64_t run = unit * loops.back().extent;
    part.unit = run;
    part.form = run == 8 || run == 16 ? Form::kGather : Form::kRuns;
    loops.pop_back();
  }
  part.outer = std::move(loops);
  if (part.form == Form::kRuns || !PlanTranspose(part)) PlanTables(part);
  for (const CopyLoop& loop : part.outer) {
    part.walk.push_back({loop.extent, loop.source, 0, loop.target});
  }
  part.outer_count = LoopCount(part.walk);
  parts_.push_back(std::move(part));
}

// Takes the loops that are contiguous in the target and those that are contiguous in the source
// out of `part.outer`, if they are different ones and long enough.
bool StridedCopy::PlanTranspose(Part& part) {
  std::vector<bool> is_taken(part.outer.size(), false);
  ContiguousChain rows{&CopyLoop::target, part.unit}, columns{&CopyLoop::source, part.unit};
  // Each side gets its innermost loop before either grows into what the other needs.
  if (!rows.TakeNext(part.outer, is_taken) || !columns.TakeNext(part.outer, is_taken)) return false;
  for (ContiguousChain* chain : {&rows, &columns}) {
    while (chain->length < kTransposeSide && chain->TakeNext(part.outer, is_taken)) {
    }
  }
  if (rows.length < kShortestSide || columns.length < kShortestSide) return false;
  part.form = Form::kTranspose;
  part.sources = Tabulate(rows.loops, &CopyLoop::source);
  part.targets = Tabulate(columns.loops, &CopyLoop::target);
  std::vector<CopyLoop> rest;
  for (size_t i = 0; i < part.outer.size(); ++i) {
    if (!is_taken[i]) rest.push_back(part.outer[i]);
  }
  part.outer = std::move(rest);
  return true;
}

void StridedCopy::PlanTables(Part& part) {
  std::vector<CopyLoop> inner;
  int64_t entries = 1;
  while (!part.outer.empty() && entries * part.outer.back().extent <= kTableEntries) {
    entries *= part.outer.back().extent;
    inner.insert(inner.begin(), part.outer.back());
    part.outer.pop_back();
  }
  part.sources = Tabulate(inner, &CopyLoop::source);
  part.targets = Tabulate(inner, &CopyLoop::target);
}

void StridedCopy::RunPart(const Part& part, int64_t begin, int64_t end, const char* source,
                          char* target, const int32_t* cancel) {
  Odometer position(part.walk, begin);
  const auto n_sources = static_cast<int64_t>(part.sources.size());
  const auto n_targets = static_cast<int64_t>(part.targets.size());
  for (int64_t i = begin; i < end; ++i, position.Next()) {
    if (IsCancelled(cancel)) return;
    const char* from = source + part.source + position.a();
    char* to = target + part.target + position.c();
    switch (part.form) {
      case Form::kRuns:
        for (int64_t run = 0; run < n_sources; ++run) {
          std::memcpy(to + part.targets[run], from + part.sources[run],
                      static_cast<size_t>(part.unit));
        }
        break;
      case Form::kTranspose:
        Transpose(part.unit, part.sources.data(), n_sources, part.targets.data(), n_targets, from,
                  to);
        break;
      case Form::kGather:
        Gather(part.unit, part.sources.data(), part.targets.data(), n_sources, from, to);
        break;
    }
  }
}

void StridedCopy::Run(const void* source, void* target) const {
  for (const Part& part : parts_) {
    RunPart(part, 0, part.outer_count, static_cast<const char*>(source), static_cast<char*>(target),
            nullptr);
  }
}

void StridedCopy::Run(const void* source, void* target, ThreadTeam& team,
                      const int32_t* cancel) const {
  constexpr int64_t kGrainBytes = 256 * 1024;
  for (const Part& part : parts_) {
    const auto units = static_cast<int64_t>(part.form == Form::kTranspose
                                                ? part.sources.size() * part.targets.size()
                                                : part.sources.size());
    team.For(part.outer_count, kGrainBytes / (units * part.unit),
             [&](int64_t begin, int64_t end, std::byte*) {
               RunPart(part, begin, end, static_cast<const char*>(source),
                       static_cast<char*>(target), cancel);
             });
  }
}

std::string StridedCopy::Describe() const {
  std::string text;
  for (const Part& part : parts_) {
    const std::string_view form = part.form == Form::kRuns        ? "runs"
                                  : part.form == Form::kTranspose ? "transpose"
                                                                  : "gather";
    text += StrCat(text.empty() ? "" : "+", form, " of ", part.unit, " bytes");
  }
  return text;
}

}  // namespace tenon::cpu
