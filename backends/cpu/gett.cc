#include "backends/cpu/gett.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/gett_plan.h"
#include "backends/cpu/product_kernels.h"
#include "backends/cpu/scalar.h"

namespace tenon::cpu {
namespace {

constexpr double kGrainSeconds = 10e-6;  // work that pays for handing it to another thread

template <typename T>
class Gett final : public StepKernel {
 public:
  explicit Gett(GettPlan plan) : plan_(std::move(plan)) {
    const double tile = plan_.seconds / static_cast<double>(plan_.n_tiles());
    grain_ = static_cast<int64_t>(std::max(1.0, kGrainSeconds / tile));
  }

  void Run(const StepArguments& arguments) const override {
    arguments.team->For(plan_.n_tiles(), grain_,
                        [&](int64_t begin, int64_t end, std::byte* scratch) {
                          Range range(plan_, arguments, scratch);
                          for (int64_t tile = begin; tile < end && range.RunTile(tile);) ++tile;
                        });
  }

  int64_t scratch_bytes() const override {
    return plan_.s.scratch_bytes + plan_.v.scratch_bytes + plan_.c.scratch_bytes;
  }
  std::string Describe() const override { return plan_.Describe(); }

 private:
  // A packed tile and where it came from.
  struct Pack {
    T* data = nullptr;
    const T* from = nullptr;
    const StridedCopy* copy = nullptr;
  };

  // The tiles one thread computes one after the other, with what it has packed last.
  class Range {
   public:
    Range(const GettPlan& plan, const StepArguments& arguments, std::byte* scratch)
        : plan_(plan),
          arguments_(arguments),
          s_(static_cast<const T*>(plan.is_swapped ? arguments.b : arguments.a)),
          v_(static_cast<const T*>(plan.is_swapped ? arguments.a : arguments.b)) {
      pack_s_.data = reinterpret_cast<T*>(scratch);
      pack_v_.data = reinterpret_cast<T*>(scratch + plan.s.scratch_bytes);
      pack_c_ = reinterpret_cast<T*>(scratch + plan.s.scratch_bytes + plan.v.scratch_bytes);
    }

    // False when cancelled. Rows run fastest, so that a packed tile of V serves all of them.
    bool RunTile(int64_t tile) {
      const int64_t row = tile % plan_.rows.tiles;
      const int64_t column = tile / plan_.rows.tiles % plan_.columns.tiles;
      const int64_t item = tile / plan_.rows.tiles / plan_.columns.tiles;
      const Offsets batch = OffsetsOf(plan_.batch.outer, item);
      const Offsets m = OffsetsOf(plan_.rows.outer, row);
      const Offsets n = OffsetsOf(plan_.columns.outer, column);
      item_tail_ = plan_.batch.IsTail(item);
      row_tail_ = plan_.rows.IsTail(row);
      column_tail_ = plan_.columns.IsTail(column);
      const int c_tails = 4 * item_tail_ + 2 * row_tail_ + column_tail_;
      T* c = static_cast<T*>(arguments_.c) + batch.c + m.c + n.c;
      if (plan_.c.is_packed && arguments_.accumulate) {
        plan_.c.fetches[c_tails].Run(c, pack_c_);
      }
      for (int64_t depth = 0; depth < plan_.depth.tiles; ++depth) {
        if (IsCancelled(arguments_.cancel)) return false;
        const Offsets k = OffsetsOf(plan_.depth.outer, depth);
        const bool depth_tail = plan_.depth.IsTail(depth);
        const T* s = OperandS(s_ + batch.a + m.a + n.a + k.a, depth_tail);
        const T* v = OperandV(v_ + batch.b + n.b + k.b, depth_tail);
        MultiplyTile<T>(TileOf(depth_tail, arguments_.accumulate || depth > 0, c), s, v,
                        plan_.c.is_packed ? pack_c_ : c);
      }
      if (plan_.c.is_packed) plan_.c.copies[c_tails].Run(pack_c_, c);
      return true;
    }

   private:
    ProductTile TileOf(bool depth_tail, bool accumulate, const T* c) const {
      ProductTile tile;
      tile.rows = row_tail_ ? plan_.rows.tail : plan_.rows.full;
      tile.depth = depth_tail ? plan_.depth.tail : plan_.depth.full;
      tile.s_row = plan_.s.first;
      tile.s_depth = plan_.s.second;
      tile.v_depth = plan_.v_depth[depth_tail].data();
      tile.vectors = static_cast<int64_t>(plan_.v_vector[column_tail_].size()) / plan_.pieces;
      tile.pieces = plan_.pieces;
      tile.whole = plan_.whole_vectors[column_tail_];
      tile.partial_elements = plan_.partial_elements[column_tail_];
      if (plan_.is_across) tile.s_vector = plan_.s_vector[column_tail_].data();
      tile.v_vector = plan_.v_vector[column_tail_].data();
      tile.c_vector = plan_.c_vector[column_tail_].data();
      tile.c_row = plan_.c_row[row_tail_].data();
      tile.items = item_tail_ ? plan_.batch.tail : plan_.batch.full;
      tile.s_item = plan_.s.item.data();
      tile.v_item = plan_.v.item.data();
      tile.c_item = plan_.c.item.data();
      tile.accumulate = accumulate;
      tile.stream = plan_.may_stream && !accumulate && reinterpret_cast<uintptr_t>(c) % 64 == 0;
      return tile;
    }

    // The tile at `from`: in place, or packed unless it was the last one packed.
    const T* OperandS(const T* from, bool depth_tail) {
      if (!plan_.s.is_packed) return from;
      const int tails = plan_.is_across ? 4 * row_tail_ + 2 * depth_tail + column_tail_
                                        : 4 * item_tail_ + 2 * row_tail_ + depth_tail;
      return Packed(plan_.s.copies[tails], from, pack_s_);
    }

    const T* OperandV(const T* from, bool depth_tail) {
      if (!plan_.v.is_packed) return from;
      const int tails = 4 * item_tail_ + 2 * depth_tail + column_tail_;
      return Packed(plan_.v.copies[tails], from, pack_v_);
    }

    static const T* Packed(const StridedCopy& copy, const T* from, Pack& pack) {
      if (pack.from != from || pack.copy != &copy) {
        copy.Run(from, pack.data);
        pack.from = from;
        pack.copy = &copy;
      }
      return pack.data;
    }

    const GettPlan& plan_;
    const StepArguments& arguments_;
    const T* const s_;
    const T* const v_;
    Pack pack_s_, pack_v_;
    T* pack_c_;
    bool item_tail_ = false, row_tail_ = false, column_tail_ = false;
  };

  const GettPlan plan_;
  int64_t grain_ = 1;
};

}  // namespace

Preparation PrepareGett(const StepView& step) {
  if (step.accumulate_double) return Preparation::Refuse("sums are asked for in double");
  if (step.work() == 0) return Preparation::Refuse("an extent is 0");
  GettPlan plan = PlanGett(step);
  return DispatchDType(step.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const double seconds = plan.seconds;
    return Preparation::Accept(std::make_unique<Gett<T>>(std::move(plan)), seconds);
  });
}

}  // namespace tenon::cpu
