#include "backends/cpu/product_kernels.h"

#include <algorithm>

#include "backends/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/product_kernels.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

// One element at a time, for machines without any of the other instruction sets.
template <typename T>
void MultiplyItem(const ProductTile& tile, const T* s, const T* v, T* c) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    for (int64_t column = 0; column < tile.vectors; ++column) {
      T sum{};
      for (int64_t k = 0; k < tile.depth; ++k) {
        const int64_t across = tile.s_vector == nullptr ? 0 : tile.s_vector[column];
        FusedAdd(s[row * tile.s_row + k * tile.s_depth + across],
                 v[tile.v_vector[column] + tile.v_depth[k]], sum);
      }
      T& to = c[tile.c_row[row] + tile.c_vector[column]];
      to = tile.accumulate ? to + sum : sum;
    }
  }
}

template <typename T>
void Multiply(const ProductTile& tile, const T* s, const T* v, T* c) {
  for (int64_t item = 0; item < tile.items; ++item) {
    MultiplyItem(tile, s + tile.s_item[item], v + tile.v_item[item], c + tile.c_item[item]);
  }
}

template <typename T>
int64_t ElementsPerVector() {
  return 1;
}

#else

// Accumulators fill about half of the registers: enough to hide the latency of multiply-adds, and
// few enough that a power of two rows and columns comes out even.
#if HWY_TARGET <= HWY_AVX3
constexpr int kAccumulators = 16;
#else
constexpr int kAccumulators = 8;
#endif

// Largest block of rows, and vectors beside it.
template <typename T>
constexpr int kMostRows = kAccumulators / 2 / Parts<T>::kCount;
template <typename T, int kRows>
constexpr int kColumns = kRows == kMostRows<T> ? 2 : 4;

// Real, or imaginary, parts of a vector of complex numbers, in both places. From memory these cost
// a load and no shuffle.
template <class D, class V>
HWY_INLINE V RealParts(D, V v) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(hn::TFromD<D>) == 4) return V{_mm512_moveldup_ps(v.raw)};
#endif
  return hn::DupEven(v);
}
template <class D, class V>
HWY_INLINE V ImaginaryParts(D, V v) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(hn::TFromD<D>) == 4) return V{_mm512_movehdup_ps(v.raw)};
#endif
  return hn::DupOdd(v);
}

constexpr int64_t kNarrowVectors = 512;  // of V, about two thirds of the first cache
constexpr int64_t kChunk = 16;           // terms between two times that later tiles are fetched
constexpr int64_t kBlocksAhead = 2;      // blocks of columns that memory takes to arrive

// The sums of kRows x kColumns vectors. Complex numbers lie with real and imaginary parts side by
// side: one sum takes real parts of S, the other imaginary ones, and Finish joins them.
template <typename T, class D, int kRows, int kColumns>
struct Sums {
  static constexpr int kParts = Parts<T>::kCount;
  hn::Vec<D> part[kParts][kRows][kColumns];

  HWY_INLINE explicit Sums(D d) {
    for (int p = 0; p < kParts; ++p) {
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < kColumns; ++c) part[p][r][c] = hn::Zero(d);
      }
    }
  }

  // One element of S with all vectors of V.
  HWY_INLINE void Add(D d, int row, const T* s, const hn::Vec<D>* v) {
    const auto* values = reinterpret_cast<const typename Parts<T>::Real*>(s);
    for (int p = 0; p < kParts; ++p) {
      const hn::Vec<D> value = hn::Set(d, values[p]);
      for (int c = 0; c < kColumns; ++c) {
        part[p][row][c] = hn::MulAdd(value, v[c], part[p][row][c]);
      }
    }
  }

  // A vector of S with one of V.
  HWY_INLINE void AddAcross(int row, int column, hn::Vec<D> s, hn::Vec<D> v) {
    if constexpr (kParts == 1) {
      part[0][row][column] = hn::MulAdd(s, v, part[0][row][column]);
    } else {
      part[0][row][column] = hn::MulAdd(RealParts(D(), s), v, part[0][row][column]);
      part[kParts - 1][row][column] =
          hn::MulAdd(ImaginaryParts(D(), s), v, part[kParts - 1][row][column]);
    }
  }

  HWY_INLINE hn::Vec<D> Finish(D d, int row, int column) const {
    if constexpr (kParts == 1) {
      return part[0][row][column];
    } else {
      const hn::Vec<D> crossed = hn::Reverse2(d, part[kParts - 1][row][column]);
      // Even lanes lose the product of imaginary parts, odd ones gain the mixed product.
      return hn::Add(part[0][row][column], hn::OddEven(crossed, hn::Neg(crossed)));
    }
  }
};

