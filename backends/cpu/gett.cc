#include "backends/cpu/gett.h"

#include <algorithm>
#include <memory>
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
    arguments.team->For(plan_.n_tiles(), grain_, [&](int64_t begin, int64_t end, Scratch scratch) {
      Range range(plan_, arguments, scratch);
      for (int64_t tile = begin; tile < end && range.RunTile(tile, tile + 1 == end);) {
        ++tile;
      }
    });
  }

  int64_t scratch_bytes() const override {
    return PacksBytes(plan_) + plan_.s.scratch_bytes() + plan_.v.scratch_bytes() +
           plan_.c.scratch_bytes();
  }
  bool streams() const override { return plan_.may_stream; }
  std::string Describe() const override { return plan_.Describe(); }

 private:
  // A packed tile and where it came from. These lie at the beginning of the scratch: first that of
  // S, then those of V.
  struct Pack {
    T* data = nullptr;
    const T* from = nullptr;
    const StridedCopy* copy = nullptr;
  };

  static int64_t PacksBytes(const GettPlan& plan) {
    return (static_cast<int64_t>(sizeof(Pack)) * (1 + plan.v.slots) + 63) / 64 * 64;
  }

  // The tiles one thread computes one after the other, with what it has packed last.
  class Range {
   public:
    Range(const GettPlan& plan, const StepArguments& arguments, Scratch scratch)
        : plan_(plan),
          arguments_(arguments),
          s_(static_cast<const T*>(plan.is_swapped ? arguments.b : arguments.a)),
          v_(static_cast<const T*>(plan.is_swapped ? arguments.a : arguments.b)) {
      packs_ = reinterpret_cast<Pack*>(scratch.data);
      std::byte* next = scratch.data + PacksBytes(plan);
      if (!scratch.is_kept) {
        std::uninitialized_default_construct_n(packs_, 1 + plan.v.slots);
        packs_[0].data = reinterpret_cast<T*>(next);
        for (int64_t i = 0; i < plan.v.slots; ++i) {
          packs_[1 + i].data =
              reinterpret_cast<T*>(next + plan.s.tile_bytes + i * plan.v.tile_bytes);
        }
      }
      pack_c_ = reinterpret_cast<T*>(next + plan.s.scratch_bytes() + plan.v.scratch_bytes());
    }

    // False when cancelled. `last` says that no tile follows.
    bool RunTile(int64_t number, bool last) {
      Place place = PlaceOf(number, 0);
      T* const c = place.c;
      if (plan_.c.is_packed && arguments_.accumulate)
        plan_.c.fetches[place.c_tails].Run(c, pack_c_);
      for (int64_t depth = 0; depth < plan_.depth.tiles; ++depth) {
        if (IsCancelled(arguments_.cancel)) return false;
        const bool ends = depth + 1 == plan_.depth.tiles;
        const Place next = ends && last ? place : PlaceOf(number + ends, ends ? 0 : depth + 1);
        const T* s = OperandS(place);
        const T* v = OperandV(place, depth);
        ProductTile tile = TileOf(place, arguments_.accumulate || depth > 0);
        if (!plan_.v.is_packed && next.v != place.v) tile.next_v = next.v;
        FetchAhead ahead;
        if (FillAhead(place, next, ahead)) tile.ahead = &ahead;
        MultiplyTile<T>(tile, s, v, plan_.c.is_packed ? pack_c_ : c);
        if (ends && plan_.c.is_packed) plan_.c.copies[place.c_tails].Run(pack_c_, c);
        place = next;
      }
      return true;
    }

   private:
    // One tile at one depth: where its tensors begin, and which of its axes are tails.
    struct Place {
      const T* s;
      const T* v;
      T* c;
      bool item_tail, row_tail, column_tail, depth_tail;
      int c_tails;
    };

    Place PlaceOf(int64_t tile, int64_t depth) const {
      Offsets at = OffsetsOf(plan_.depth.outer, depth);
      bool is_tail[3] = {};
      for (size_t i = plan_.order.size(); i-- > 0;) {
        const TileLoop& loop = plan_.order[i];
        const int64_t value = tile % loop.mode.extent;
        tile /= loop.mode.extent;
        at.a += value * loop.mode.stride_a;
        at.b += value * loop.mode.stride_b;
        at.c += value * loop.mode.stride_c;
        is_tail[loop.role] |= loop.has_tail && value + 1 == loop.mode.extent;
      }
      Place place;
      place.s = s_ + at.a;
      place.v = v_ + at.b;
      place.c = static_cast<T*>(arguments_.c) + at.c;
      place.item_tail = is_tail[TileLoop::kBatch];
      place.row_tail = is_tail[TileLoop::kRows];
      place.column_tail = is_tail[TileLoop::kColumns];
      place.depth_tail = plan_.depth.IsTail(depth);
      place.c_tails = 4 * place.item_tail + 2 * place.row_tail + place.column_tail;
      return place;
    }

    // What `next` will read that `place` does not. False for nothing.
    bool FillAhead(const Place& place, const Place& next, FetchAhead& ahead) const {
      const auto fill = [](const std::vector<int64_t>& lines, const T* base,
                           FetchAhead::Lines& to) {
        to = {reinterpret_cast<const std::byte*>(base), lines.data(), lines.data() + lines.size()};
      };
      if (next.s != place.s) fill(plan_.s.lines, next.s, ahead.tensors[0]);
      if (next.v != place.v) fill(plan_.v.lines, next.v, ahead.tensors[1]);
      return ahead.count() > 0;
    }

    ProductTile TileOf(const Place& place, bool accumulate) const {
      ProductTile tile;
      tile.rows = place.row_tail ? plan_.rows.tail : plan_.rows.full;
      tile.depth = place.depth_tail ? plan_.depth.tail : plan_.depth.full;
      tile.s_row = plan_.s.first;
      tile.s_depth = plan_.s.second;
      tile.v_depth = plan_.v_depth[place.depth_tail].data();
      tile.vectors = static_cast<int64_t>(plan_.v_vector[place.column_tail].size()) / plan_.pieces;
      tile.pieces = plan_.pieces;
      tile.whole = plan_.whole_vectors[place.column_tail];
      tile.partial_elements = plan_.partial_elements[place.column_tail];
      if (plan_.is_across) tile.s_vector = plan_.s_vector[place.column_tail].data();
      tile.v_vector = plan_.v_vector[place.column_tail].data();
      tile.c_vector = plan_.c_vector[place.column_tail].data();
      tile.c_row = plan_.c_row[place.row_tail].data();
      tile.items = place.item_tail ? plan_.batch.tail : plan_.batch.full;
      tile.s_item = plan_.s.item.data();
      tile.v_item = plan_.v.item.data();
      tile.c_item = plan_.c.item.data();
      tile.accumulate = accumulate;
      tile.stream =
          plan_.may_stream && !accumulate && reinterpret_cast<uintptr_t>(place.c) % 64 == 0;
      return tile;
    }

    // The operand of a place: in place, or packed unless it was the last one packed.
    const T* OperandS(const Place& place) {
      if (!plan_.s.is_packed) return place.s;
      const int tails = plan_.is_across
                            ? 4 * place.row_tail + 2 * place.depth_tail + place.column_tail
                            : 4 * place.item_tail + 2 * place.row_tail + place.depth_tail;
      return Packed(plan_.s.copies[tails], place.s, packs_[0]);
    }

    const T* OperandV(const Place& place, int64_t depth) {
      if (!plan_.v.is_packed) return place.v;
      const int tails = 4 * place.item_tail + 2 * place.depth_tail + place.column_tail;
      return Packed(plan_.v.copies[tails], place.v, packs_[1 + (plan_.v.slots > 1 ? depth : 0)]);
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
    Pack* packs_;
    T* pack_c_;
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
