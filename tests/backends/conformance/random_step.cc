#include "tests/backends/conformance/random_step.h"

#include <algorithm>
#include <vector>

namespace tenon::testing {
namespace {

class Generator {
 public:
  Generator(std::mt19937_64& random, int64_t largest_extent)
      : random_(random), largest_extent_(largest_extent) {}

  int64_t Uniform(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  std::vector<tenon_mode> Group(int64_t most) {
    std::vector<tenon_mode> group(Uniform(0, most));
    for (tenon_mode& mode : group) mode = {Uniform(1, largest_extent_), 0, 0, 0};
    return group;
  }

  // Lays the loops out as the axes of one tensor, in any order, sometimes with a gap after an axis
  // or, for inputs, with two axes for one loop (a diagonal).
  void LayOut(std::vector<tenon_mode*> modes, int64_t tenon_mode::*stride, bool is_input) {
    std::vector<tenon_mode*> axes = modes;
    if (is_input && !modes.empty() && Uniform(0, 3) == 0) {
      axes.push_back(modes[Uniform(0, static_cast<int64_t>(modes.size()) - 1)]);
    }
    std::shuffle(axes.begin(), axes.end(), random_);
    int64_t next = 1;
    for (tenon_mode* mode : axes) {
      mode->*stride += next;
      next *= mode->extent + (Uniform(0, 4) == 0 ? 1 : 0);
    }
  }

 private:
  std::mt19937_64& random_;
  const int64_t largest_extent_;
};

std::vector<tenon_mode*> Both(std::vector<tenon_mode>& x, std::vector<tenon_mode>& y) {
  std::vector<tenon_mode*> modes;
  for (tenon_mode& mode : x) modes.push_back(&mode);
  for (tenon_mode& mode : y) modes.push_back(&mode);
  return modes;
}

std::vector<tenon_mode*> Three(std::vector<tenon_mode>& x, std::vector<tenon_mode>& y,
                               std::vector<tenon_mode>& z) {
  std::vector<tenon_mode*> modes = Both(x, y);
  for (tenon_mode& mode : z) modes.push_back(&mode);
  return modes;
}

void SortBy(std::vector<tenon_mode>& group, int64_t tenon_mode::*stride) {
  std::sort(group.begin(), group.end(),
            [stride](const tenon_mode& x, const tenon_mode& y) { return x.*stride > y.*stride; });
}

int64_t Product(const std::vector<tenon_mode>& group) {
  int64_t product = 1;
  for (const tenon_mode& mode : group) product *= mode.extent;
  return product;
}

}  // namespace

RandomStep RandomContract(int32_t dtype, std::mt19937_64& random, int64_t largest_extent,
                          int64_t slices) {
  Generator generator(random, largest_extent);
  auto batch = generator.Group(2), m = generator.Group(3), n = generator.Group(3),
       k = generator.Group(3);
  generator.LayOut(Three(batch, m, k), &tenon_mode::stride_a, true);
  generator.LayOut(Three(batch, k, n), &tenon_mode::stride_b, true);
  generator.LayOut(Three(batch, m, n), &tenon_mode::stride_c, false);
  for (auto* group : {&batch, &m, &n}) SortBy(*group, &tenon_mode::stride_c);
  SortBy(k, &tenon_mode::stride_a);
  RandomStep step{std::make_unique<ProgramBuilder>(dtype), Product(k) * slices};
  const tenon_slice_term term = {step.builder->AddSliced(slices, false), 0, 1};
  step.builder->AddContract(TENON_PHASE_SLICE, 1, step.builder->Operand(0, {term}),
                            step.builder->Operand(1), ProgramBuilder::In(TENON_SPACE_RESULT), batch,
                            m, n, k);
  return step;
}

RandomStep RandomUnary(int32_t dtype, std::mt19937_64& random, int64_t largest_extent,
                       int64_t slices) {
  Generator generator(random, largest_extent);
  auto m = generator.Group(4), k = generator.Group(3);
  generator.LayOut(Both(m, k), &tenon_mode::stride_a, true);
  std::vector<tenon_mode> none;
  generator.LayOut(Both(m, none), &tenon_mode::stride_c, false);
  SortBy(m, &tenon_mode::stride_c);
  SortBy(k, &tenon_mode::stride_a);
  RandomStep step{std::make_unique<ProgramBuilder>(dtype), Product(k) * slices};
  const tenon_slice_term term = {step.builder->AddSliced(slices, false), 0, 1};
  step.builder->AddUnary(TENON_PHASE_SLICE, 1, step.builder->Operand(0, {term}),
                         ProgramBuilder::In(TENON_SPACE_RESULT), m, k);
  return step;
}

}  // namespace tenon::testing