// Vectors that lie in kPieces pieces, whose offsets are in elements of T.
template <typename T, int kPieces, class D, typename Real = hn::TFromD<D> >
HWY_INLINE hn::Vec<D> LoadPieces(D d, const Real* from, const int64_t* offsets) {
  constexpr int kParts = Parts<T>::kCount;
  if constexpr (kPieces == 1) {
    return hn::LoadU(d, from + offsets[0] * kParts);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadPieces<T, kPieces / 2>(half, from, offsets + kPieces / 2),
                       LoadPieces<T, kPieces / 2>(half, from, offsets));
  }
}

template <typename T, int kPieces, class D, typename Real = hn::TFromD<D> >
HWY_INLINE void StorePieces(D d, hn::Vec<D> value, Real* to, const int64_t* offsets) {
  constexpr int kParts = Parts<T>::kCount;
  if constexpr (kPieces == 1) {
    hn::StoreU(value, d, to + offsets[0] * kParts);
  } else {
    const hn::Half<D> half;
    StorePieces<T, kPieces / 2>(half, hn::LowerHalf(half, value), to, offsets);
    StorePieces<T, kPieces / 2>(half, hn::UpperHalf(half, value), to, offsets + kPieces / 2);
  }
}

// Fetches into the second cache what the current tile does not need yet.
HWY_INLINE void Fetch(FetchAhead& ahead) {
  int64_t left = ahead.per_chunk;
  for (FetchAhead::Lines& lines : ahead.tensors) {
    for (; left > 0 && lines.next != lines.end; ++lines.next, --left) {
      __builtin_prefetch(lines.base + *lines.next, 0, 2);
    }
  }
}

// kRows x kColumns vectors in pieces.
template <typename T, int kRows, int kColumns, int kPieces>
HWY_INLINE void MultiplyPieces(const ProductTile& tile, const T* HWY_RESTRICT s,
                               const T* HWY_RESTRICT v, T* HWY_RESTRICT c, int64_t row,
                               int64_t vector) {
  using Real = typename Parts<T>::Real;
  const hn::ScalableTag<Real> d;
  constexpr int kParts = Parts<T>::kCount;
  Sums<T, decltype(d), kRows, kColumns> sums(d);
  const int64_t* v_pieces = tile.v_vector + vector * kPieces;
  const int64_t* c_pieces = tile.c_vector + vector * kPieces;
  const T* rows = s + row * tile.s_row;
  if (tile.ahead != nullptr) Fetch(*tile.ahead);
  for (int64_t k = 0; k < tile.depth; ++k) {
    const Real* from = reinterpret_cast<const Real*>(v) + tile.v_depth[k] * kParts;
    hn::Vec<decltype(d)> values[kColumns];
    for (int j = 0; j < kColumns; ++j) {
      values[j] = LoadPieces<T, kPieces>(d, from, v_pieces + j * kPieces);
    }
    for (int r = 0; r < kRows; ++r) sums.Add(d, r, rows + r * tile.s_row, values);
    rows += tile.s_depth;
  }
  for (int r = 0; r < kRows; ++r) {
    Real* to = reinterpret_cast<Real*>(c + tile.c_row[row + r]);
    for (int j = 0; j < kColumns; ++j) {
      hn::Vec<decltype(d)> value = sums.Finish(d, r, j);
      if (tile.accumulate) {
        value = hn::Add(LoadPieces<T, kPieces>(d, to, c_pieces + j * kPieces), value);
      }
      StorePieces<T, kPieces>(d, value, to, c_pieces + j * kPieces);
    }
  }
}

