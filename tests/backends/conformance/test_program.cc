#include "tests/backends/conformance/test_program.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

namespace tenon::testing {
namespace {

struct Element {
  Value value;
  double magnitude = 0;
};

// All iterations of nested loops with the offsets in three tensors.
void ForEach(const tenon_mode* modes, int32_t count, int64_t a, int64_t b, int64_t c,
             const std::function<void(int64_t, int64_t, int64_t)>& body) {
  if (count == 0) return body(a, b, c);
  for (int64_t i = 0; i < modes->extent; ++i) {
    ForEach(modes + 1, count - 1, a + i * modes->stride_a, b + i * modes->stride_b,
            c + i * modes->stride_c, body);
  }
}

// The spaces of a program in double precision.
class Oracle {
 public:
  Oracle(const tenon_program& program, const std::vector<TestTensor>& operands)
      : program_(program),
        spaces_{{},
                {},
                std::vector<Element>(program.constant_elements),
                std::vector<Element>(program.set_elements),
                std::vector<Element>(program.arena_elements),
                std::vector<Element>(program.block_elements)},
        values_(program.n_sliced, 0) {
    for (const TestTensor& tensor : operands) {
      std::vector<Element>& operand = operands_.emplace_back();
      for (const Value& value : tensor.values) operand.push_back({value, std::abs(value)});
    }
  }

  void SetSlice(int64_t block, int64_t slice) {
    for (int32_t i = program_.n_sliced - 1; i >= 0; --i) {
      int64_t& number = program_.sliced[i].is_output ? block : slice;
      values_[i] = number % program_.sliced[i].extent;
      number /= program_.sliced[i].extent;
    }
  }

  void RunPhase(int32_t phase, bool add_to_result) {
    for (int32_t i = 0; i < program_.n_steps; ++i) {
      if (program_.steps[i].phase == phase) RunStep(program_.steps[i], add_to_result);
    }
  }

  const std::vector<Element>& result() const { return spaces_[TENON_SPACE_RESULT]; }

 private:
  Element* At(const tenon_tensor_ref& tensor) {
    int64_t offset = tensor.offset;
    for (int32_t i = 0; i < tensor.n_slice_terms; ++i) {
      offset += tensor.slice_terms[i].stride * values_[tensor.slice_terms[i].sliced];
    }
    std::vector<Element>& space =
        tensor.space == TENON_SPACE_OPERAND ? operands_[tensor.index] : spaces_[tensor.space];
    return space.data() + offset;
  }

  void RunStep(const tenon_step& step, bool add_to_result) {
    const bool is_contract = step.kind == TENON_STEP_CONTRACT;
    const bool add = step.c.space == TENON_SPACE_RESULT && add_to_result;
    const Element* a = At(step.a);
    const Element* b = is_contract ? At(step.b) : nullptr;
    Element* c = At(step.c);
    const int32_t n_results = step.n_batch + step.n_m + step.n_n;
    ForEach(step.modes, n_results, 0, 0, 0, [&](int64_t ra, int64_t rb, int64_t rc) {
      Element sum = add ? c[rc] : Element{};
      ForEach(step.modes + n_results, step.n_k, ra, rb, 0, [&](int64_t ka, int64_t kb, int64_t) {
        sum.value += is_contract ? a[ka].value * b[kb].value : a[ka].value;
        sum.magnitude += is_contract ? a[ka].magnitude * b[kb].magnitude : a[ka].magnitude;
      });
      c[rc] = sum;
    });
  }

  const tenon_program& program_;
  std::vector<std::vector<Element>> operands_;
  std::vector<Element> spaces_[6];
  std::vector<int64_t> values_;
};

template <typename R>
void AppendReal(double value, std::vector<char>& bytes) {
  const R real = static_cast<R>(value);
  const size_t end = bytes.size();
  bytes.resize(end + sizeof(R));
  std::memcpy(bytes.data() + end, &real, sizeof(R));
}

bool IsSingle(int32_t dtype) {
  return dtype == TENON_DTYPE_FLOAT32 || dtype == TENON_DTYPE_COMPLEX64;
}

}  // namespace

bool IsComplexDType(int32_t dtype) {
  return dtype == TENON_DTYPE_COMPLEX64 || dtype == TENON_DTYPE_COMPLEX128;
}

int64_t ElementBytes(int32_t dtype) {
  return (IsSingle(dtype) ? 4 : 8) * (IsComplexDType(dtype) ? 2 : 1);
}

double EpsilonOf(int32_t dtype) {
  return IsSingle(dtype) ? std::numeric_limits<float>::epsilon()
                         : std::numeric_limits<double>::epsilon();
}

TestTensor RandomTensor(int32_t dtype, int64_t count, std::mt19937_64& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  TestTensor tensor;
  for (int64_t i = 0; i < count; ++i) {
    const double re = uniform(random), im = IsComplexDType(dtype) ? uniform(random) : 0;
    tensor.values.emplace_back(re, im);
    for (int part = 0; part < (IsComplexDType(dtype) ? 2 : 1); ++part) {
      const double value = part == 0 ? re : im;
      IsSingle(dtype) ? AppendReal<float>(value, tensor.bytes)
                      : AppendReal<double>(value, tensor.bytes);
    }
  }
  return tensor;
}

std::vector<Value> ReadValues(int32_t dtype, const void* data, int64_t count) {
  const auto read = [&](int64_t i) -> double {
    if (IsSingle(dtype)) return static_cast<const float*>(data)[i];
    return static_cast<const double*>(data)[i];
  };
  std::vector<Value> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(IsComplexDType(dtype) ? Value(read(2 * i), read(2 * i + 1)) : read(i));
  }
  return values;
}

