#include "backends/cpu/copy_lanes.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace tenon::cpu {
namespace {

// Which loop of two iterations each bit of a lane's number stands for.
struct LaneOrder {
  int n_bits;  // of the number; the low ones, within a unit, stay where they are
  int unit_bits;
  const Bit* bits[8];  // by position, from unit_bits on

  int PositionOf(const Bit* bit) const {
    for (int i = unit_bits; i < n_bits; ++i) {
      if (bits[i] == bit) return i;
    }
    return -1;
  }
};

// The choice that leads from one order of lanes to another. `incoming` tells the two vectors apart
// before, `outgoing` after; null where the vector stays alone.
LaneChoice Choose(const LaneOrder& before, const LaneOrder& after, const Bit* incoming,
                  const Bit* outgoing, bool is_second) {
  int weights[Log2(kLargestLanes)] = {};  // of the bits of a lane's number
  for (int i = 0; i < after.n_bits; ++i) {
    const int position = i < after.unit_bits         ? i
                         : after.bits[i] == incoming ? after.n_bits
                                                     : before.PositionOf(after.bits[i]);
    weights[i] = 1 << position;
  }
  LaneChoice choice = {};
  if (is_second) choice.lanes[0] = static_cast<uint8_t>(1 << before.PositionOf(outgoing));
  for (unsigned lane = 1; lane < kLargestLanes; ++lane) {
    choice.lanes[lane] =
        static_cast<uint8_t>(choice.lanes[lane & (lane - 1)] + weights[std::countr_zero(lane)]);
  }
  return choice;
}

// The loops of two iterations next to the unit, as many as a vector holds of either side.
struct VectorBits {
  LaneOrder before, after;  // in the source's vectors and in the target's
  int n_mixed = 0;          // bits that are in only one of them
  const Bit *incoming[kLargestStages], *outgoing[kLargestStages];

  VectorBits(int n_bits, int unit_bits) : before{n_bits, unit_bits, {}}, after(before) {}
  VectorBits(const VectorBits&) = delete;

  // Takes them out of `loops`; false if there are not enough.
  bool Take(Loops& loops) {
    const int first = before.unit_bits, end = before.n_bits;
    for (int i = first; i < end; ++i) {
      before.bits[i] = New(loops, &CopyLoop::source, i);
      if (before.bits[i] == nullptr) return false;
    }
    const Bit *const pool = pool_, *const source_end = pool + n_pool_;
    for (int i = first; i < end; ++i) {
      const Bit* shared = std::find_if(
          pool, source_end, [i](const Bit& bit) { return bit.target == int64_t{4} << i; });
      if (shared == source_end) {
        shared = incoming[n_mixed++] = New(loops, &CopyLoop::target, i);
        if (shared == nullptr) return false;
      }
      after.bits[i] = shared;
    }
    int n_outgoing = 0;
    for (int i = first; i < end; ++i) {
      if (after.PositionOf(before.bits[i]) < 0) outgoing[n_outgoing++] = before.bits[i];
    }
    return true;
  }

 private:
  const Bit* New(Loops& loops, Stride stride, int position) {
    const std::optional<Bit> bit = TakeBit(loops, stride, int64_t{4} << position);
    if (!bit.has_value()) return nullptr;
    pool_[n_pool_] = *bit;
    return &pool_[n_pool_++];
  }

  Bit pool_[2 * kLargestStages];
  int n_pool_ = 0;
};

// The stages that bring the lanes of the source into the target's order.
void MixLanes(CopyPart& part, const VectorBits& bits) {
  part.stages = bits.n_mixed;
  part.sources = part.targets = {0};
  for (int i = bits.n_mixed; i-- > 0;) {
    AppendInner(part.sources, 2, bits.incoming[i]->source);
    AppendInner(part.targets, 2, bits.outgoing[i]->target);
  }
  if (part.stages == 0) {
    part.choices[0][0] = Choose(bits.before, bits.after, nullptr, nullptr, false);
  }
  LaneOrder order = bits.before;
  for (int stage = 0; stage < part.stages; ++stage) {
    const Bit *in = bits.incoming[stage], *out = bits.outgoing[stage];
    LaneOrder next = order;
    next.bits[order.PositionOf(out)] = in;
    if (stage == part.stages - 1) next = bits.after;
    for (const bool is_second : {false, true}) {
      part.choices[stage][is_second] = Choose(order, next, in, out, is_second);
    }
    order = next;
  }
}

}  // namespace

bool MixLowLoops(CopyPart& part, Loops& loops, int64_t vector_bytes) {
  VectorBits bits(Log2(vector_bytes / 4), Log2(part.unit / 4));
  if (!bits.Take(loops)) return false;
  MixLanes(part, bits);
  return true;
}

void TransposeUnits(CopyPart& part, int64_t vector_bytes) {
  const int n_bits = Log2(vector_bytes / 4), unit_bits = Log2(part.unit / 4);
  part.stages = n_bits - unit_bits;
  Bit rows[kLargestStages], columns[kLargestStages];
  LaneOrder order = {n_bits, unit_bits, {}};
  for (int i = unit_bits; i < n_bits; ++i) order.bits[i] = &columns[i - unit_bits];
  for (int stage = 0; stage < part.stages; ++stage) {
    LaneOrder next = order;
    next.bits[unit_bits + stage] = &rows[stage];
    for (const bool is_second : {false, true}) {
      part.choices[stage][is_second] =
          Choose(order, next, &rows[stage], &columns[stage], is_second);
    }
    order = next;
  }
}

}  // namespace tenon::cpu