// One product of a tile.
template <typename T>
struct Item {
  const T* s;
  const T* v;
  T* c;
  const T* next_v;  // where the next one's V begins
};

template <typename T>
HWY_INLINE Item<T> ItemOf(const ProductTile& tile, const T* s, const T* v, T* c, int64_t item) {
  const T* const this_v = v + tile.v_item[item];
  const T* const next_v = item + 1 < tile.items    ? v + tile.v_item[item + 1]
                          : tile.next_v == nullptr ? this_v
                                                   : static_cast<const T*>(tile.next_v);
  return {s + tile.s_item[item], this_v, c + tile.c_item[item], next_v};
}

// `kAsksAhead`: asks for the vectors of a later block, which for a single block of rows come from
// memory: the machine does not guess short runs.
template <typename T, int kRows, int kColumns, bool kIsPartial, bool kIsAcross, bool kAsksAhead>
HWY_INLINE void MultiplyBlock(const ProductTile& tile, const Item<T>& item, int64_t row,
                              int64_t vector) {
  const T* HWY_RESTRICT const s = item.s;
  const T* HWY_RESTRICT const v = item.v;
  T* HWY_RESTRICT const c = item.c;
  using Real = typename Parts<T>::Real;
  const hn::ScalableTag<Real> d;
  using D = decltype(d);
  constexpr int kParts = Parts<T>::kCount;
  const auto mask = hn::FirstN(d, static_cast<size_t>(tile.partial_elements * kParts));
  const auto load = [&](const Real* from) HWY_ATTR {
    if constexpr (kIsPartial) {
      return hn::MaskedLoad(mask, d, from);
    } else {
      return hn::LoadU(d, from);
    }
  };
  Sums<T, D, kRows, kColumns> sums(d);
  const Real* columns[kColumns];
  const Real* ahead[kColumns];
  const Real* across[kColumns];
  for (int j = 0; j < kColumns; ++j) {
    columns[j] = reinterpret_cast<const Real*>(v + tile.v_vector[vector + j]);
    if constexpr (kAsksAhead) {
      const int64_t later = vector + kBlocksAhead * kColumns + j;
      const int64_t wrapped = std::min(later - tile.vectors, tile.vectors - 1);
      ahead[j] = reinterpret_cast<const Real*>(wrapped < 0 ? v + tile.v_vector[later]
                                                           : item.next_v + tile.v_vector[wrapped]);
    }
    if constexpr (kIsAcross) {
      across[j] = reinterpret_cast<const Real*>(s + tile.s_vector[vector + j] + row * tile.s_row);
    }
  }
  const T* rows = s + row * tile.s_row;
  const int64_t s_row = tile.s_row * kParts, s_depth = tile.s_depth * kParts;
  const int64_t chunk = tile.ahead == nullptr ? tile.depth : kChunk;
  for (int64_t k = 0; k < tile.depth;) {
    if (tile.ahead != nullptr) Fetch(*tile.ahead);
    for (const int64_t end = std::min(k + chunk, tile.depth); k < end; ++k) {
      const int64_t offset = tile.v_depth[k] * kParts;
      hn::Vec<D> values[kColumns];
      for (int j = 0; j < kColumns; ++j) {
        values[j] = load(columns[j] + offset);
        if constexpr (kAsksAhead) hwy::Prefetch(ahead[j] + offset);
      }
      for (int r = 0; r < kRows; ++r) {
        if constexpr (kIsAcross) {
          for (int j = 0; j < kColumns; ++j) {
            sums.AddAcross(r, j, load(across[j] + r * s_row), values[j]);
          }
        } else {
          sums.Add(d, r, rows + r * tile.s_row, values);
        }
      }
      rows += tile.s_depth;
      if constexpr (kIsAcross) {
        for (int j = 0; j < kColumns; ++j) across[j] += s_depth;
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) {
      Real* to = reinterpret_cast<Real*>(c + tile.c_row[row + r] + tile.c_vector[vector + j]);
      hn::Vec<D> value = sums.Finish(d, r, j);
      if constexpr (kIsPartial) {
        if (tile.accumulate) value = hn::Add(load(to), value);
        hn::BlendedStore(value, mask, d, to);
      } else if (tile.stream) {
        hn::Stream(value, d, to);
      } else {
        if (tile.accumulate) value = hn::Add(load(to), value);
        hn::StoreU(value, d, to);
      }
    }
  }
}

// Asks for what the next block of rows will read and write: rows lie too far apart for the machine
// to guess it.
template <typename T, int kRows, int kColumns>
HWY_INLINE void PrefetchRows(const ProductTile& tile, const T* s, T* c, int64_t row, int64_t vector,
                             bool with_s) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) {
      __builtin_prefetch(c + tile.c_row[row + r] + tile.c_vector[vector + j], 1);
    }
    if (!with_s) continue;
    for (int64_t k = 0; k < tile.depth; k += kLine) {
      __builtin_prefetch(s + (row + r) * tile.s_row + k);
    }
  }
}

