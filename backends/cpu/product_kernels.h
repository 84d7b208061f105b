// Register-blocked products of a tile, compiled per instruction set.
//
// The roles of the operands: vectors run along the columns of V and C; elements of S are broadcast.
// C[r][j] (+)= sum over k of S[r][k] * V[k][j]. For tiny products in a batch vectors run across the
// batch instead, along all three tensors: C[r][j] (+)= sum over k of S[r][k][j] * V[k][j].
// Terms are added in the order of k with fused multiply-adds, for every element alike: where it
// lies in the tile does not change its bits.

#ifndef TENON_BACKENDS_CPU_PRODUCT_KERNELS_H_
#define TENON_BACKENDS_CPU_PRODUCT_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "backends/cpu/scalar.h"

namespace tenon::cpu {

// Cache lines that are wanted soon, fetched piece by piece while a tile is computed. A hint: any
// address will do.
struct FetchAhead {
  struct Lines {
    const std::byte* base = nullptr;
    const int64_t* next = nullptr;  // offsets from `base` in bytes
    const int64_t* end = nullptr;
  };
  Lines tensors[2];
  int64_t per_chunk = 0;  // lines for every few terms of a block

  int64_t count() const {
    return (tensors[0].end - tensors[0].next) + (tensors[1].end - tensors[1].next);
  }
};

// Where a tile's elements are; offsets and strides in elements.
struct ProductTile {
  int64_t rows = 0;  // of S and C
  int64_t depth = 0;
  int64_t s_row = 0, s_depth = 0;    // strides of S
  const int64_t* v_depth = nullptr;  // offset in V of each k
  // Columns come in vectors of VectorElements<T>() elements: contiguous in V and in C, or in
  // `pieces` (1, 2 or 4) equal ones that are; offsets of each vector, or of its pieces one after
  // the other. The first `whole` vectors are full, the others have `partial_elements` (and no
  // pieces).
  int64_t vectors = 0, whole = 0;
  int64_t partial_elements = 0;
  int pieces = 1;  // 1 where S has columns
  const int64_t* v_vector = nullptr;
  const int64_t* c_vector = nullptr;
  const int64_t* s_vector = nullptr;  // null where S is broadcast
  const int64_t* c_row = nullptr;     // offset in C of each row
  // Products with the same tables; offsets of each.
  int64_t items = 1;
  const int64_t *s_item = nullptr, *v_item = nullptr, *c_item = nullptr;
  bool accumulate = false;  // add to C
  bool stream = false;  // write around the caches; every vector of C is 64-byte aligned and full
  const void* next_v = nullptr;  // V of the tile that comes next, if it lies likewise: a hint
  FetchAhead* ahead = nullptr;   // null for nothing; advanced
};

// Elements that one vector holds on this machine.
template <typename T>
int64_t VectorElements();

// Thread-safe on different C. Defined for the four contraction types.
template <typename T>
void MultiplyTile(const ProductTile& tile, const T* s, const T* v, T* c);

}  // namespace tenon::cpu

#endif  // TENON_BACKENDS_CPU_PRODUCT_KERNELS_H_
