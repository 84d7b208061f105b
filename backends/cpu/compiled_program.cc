#include "backends/cpu/compiled_program.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_split.h"
#include "backends/core/dtype.h"
#include "backends/core/error.h"
#include "backends/core/sha256.h"
#include "backends/core/strings.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kScratchAlignment = 64;

absl::Status CheckProgram(const tenon_program& program) {
  if (!IsContractionDType(static_cast<DType>(program.dtype))) {
    return Error(Reason::kUnsupportedDtype,
                 StrCat("a program of dtype ", program.dtype, " (",
                        DTypeName(static_cast<DType>(program.dtype)),
                        ") cannot be contracted; float32, float64, complex64 and complex128 "
                        "can"))
        .Meta("dtype", program.dtype);
  }
  int32_t phase = TENON_PHASE_CONSTANT;
  for (int32_t i = 0; i < program.n_steps; ++i) {
    const tenon_step& step = program.steps[i];
    if (step.kind != TENON_STEP_CONTRACT && step.kind != TENON_STEP_UNARY) {
      return Error(Reason::kUnsupportedByProvider,
                   StrCat("step ", i, " is of the unknown kind ", step.kind))
          .Meta("step", i);
    }
    if (step.phase < phase || step.phase > TENON_PHASE_SLICE) {
      return Error(Reason::kInternal,
                   StrCat("step ", i, " of phase ", step.phase, " follows one of phase ", phase))
          .Meta("step", i);
    }
    phase = step.phase;
  }
  return absl::OkStatus();
}

constexpr double kStepSeconds = 2e-7;  // of a step beside its kernel

}  // namespace

absl::StatusOr<ImplementationLists> OnlyImplementations(const ImplementationLists& lists,
                                                        std::string_view names) {
  const std::vector<std::string> wanted = absl::StrSplit(ToAbsl(names), ',', absl::SkipEmpty());
  const auto has = [](const std::vector<Implementation>& list, std::string_view name) {
    return std::any_of(list.begin(), list.end(),
                       [name](const Implementation& entry) { return entry.name == name; });
  };
  for (const std::string& name : wanted) {
    if (has(lists.contract, name) || has(lists.unary, name)) continue;
    return Error(Reason::kBadParameter, StrCat("no kernel is called '", name, "'"))
        .Field("options");
  }
  const auto keep = [&wanted](const std::vector<Implementation>& list) {
    std::vector<Implementation> kept;
    for (const Implementation& entry : list) {
      const bool named = std::find(wanted.begin(), wanted.end(), entry.name) != wanted.end();
      if (named || &entry == &list.back()) kept.push_back(entry);
    }
    return kept;
  };
  return ImplementationLists{keep(lists.contract), keep(lists.unary)};
}

absl::StatusOr<std::unique_ptr<CompiledProgram>> CompiledProgram::Compile(
    const tenon_program& program, const tenon_compile_options&, const ImplementationLists& lists,
    std::string_view environment) {
  TENON_RETURN_IF_ERROR(CheckProgram(program));
  auto compiled = std::unique_ptr<CompiledProgram>(new CompiledProgram());
  compiled->program_ = &program;
  compiled->element_bytes_ = DTypeSize(static_cast<DType>(program.dtype));
  compiled->ChooseKernels(lists);
  if (program.normalize != 0) TENON_RETURN_IF_ERROR(compiled->LinkSources());
  compiled->ListSliceSteps();
  compiled->FormFingerprint(environment);
  return compiled;
}

// The implementation with the least predicted time, the first one of equals. The last one of a list
// takes everything and is there for when no other does.
void CompiledProgram::ChooseKernel(const std::vector<Implementation>& list, Step& step) {
  // Looking further costs more than it can save.
  constexpr double kGoodEnough = 0.7e-6;
  for (const Implementation& entry : list) {
    if (step.kernel != nullptr && (&entry == &list.back() || step.seconds < kGoodEnough)) return;
    Preparation preparation = entry.prepare(step.view);
    std::string refusal = std::move(preparation.refusal);
    std::string_view refused = entry.name;
    if (preparation.kernel != nullptr) {
      if (step.kernel == nullptr) {
        refused = "";
      } else if (preparation.seconds < step.seconds) {
        refused = step.name;
        refusal = StrCat("predicted to take longer than ", entry.name);
      } else {
        refusal = StrCat("predicted to take longer than ", step.name);
      }
      if (step.kernel == nullptr || preparation.seconds < step.seconds) {
        step.kernel = std::move(preparation.kernel);
        step.seconds = preparation.seconds;
        step.name = entry.name.data();
      }
    }
    if (refused.empty()) continue;
    step.refusals += StrCat(step.refusals.empty() ? "" : "; ", refused, ": ", refusal);
  }
}