// Asks for part `part` of `parts` of what rows [row, row + kRows) read of S.
template <typename T, int kRows>
HWY_INLINE void PrefetchS(const ProductTile& tile, const T* s, int64_t row, int64_t part,
                          int64_t parts) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  const int64_t step = tile.s_depth == 1 ? kLine : 1;
  const int64_t lines = (tile.depth + step - 1) / step;
  const int64_t first = lines * part / parts, last = lines * (part + 1) / parts;
  const T* from = s + row * tile.s_row;
  if (tile.s_row == 1) {
    for (int64_t k = first; k < last; ++k) __builtin_prefetch(from + k * step * tile.s_depth);
    return;
  }
  for (int r = 0; r < kRows; ++r, from += tile.s_row) {
    for (int64_t k = first; k < last; ++k) __builtin_prefetch(from + k * step);
  }
}

// Whole vectors of one item, rows outermost: for few columns, whose V stays in the first cache
// while S and C come and go in long runs.
template <typename T, int kRows>
HWY_NOINLINE void SweepNarrow(const ProductTile& tile, const Item<T>& item, int64_t begin,
                              int64_t end) {
  constexpr int kWide = kColumns<T, kRows>;
  const int64_t parts = (tile.whole + kWide - 1) / kWide;
  const bool with_s = tile.s_depth == 1 || tile.s_row == 1;
  for (int64_t row = begin; row < end; row += kRows) {
    int64_t vector = 0;
    const bool ahead = row + kRows < end;
    for (int64_t part = 0; vector + kWide <= tile.whole; vector += kWide, ++part) {
      if (ahead) {
        if (with_s) PrefetchS<T, kRows>(tile, item.s, row + kRows, part, parts);
        if (!tile.stream)
          PrefetchRows<T, kRows, kWide>(tile, item.s, item.c, row + kRows, vector, false);
      }
      MultiplyBlock<T, kRows, kWide, false, false, false>(tile, item, row, vector);
    }
    for (; vector < tile.whole; ++vector) {
      MultiplyBlock<T, kRows, 1, false, false, false>(tile, item, row, vector);
    }
  }
}

// Whole vectors of one item and one block of rows, as far as there are pairs or fours of them;
// their number.
template <typename T, int kRows, bool kIsAcross>
HWY_NOINLINE int64_t SweepOneBlock(const ProductTile& tile, const Item<T>& item, int64_t row) {
  constexpr int kWide = kColumns<T, kRows>;
  int64_t vector = 0;
  for (; vector + kWide <= tile.whole; vector += kWide) {
    MultiplyBlock<T, kRows, kWide, false, kIsAcross, true>(tile, item, row, vector);
  }
  return vector;
}

