#include "backends/contraction/fingerprint.h"

#include <string_view>

#include "backends/core/sha256.h"

namespace tenon::contraction {
namespace {

// Changes when the serialisation or the meaning of a program does.
constexpr std::string_view kSchema = "tenon-program-1";
// Ends the serialisation of programs that normalise; others have nothing in its place.
constexpr int64_t kNormalized = 1;

class Serializer {
 public:
  Serializer() { hash_.Update(kSchema); }

  void Words(std::initializer_list<int64_t> words) {
    for (const int64_t word : words) {
      char bytes[8];
      for (int i = 0; i < 8; ++i)
        bytes[i] = static_cast<char>(static_cast<uint64_t>(word) >> 8 * i);
      hash_.Update(std::string_view(bytes, sizeof bytes));
    }
  }

  void Tensor(const tenon_tensor_ref& ref) {
    Words({ref.space, ref.index, ref.offset, ref.extent_elements, ref.n_slice_terms});
    for (int i = 0; i < ref.n_slice_terms; ++i) {
      Words({ref.slice_terms[i].sliced, ref.slice_terms[i].stride});
    }
  }

  void Step(const tenon_step& step) {
    Words({step.kind, step.phase, step.level, step.n_batch, step.n_m, step.n_n, step.n_k});
    for (const tenon_tensor_ref* ref : {&step.a, &step.b, &step.c}) Tensor(*ref);
    const int n_modes = step.n_batch + step.n_m + step.n_n + step.n_k;
    for (int i = 0; i < n_modes; ++i) {
      const tenon_mode& mode = step.modes[i];
      Words({mode.extent, mode.stride_a, mode.stride_b, mode.stride_c});
    }
  }

  std::array<uint8_t, 32> Finish() { return hash_.Finish(); }

 private:
  Sha256Hasher hash_;
};

}  // namespace

std::array<uint8_t, 32> FingerprintProgram(const tenon_program& program, int64_t group_slices) {
  Serializer serializer;
  serializer.Words({program.dtype, program.accumulate_double, program.n_operands, program.n_steps,
                    program.n_sliced});
  for (int i = 0; i < program.n_operands; ++i) serializer.Words({program.operand_elements[i]});
  for (int i = 0; i < program.n_sliced; ++i) {
    const tenon_sliced_index& index = program.sliced[i];
    serializer.Words({index.extent, index.is_output, index.result_stride});
  }
  for (int i = 0; i < program.n_steps; ++i) serializer.Step(program.steps[i]);
  serializer.Words({program.constant_elements, program.set_elements, program.arena_elements,
                    program.block_elements, program.n_blocks, program.slices_per_block,
                    group_slices});
  if (program.normalize != 0) serializer.Words({kNormalized});
  return serializer.Finish();
}

}  // namespace tenon::contraction