void CompiledProgram::ChooseKernels(const ImplementationLists& lists) {
  steps_.resize(program_->n_steps);
  for (size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    step.view = ViewStep(*program_, program_->steps[i]);
    step.flops = step.view.flops();
    ChooseKernel(step.view.is_contract() ? lists.contract : lists.unary, step);
    const int64_t scratch = step.kernel->scratch_bytes();
    const int64_t rounded =
        (scratch + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    scratch_bytes_ = std::max(scratch_bytes_, rounded);
  }
  for (const Step& step : steps_) {
    names_.push_back(step.name);
    refusals_.push_back(step.refusals.c_str());
    step_seconds_.push_back(step.seconds);
  }
}

absl::Status CompiledProgram::LinkSources() {
  TENON_ASSIGN_OR_RETURN(const std::vector<StepSources> sources, FindSources(*program_));
  for (size_t i = 0; i < steps_.size(); ++i) steps_[i].sources = sources[i];
  return absl::OkStatus();
}

void CompiledProgram::ListSliceSteps() {
  size_t next = 0;
  for (int32_t phase = 0; phase < 3; ++phase) {
    phases_[phase].first = next;
    while (next < steps_.size() && steps_[next].view.step->phase == phase) ++next;
    phases_[phase].last = next;
  }
  const Range range = phases_[TENON_PHASE_SLICE];
  slice_steps_.resize(program_->n_sliced + 1);
  for (int changed = 0; changed <= program_->n_sliced; ++changed) {
    for (size_t i = range.first; i < range.last; ++i) {
      const tenon_step& step = *steps_[i].view.step;
      const bool is_result = step.c.space == TENON_SPACE_RESULT;  // adds in every slice
      if (changed == program_->n_sliced || changed < step.level || is_result) {
        slice_steps_[changed].push_back(static_cast<int32_t>(i));
      }
    }
  }
}

void CompiledProgram::FormFingerprint(std::string_view environment) {
  std::string text(reinterpret_cast<const char*>(program_->fingerprint),
                   sizeof(program_->fingerprint));
  text += environment;
  for (const Step& step : steps_) {
    text += StrCat("\n", step.name, " ", step.kernel->Describe());
  }
  const std::array<uint8_t, 32> digest = Sha256(text);
  std::memcpy(fingerprint_, digest.data(), digest.size());
}

// A step runs once per value of the loops at positions below its level.
double CompiledProgram::SlicesPerRun(const Step& step) const {
  double slices = 1;
  if (step.view.step->c.space == TENON_SPACE_RESULT) return slices;
  for (int32_t loop = step.view.step->level; loop < program_->n_sliced; ++loop) {
    slices *= static_cast<double>(program_->sliced[loop].extent);
  }
  return slices;
}

double CompiledProgram::PredictedSliceSeconds() const {
  const Range range = phases_[TENON_PHASE_SLICE];
  double seconds = 0;
  for (size_t i = range.first; i < range.last; ++i) {
    seconds += (steps_[i].seconds + kStepSeconds) / SlicesPerRun(steps_[i]);
  }
  return seconds;
}

tenon_prediction CompiledProgram::Predict(int workers, int threads) const {
  tenon_prediction prediction{};
  prediction.struct_size = sizeof(prediction);
  const size_t first_slice_step = phases_[TENON_PHASE_SLICE].first;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    StepWork work = WorkOf(step.view, step.name, step.seconds);
    work.streams = step.kernel->streams() && !step.view.may_accumulate;
    if (i < first_slice_step) {
      prediction.once_seconds += StepSeconds(*times_, work, threads, 1);
    } else {
      prediction.slice_seconds +=
          StepSeconds(*times_, work, std::max(1, threads / workers), workers) / SlicesPerRun(step);
    }
  }
  return prediction;
}

double CompiledProgram::PredictedOnceSeconds() const {
  double seconds = 0;
  for (size_t i = 0; i < phases_[TENON_PHASE_SLICE].first; ++i) {
    seconds += steps_[i].seconds + kStepSeconds;
  }
  return seconds;
}

double CompiledProgram::PredictedSeconds() const {
  return PredictedOnceSeconds() + PredictedSliceSeconds() *
                                      static_cast<double>(program_->n_blocks) *
                                      static_cast<double>(program_->slices_per_block);
}

tenon_compiled_info CompiledProgram::Info() const {
  tenon_compiled_info info{};
  info.struct_size = sizeof(info);
  info.n_steps = static_cast<int32_t>(steps_.size());
  info.kernels = names_.data();
  info.refusals = refusals_.data();
  info.worker_bytes = scratch_bytes_ + NormalizationWorkerBytes(*program_);
  info.shared_bytes = NormalizationSharedBytes(*program_);
  info.thread_bytes = scratch_bytes_;
  info.predicted_slice_seconds = PredictedSliceSeconds();
  info.predicted_once_seconds = PredictedOnceSeconds();
  info.step_seconds = step_seconds_.data();
  std::memcpy(info.fingerprint, fingerprint_, sizeof(fingerprint_));
  return info;
}

}  // namespace tenon::cpu