// All vectors of rows [begin, end), a multiple of kRows, of all items. A block of columns serves
// all rows before the next one comes, so that it stays in the first cache.
template <typename T, int kRows, bool kIsAcross>
HWY_NOINLINE void SweepRows(const ProductTile& tile, const T* s, const T* v, T* c, int64_t begin,
                            int64_t end) {
  constexpr int kWide = kColumns<T, kRows>;
  for (int64_t number = 0; number < tile.items; ++number) {
    const Item<T> item = ItemOf(tile, s, v, c, number);
    int64_t vector = 0;
    if (end - begin == kRows) {
      vector = SweepOneBlock<T, kRows, kIsAcross>(tile, item, begin);
    } else if (!kIsAcross && tile.whole * tile.depth <= kNarrowVectors) {
      SweepNarrow<T, kRows>(tile, item, begin, end);
      vector = tile.whole;
    }
    for (; vector + kWide <= tile.whole; vector += kWide) {
      for (int64_t row = begin; row < end; row += kRows) {
        if (!kIsAcross && row + kRows < end && tile.depth >= 16 && !tile.stream) {
          PrefetchRows<T, kRows, kWide>(tile, item.s, item.c, row + kRows, vector,
                                        vector == 0 && tile.s_depth == 1);
        }
        MultiplyBlock<T, kRows, kWide, false, kIsAcross, false>(tile, item, row, vector);
      }
    }
    for (; vector < tile.whole; ++vector) {
      for (int64_t row = begin; row < end; row += kRows) {
        MultiplyBlock<T, kRows, 1, false, kIsAcross, false>(tile, item, row, vector);
      }
    }
    for (; vector + kWide <= tile.vectors; vector += kWide) {
      for (int64_t row = begin; row < end; row += kRows) {
        MultiplyBlock<T, kRows, kWide, true, kIsAcross, false>(tile, item, row, vector);
      }
    }
    for (; vector < tile.vectors; ++vector) {
      for (int64_t row = begin; row < end; row += kRows) {
        MultiplyBlock<T, kRows, 1, true, kIsAcross, false>(tile, item, row, vector);
      }
    }
  }
}

// The same for vectors in pieces, all of them whole.
template <typename T, int kRows, int kPieces>
HWY_NOINLINE void SweepPieces(const ProductTile& tile, const T* first_s, const T* first_v,
                              T* first_c, int64_t begin, int64_t end) {
  constexpr int kWide = kColumns<T, kRows>;
  for (int64_t item = 0; item < tile.items; ++item) {
    const T* s = first_s + tile.s_item[item];
    const T* v = first_v + tile.v_item[item];
    T* c = first_c + tile.c_item[item];
    int64_t vector = 0;
    for (; vector + kWide <= tile.whole; vector += kWide) {
      for (int64_t row = begin; row < end; row += kRows) {
        MultiplyPieces<T, kRows, kWide, kPieces>(tile, s, v, c, row, vector);
      }
    }
    for (; vector < tile.whole; ++vector) {
      for (int64_t row = begin; row < end; row += kRows) {
        MultiplyPieces<T, kRows, 1, kPieces>(tile, s, v, c, row, vector);
      }
    }
  }
}

// The rows in blocks of kRows, what is left in smaller ones.
template <typename T, int kRows, bool kIsAcross>
HWY_INLINE void SweepBlocks(const ProductTile& tile, const T* s, const T* v, T* c, int64_t begin) {
  const int64_t end = begin + (tile.rows - begin) / kRows * kRows;
  if (end > begin) {
    if (kIsAcross || tile.pieces == 1) {
      SweepRows<T, kRows, kIsAcross>(tile, s, v, c, begin, end);
    } else if (tile.pieces == 2) {
      SweepPieces<T, kRows, 2>(tile, s, v, c, begin, end);
    } else {
      SweepPieces<T, kRows, 4>(tile, s, v, c, begin, end);
    }
  }
  if constexpr (kRows > 1) {
    if (end < tile.rows) SweepBlocks<T, kRows / 2, kIsAcross>(tile, s, v, c, end);
  }
}