ProgramBuilder::ProgramBuilder(int32_t dtype) {
  program_.struct_size = sizeof(program_);
  program_.dtype = dtype;
  program_.n_blocks = 1;
  program_.slices_per_block = 1;
}

int ProgramBuilder::AddSliced(int64_t extent, bool is_output) {
  sliced_.push_back({extent, is_output ? 1 : 0, 0, 0});
  (is_output ? program_.n_blocks : program_.slices_per_block) *= extent;
  return static_cast<int>(sliced_.size()) - 1;
}

tenon_tensor_ref ProgramBuilder::Operand(int32_t index,
                                         const std::vector<tenon_slice_term>& terms) {
  tenon_tensor_ref tensor = In(TENON_SPACE_OPERAND);
  tensor.index = index;
  tensor.slice_terms = terms_.emplace_back(terms).data();
  tensor.n_slice_terms = static_cast<int32_t>(terms.size());
  return tensor;
}

tenon_tensor_ref ProgramBuilder::In(tenon_space space, int64_t offset) {
  tenon_tensor_ref tensor{};
  tensor.space = space;
  tensor.offset = offset;
  return tensor;
}

void ProgramBuilder::AddContract(int32_t phase, int32_t level, tenon_tensor_ref a,
                                 tenon_tensor_ref b, tenon_tensor_ref c,
                                 const std::vector<tenon_mode>& batch,
                                 const std::vector<tenon_mode>& m, const std::vector<tenon_mode>& n,
                                 const std::vector<tenon_mode>& k) {
  AddStep(TENON_STEP_CONTRACT, phase, level, a, b, c, {batch, m, n, k});
}

void ProgramBuilder::AddUnary(int32_t phase, int32_t level, tenon_tensor_ref a, tenon_tensor_ref c,
                              const std::vector<tenon_mode>& m, const std::vector<tenon_mode>& k) {
  AddStep(TENON_STEP_UNARY, phase, level, a, {}, c, {{}, m, {}, k});
}

void ProgramBuilder::AddStep(int32_t kind, int32_t phase, int32_t level, tenon_tensor_ref a,
                             tenon_tensor_ref b, tenon_tensor_ref c,
                             const std::vector<tenon_mode> (&groups)[4]) {
  std::vector<tenon_mode>& modes = modes_.emplace_back();
  for (const auto& group : groups) modes.insert(modes.end(), group.begin(), group.end());
  tenon_step step{};
  step.struct_size = sizeof(step);
  step.kind = kind;
  step.phase = phase;
  step.level = level;
  step.a = a;
  step.b = b;
  step.c = c;
  step.modes = modes.data();
  step.n_batch = static_cast<int32_t>(groups[0].size());
  step.n_m = static_cast<int32_t>(groups[1].size());
  step.n_n = static_cast<int32_t>(groups[2].size());
  step.n_k = static_cast<int32_t>(groups[3].size());
  Cover(a, step, &tenon_mode::stride_a);
  if (kind == TENON_STEP_CONTRACT) Cover(b, step, &tenon_mode::stride_b);
  Cover(c, step, &tenon_mode::stride_c);
  steps_.push_back(step);
}

void ProgramBuilder::Cover(const tenon_tensor_ref& tensor, const tenon_step& step,
                           int64_t tenon_mode::*stride) {
  int64_t end = tensor.offset + 1;
  const int32_t n_modes = step.n_batch + step.n_m + step.n_n + step.n_k;
  for (int32_t i = 0; i < n_modes; ++i) {
    end += std::max<int64_t>(step.modes[i].extent - 1, 0) * (step.modes[i].*stride);
  }
  for (int32_t i = 0; i < tensor.n_slice_terms; ++i) {
    const tenon_slice_term& term = tensor.slice_terms[i];
    end += (sliced_[term.sliced].extent - 1) * term.stride;
  }
  if (tensor.space == TENON_SPACE_OPERAND &&
      static_cast<int32_t>(operand_elements_.size()) <= tensor.index) {
    operand_elements_.resize(tensor.index + 1, 0);
  }
  int64_t* sizes[] = {
      nullptr,
      tensor.space == TENON_SPACE_OPERAND ? &operand_elements_[tensor.index] : nullptr,
      &program_.constant_elements,
      &program_.set_elements,
      &program_.arena_elements,
      &program_.block_elements};
  *sizes[tensor.space] = std::max(*sizes[tensor.space], end);
}

const tenon_program& ProgramBuilder::Build() {
  program_.n_operands = static_cast<int32_t>(operand_elements_.size());
  program_.operand_elements = operand_elements_.data();
  program_.n_steps = static_cast<int32_t>(steps_.size());
  program_.steps = steps_.data();
  program_.n_sliced = static_cast<int32_t>(sliced_.size());
  program_.sliced = sliced_.data();
  return program_;
}

OracleResult RunOracle(const tenon_program& program, const std::vector<TestTensor>& operands,
                       int64_t block, int64_t first, int64_t last) {
  Oracle oracle(program, operands);
  oracle.RunPhase(TENON_PHASE_CONSTANT, false);
  oracle.RunPhase(TENON_PHASE_SET, false);
  for (int64_t slice = first; slice < last; ++slice) {
    oracle.SetSlice(block, slice);
    oracle.RunPhase(TENON_PHASE_SLICE, slice > first);
  }
  OracleResult result;
  for (const Element& element : oracle.result()) {
    result.values.push_back(element.value);
    result.magnitudes.push_back(element.magnitude);
  }
  return result;
}

}  // namespace tenon::testing
