#include "backends/cpu/library_gemm.h"

#include <algorithm>
#include <optional>

#include "backends/core/strings.h"
#include "backends/cpu/blas.h"
#include "backends/cpu/calibration.h"
#include "backends/cpu/product_kernels.h"
#include "backends/cpu/scalar.h"
#include "backends/cpu/tile_axis.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kSide = 512,
                  kDepth = 1024;  // of a tile: calls stay short, so cancelling is prompt

struct LibraryPlan {
  std::vector<tenon_mode> batch;
  TileAxis m, n, k;
  MatrixLayout a, b, c;

  int64_t n_tiles() const { return LoopCount(batch) * m.tiles * n.tiles; }
};

std::optional<MatrixLayout> LayoutInPlace(const TileAxis& rows, const TileAxis& columns,
                                          int64_t tenon_mode::*stride) {
  const std::optional<int64_t> row = TileStride(rows, stride), column = TileStride(columns, stride);
  if (!row.has_value() || !column.has_value()) return std::nullopt;
  return LayoutOf(rows.full, *row, columns.full, *column);
}

std::optional<LibraryPlan> PlanInPlace(const StepView& step) {
  constexpr int kOneLoop = 1;
  LibraryPlan plan;
  plan.batch = NestedLoops({step.batch.begin(), step.batch.end()}, NestBy::kC);
  plan.m = CutAxis(step.m, {NestBy::kC, NestBy::kA, false, kOneLoop}, kSide);
  plan.n = CutAxis(step.n, {NestBy::kC, NestBy::kB, false, kOneLoop}, kSide);
  plan.k = CutAxis(step.k, {NestBy::kA, NestBy::kB, false, kOneLoop}, kDepth);
  const auto a = LayoutInPlace(plan.m, plan.k, &tenon_mode::stride_a);
  const auto b = LayoutInPlace(plan.k, plan.n, &tenon_mode::stride_b);
  const auto c = LayoutInPlace(plan.m, plan.n, &tenon_mode::stride_c);
  if (!a.has_value() || !b.has_value() || !c.has_value()) return std::nullopt;
  plan.a = *a;
  plan.b = *b;
  plan.c = *c;
  return plan;
}

template <typename T>
class LibraryGemm final : public StepKernel {
 public:
  explicit LibraryGemm(LibraryPlan plan) : plan_(std::move(plan)) {}

  void Run(const StepArguments& arguments) const override {
    arguments.team->For(plan_.n_tiles(), 1, [&](int64_t begin, int64_t end, Scratch) {
      for (int64_t tile = begin; tile < end && RunTile(arguments, tile);) ++tile;
    });
  }

  std::string Describe() const override {
    return StrCat("tile ", plan_.m.full, " x ", plan_.n.full, " x ", plan_.k.full);
  }

 private:
  // False when cancelled.
  bool RunTile(const StepArguments& arguments, int64_t tile) const {
    const int64_t column = tile % plan_.n.tiles, row = tile / plan_.n.tiles % plan_.m.tiles;
    const Offsets batch = OffsetsOf(plan_.batch, tile / plan_.n.tiles / plan_.m.tiles);
    const Offsets m = OffsetsOf(plan_.m.outer, row), n = OffsetsOf(plan_.n.outer, column);
    for (int64_t depth = 0; depth < plan_.k.tiles; ++depth) {
      if (IsCancelled(arguments.cancel)) return false;
      const Offsets k = OffsetsOf(plan_.k.outer, depth);
      MatrixProduct<T>(plan_.m.Length(row), plan_.n.Length(column), plan_.k.Length(depth),
                       static_cast<const T*>(arguments.a) + batch.a + m.a + k.a, plan_.a,
                       static_cast<const T*>(arguments.b) + batch.b + n.b + k.b, plan_.b,
                       arguments.accumulate || depth > 0,
                       static_cast<T*>(arguments.c) + batch.c + m.c + n.c, plan_.c);
    }
    return true;
  }

  const LibraryPlan plan_;
};

}  // namespace

Preparation PrepareGemm(const StepView& step) {
  constexpr int64_t kSmallest = 192;
  if (step.accumulate_double) return Preparation::Refuse("sums are asked for in double");
  if (std::min({step.m_size, step.n_size, step.k_size}) < kSmallest) {
    return Preparation::Refuse(StrCat("a product of ", step.m_size, " x ", step.n_size, " x ",
                                      step.k_size, " is below ", kSmallest, " on one side"));
  }
  std::optional<LibraryPlan> plan = PlanInPlace(step);
  if (!plan.has_value()) return Preparation::Refuse("not all tensors are matrices in place");
  return DispatchDType(step.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const double vectors =
        step.work() * (step.is_complex() ? 2 : 1) / static_cast<double>(VectorElements<T>());
    return Preparation::Accept(std::make_unique<LibraryGemm<T>>(*std::move(plan)),
                               1e-9 * vectors * MachineCalibration().library_product);
  });
}

}  // namespace tenon::cpu