// Items share the vectors of S, so a few of these serve all items before the next ones come.
template <typename T>
void MultiplyAcross(const ProductTile& tile, const T* s, const T* v, T* c) {
  constexpr int64_t kVectors = 4;
  ProductTile part = tile;
  for (int64_t begin = 0; begin < tile.vectors; begin += kVectors) {
    part.vectors = std::min(kVectors, tile.vectors - begin);
    part.whole = std::clamp<int64_t>(tile.whole - begin, 0, part.vectors);
    part.s_vector = tile.s_vector + begin;
    part.v_vector = tile.v_vector + begin;
    part.c_vector = tile.c_vector + begin;
    SweepBlocks<T, kMostRows<T>, true>(part, s, v, c, 0);
  }
}

// Spreads what there is to fetch over the blocks of a tile. Where that would be much beside their
// work, the machine's own guesses have to do.
template <typename T>
void PaceFetching(ProductTile& tile) {
  constexpr int64_t kRows = kMostRows<T>, kWide = kColumns<T, kMostRows<T> >;
  constexpr int64_t kWorkPerLine = 16;
  const int64_t chunks = tile.items * std::max<int64_t>(tile.rows / kRows, 1) *
                         std::max<int64_t>(tile.whole / kWide, 1) *
                         ((tile.depth + kChunk - 1) / kChunk);
  const int64_t work =
      std::min(tile.rows, kRows) * kWide * Parts<T>::kCount * std::min(tile.depth, kChunk);
  tile.ahead->per_chunk = (tile.ahead->count() + chunks - 1) / chunks;
  if (tile.ahead->per_chunk * kWorkPerLine > work) tile.ahead = nullptr;
}

template <typename T>
void Multiply(ProductTile tile, const T* s, const T* v, T* c) {
  if (tile.ahead != nullptr) PaceFetching<T>(tile);
  if (tile.s_vector == nullptr) {
    SweepBlocks<T, kMostRows<T>, false>(tile, s, v, c, 0);
  } else {
    MultiplyAcross(tile, s, v, c);
  }
  if (tile.stream) hwy::FlushStream();
}

template <typename T>
int64_t ElementsPerVector() {
  const hn::ScalableTag<typename Parts<T>::Real> d;
  return static_cast<int64_t>(hn::Lanes(d)) / Parts<T>::kCount;
}

#endif  // HWY_TARGET == HWY_SCALAR

// Exported by number: the macro's names take no templates.
#define TENON_PRODUCT_ENTRIES(T, Name)                                         \
  void Multiply##Name(const ProductTile& tile, const T* s, const T* v, T* c) { \
    Multiply<T>(tile, s, v, c);                                                \
  }                                                                            \
  int64_t Elements##Name() { return ElementsPerVector<T>(); }
TENON_PRODUCT_ENTRIES(float, Float)
TENON_PRODUCT_ENTRIES(double, Double)
TENON_PRODUCT_ENTRIES(Complex<float>, ComplexFloat)
TENON_PRODUCT_ENTRIES(Complex<double>, ComplexDouble)
#undef TENON_PRODUCT_ENTRIES

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

#define TENON_EXPORT_PRODUCT(T, Name)                                        \
  HWY_EXPORT(Multiply##Name);                                                \
  HWY_EXPORT(Elements##Name);                                                \
  template <>                                                                \
  int64_t VectorElements<T>() {                                              \
    return HWY_DYNAMIC_DISPATCH(Elements##Name)();                           \
  }                                                                          \
  template <>                                                                \
  void MultiplyTile(const ProductTile& tile, const T* s, const T* v, T* c) { \
    HWY_DYNAMIC_DISPATCH(Multiply##Name)(tile, s, v, c);                     \
  }
TENON_EXPORT_PRODUCT(float, Float)
TENON_EXPORT_PRODUCT(double, Double)
TENON_EXPORT_PRODUCT(Complex<float>, ComplexFloat)
TENON_EXPORT_PRODUCT(Complex<double>, ComplexDouble)
#undef TENON_EXPORT_PRODUCT

}  // namespace tenon::cpu
#endif  // HWY_ONCE
