#include "backends/cpu/step_gemm.h"

#include <algorithm>
#include <utility>

#include "backends/core/strings.h"
#include "backends/cpu/blas.h"
#include "backends/cpu/scalar.h"
#include "backends/cpu/tile_plan.h"

namespace tenon::cpu {
namespace {

constexpr double kGrainWork = 65536;  // products that pay for handing work over

template <typename T>
class TiledProduct final : public StepKernel {
 public:
  TiledProduct(TilePlan plan, double work) : plan_(std::move(plan)) {
    const double tile_work = std::max(work / static_cast<double>(plan_.n_tiles()), 1.0);
    grain_ = static_cast<int64_t>(std::max(1.0, kGrainWork / tile_work));
  }

  void Run(const StepArguments& arguments) const override {
    arguments.team->For(plan_.n_tiles(), grain_,
                        [&](int64_t begin, int64_t end, std::byte* scratch) {
                          Range range(*this, arguments, scratch);
                          for (int64_t tile = begin; tile < end && range.RunTile(tile);) ++tile;
                        });
  }

  int64_t scratch_bytes() const override {
    return plan_.a.scratch_bytes + plan_.b.scratch_bytes + plan_.c.scratch_bytes;
  }
  std::string Describe() const override { return plan_.Describe(); }

 private:
  template <typename U>
  struct Matrix {
    U* data;
    MatrixLayout layout;
  };

  // A packed tile and where it came from.
  struct Pack {
    T* data = nullptr;
    const T* from = nullptr;
    int64_t rows = 0, columns = 0;
  };

  // The tiles one thread computes one after the other, with what it has packed last.
  class Range {
   public:
    Range(const TiledProduct& product, const StepArguments& arguments, std::byte* scratch)
        : plan_(product.plan_), arguments_(arguments) {
      pack_a_.data = reinterpret_cast<T*>(scratch);
      pack_b_.data = reinterpret_cast<T*>(scratch + plan_.a.scratch_bytes);
      pack_c_ = reinterpret_cast<T*>(scratch + plan_.a.scratch_bytes + plan_.b.scratch_bytes);
    }

    // False when cancelled.
    bool RunTile(int64_t tile) {
      const int64_t column = tile % plan_.n.tiles;
      const int64_t row = tile / plan_.n.tiles % plan_.m.tiles;
      const int64_t item = tile / plan_.n.tiles / plan_.m.tiles;
      const Offsets batch = OffsetsOf(plan_.batch, item);
      const Offsets m = OffsetsOf(plan_.m.outer, row), n = OffsetsOf(plan_.n.outer, column);
      const T* a = static_cast<const T*>(arguments_.a) + batch.a + m.a;
      const T* b = static_cast<const T*>(arguments_.b) + batch.b + n.b;
      T* c = static_cast<T*>(arguments_.c) + batch.c + m.c + n.c;
      const int64_t rows = plan_.m.Length(row), columns = plan_.n.Length(column);
      const bool row_tail = plan_.m.IsTail(row), column_tail = plan_.n.IsTail(column);
      const Matrix<T> result = BeginResult(c, rows, columns, row_tail, column_tail);
      for (int64_t depth = 0; depth < plan_.k.tiles; ++depth) {
        if (IsCancelled(arguments_.cancel)) return false;
        const Offsets k = OffsetsOf(plan_.k.outer, depth);
        const int64_t terms = plan_.k.Length(depth);
        const bool depth_tail = plan_.k.IsTail(depth);
        const Matrix<const T> left =
            Operand(plan_.a, a + k.a, rows, terms, row_tail, depth_tail, pack_a_);
        const Matrix<const T> right =
            Operand(plan_.b, b + k.b, terms, columns, depth_tail, column_tail, pack_b_);
        MatrixProduct<T>(rows, columns, terms, left.data, left.layout, right.data, right.layout,
                         arguments_.accumulate || depth > 0, result.data, result.layout);
      }
      if (plan_.c.is_packed) plan_.c.copies[row_tail][column_tail].Run(pack_c_, c);
      return true;
    }

   private:
    static MatrixLayout PackedLayout(const TilePlanTensor& tensor, int64_t rows, int64_t columns) {
      return {tensor.layout.is_column_major, tensor.layout.is_column_major ? rows : columns};
    }

    Matrix<T> BeginResult(T* c, int64_t rows, int64_t columns, bool row_tail, bool column_tail) {
      if (!plan_.c.is_packed) return {c, plan_.c.layout};
      if (arguments_.accumulate) plan_.c.fetches[row_tail][column_tail].Run(c, pack_c_);
      return {pack_c_, PackedLayout(plan_.c, rows, columns)};
    }

    // The tile at `from` as a matrix: in place, or packed unless it was the last one packed.
    Matrix<const T> Operand(const TilePlanTensor& tensor, const T* from, int64_t rows,
                            int64_t columns, bool row_tail, bool column_tail, Pack& pack) {
      if (!tensor.is_packed) return {from, tensor.layout};
      if (pack.from != from || pack.rows != rows || pack.columns != columns) {
        tensor.copies[row_tail][column_tail].Run(from, pack.data);
        pack = {pack.data, from, rows, columns};
      }
      return {pack.data, PackedLayout(tensor, rows, columns)};
    }

    const TilePlan& plan_;
    const StepArguments& arguments_;
    Pack pack_a_, pack_b_;
    T* pack_c_;
  };

  const TilePlan plan_;
  int64_t grain_ = 1;
};

Preparation MakeTiledProduct(const StepView& step, TilePlan plan) {
  return DispatchDType(step.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return Preparation::Accept(std::make_unique<TiledProduct<T>>(std::move(plan), step.work()));
  });
}

}  // namespace

Preparation PrepareGemm(const StepView& step) {
  if (step.accumulate_double) return Preparation::Refuse("sums are asked for in double");
  std::optional<TilePlan> plan = PlanTilesInPlace(step);
  if (!plan.has_value()) return Preparation::Refuse("not all tensors are matrices in place");
  return MakeTiledProduct(step, *std::move(plan));
}

Preparation PreparePackedGemm(const StepView& step) {
  if (step.accumulate_double) return Preparation::Refuse("sums are asked for in double");
  return MakeTiledProduct(step, PlanPackedTiles(step));
}

}  // namespace tenon::cpu
