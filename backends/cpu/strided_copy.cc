#include "backends/cpu/strided_copy.h"

#include <string_view>

#include "backends/core/strings.h"
#include "backends/cpu/copy_planner.h"
#include "backends/plugin/abi.h"

namespace tenon::cpu {
namespace {

std::string_view NameOf(const CopyPart& part) {
  switch (part.form) {
    case CopyPart::Form::kRuns:
      return "runs";
    case CopyPart::Form::kTiles:
      return "tiles";
    case CopyPart::Form::kUnits:
      return "units";
    case CopyPart::Form::kStaged:
      break;
  }
  return "staged runs";
}

}  // namespace

StridedCopy::StridedCopy(const std::vector<CopyLoop>& loops, int64_t element_bytes)
    : kernels_(&BestCopyKernels()), parts_(PlanCopy(loops, element_bytes, kernels_->vector_bytes)) {
  for (const CopyPart& part : parts_) total_bytes_ += part.outer_count * part.block_bytes;
}

CopyMode StridedCopy::ModeFor(const CopyPart& part, const void* target) const {
  if (part.form == CopyPart::Form::kStaged) return CopyMode::kStream;
  if (total_bytes_ < kFarBytes) return CopyMode::kNear;
  const bool is_aligned = reinterpret_cast<uintptr_t>(target) % kStreamAlignment == 0;
  return total_bytes_ >= kStreamBytes && part.may_stream && is_aligned ? CopyMode::kStream
                                                                       : CopyMode::kFar;
}

void StridedCopy::Run(const void* source, void* target) const {
  for (const CopyPart& part : parts_) {
    kernels_->run(part, 0, part.outer_count, static_cast<const char*>(source),
                  static_cast<char*>(target), ModeFor(part, target), nullptr);
  }
}

void StridedCopy::Run(const void* source, void* target, ThreadTeam& team,
                      const int32_t* cancel) const {
  constexpr int64_t kGrainBytes = 256 << 10;
  for (const CopyPart& part : parts_) {
    team.For(part.outer_count, kGrainBytes / part.block_bytes,
             [&](int64_t begin, int64_t end, Scratch) {
               kernels_->run(part, begin, end, static_cast<const char*>(source),
                             static_cast<char*>(target), ModeFor(part, target), cancel);
             });
  }
}

void StridedCopy::Add(const void* source, void* target, int32_t dtype) const {
  const bool is_double = dtype == TENON_DTYPE_FLOAT64 || dtype == TENON_DTYPE_COMPLEX128;
  for (const CopyPart& part : parts_) {
    kernels_->run(part, 0, part.outer_count, static_cast<const char*>(source),
                  static_cast<char*>(target),
                  is_double ? CopyMode::kAddDouble : CopyMode::kAddFloat, nullptr);
  }
}

std::string StridedCopy::Describe() const {
  std::string text;
  for (const CopyPart& part : parts_) {
    text += StrCat(text.empty() ? "" : "+", NameOf(part), " of ", part.unit, " bytes");
  }
  return text;
}

}  // namespace tenon::cpu
