// The register-blocked product on tiles of every shape, for each instruction set.

#include "backends/cpu/product_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "backends/core/strings.h"
#include "backends/core/tensor.h"
#include "backends/plugin/abi.h"
#include "tests/backends/cpu/highway_target.h"
#include "tests/backends/cpu/kernel_numbers.h"

namespace tenon::cpu {
namespace {

using testing::Exact;
using testing::ExactSum;
using testing::SameBits;

int64_t Uniform(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

struct Shape {
  int64_t rows = 1, depth = 1, vectors = 1, whole = 1, partial_elements = 0, items = 1;
  bool is_across = false, accumulate = false, stream = false;

  std::string Describe() const {
    return StrCat(rows, " rows, depth ", depth, ", ", whole, " of ", vectors, " vectors whole, ",
                  partial_elements, " elements in others, ", items, " items",
                  is_across ? ", across" : "", accumulate ? ", adds" : "",
                  stream ? ", streams" : "");
  }
};

// Strides of axes with `extents` in random order and with gaps, above a cell of `cell` elements.
// Strides are multiples of `unit`. The last entry is the number of elements.
std::vector<int64_t> RandomStrides(const std::vector<int64_t>& extents, int64_t cell, int64_t unit,
                                   std::mt19937_64& random) {
  std::vector<size_t> order(extents.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  std::vector<int64_t> strides(extents.size());
  int64_t next = cell, elements = cell;
  for (const size_t i : order) {
    next = (next + (random() % 3 == 0 ? 3 : 0) + unit - 1) / unit * unit;
    strides[i] = next;
    elements += next * (extents[i] - 1);
    next *= extents[i];
  }
  strides.push_back(elements);
  return strides;
}

std::vector<int64_t> Multiples(int64_t count, int64_t stride) {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < count; ++i) offsets.push_back(i * stride);
  return offsets;
}

// A tile with its tables and tensors. What no element of the tile is, is NaN in S and V, and must
// stay as it is in C.
template <typename T>
class Case {
 public:
  Case(const Shape& shape, std::mt19937_64& random) : shape_(shape), lanes_(VectorElements<T>()) {
    const int64_t unit = shape.stream ? 64 / static_cast<int64_t>(sizeof(T)) : 1;
    const int64_t last = shape.whole < shape.vectors ? shape.partial_elements : lanes_;
    // The cell of the last vector may end early: reading on would leave the tensor.
    const auto lay_out = [&](const std::vector<int64_t>& extents, bool has_vectors) {
      auto strides = RandomStrides(extents, has_vectors ? lanes_ : 1, unit, random);
      if (has_vectors) strides.back() -= lanes_ - last;
      return strides;
    };
    const auto s = lay_out({shape.items, shape.rows, shape.depth, shape.vectors}, shape.is_across);
    const auto v = lay_out({shape.items, shape.depth, shape.vectors}, true);
    const auto c = lay_out({shape.items, shape.rows, shape.vectors}, true);
    s_item_ = Multiples(shape.items, s[0]), v_item_ = Multiples(shape.items, v[0]);
    c_item_ = Multiples(shape.items, c[0]), v_depth_ = Multiples(shape.depth, v[1]);
    s_vector_ = Multiples(shape.vectors, s[3]), v_vector_ = Multiples(shape.vectors, v[2]);
    c_vector_ = Multiples(shape.vectors, c[2]), c_row_ = Multiples(shape.rows, c[1]);
    std::shuffle(v_depth_.begin(), v_depth_.end(), random);
    std::shuffle(c_row_.begin(), c_row_.end(), random);
    s_row_ = s[1], s_depth_ = s[2];
    s_.assign(s.back(), testing::NotANumber<T>());
    v_.assign(v.back(), testing::NotANumber<T>());
    c_elements_ = c.back();
    c_ = *Buffer::Allocate(c_elements_ * static_cast<int64_t>(sizeof(T)));
    for (int64_t i = 0; i < c_elements_; ++i) C()[i] = testing::RandomNumber<T>(random);
    ForElements([&](int64_t item, int64_t row, int64_t vector, int64_t lane) {
      for (int64_t k = 0; k < shape_.depth; ++k) {
        s_[S(item, row, k, vector, lane)] = testing::RandomNumber<T>(random);
        v_[V(item, k, vector, lane)] = testing::RandomNumber<T>(random);
      }
    });
  }

  void CheckAgainstLoops() {
    const std::vector<T> before(C(), C() + c_elements_);
    Multiply(Tile());
    std::vector<bool> is_written(c_elements_, false);
    ForElements([&](int64_t item, int64_t row, int64_t vector, int64_t lane) {
      const int64_t at = CAt(item, row, vector, lane);
      is_written[at] = true;
      ExactSum sum;
      if (shape_.accumulate) sum.Add(Exact(before[at]));
      for (int64_t k = 0; k < shape_.depth; ++k) {
        sum.Add(Exact(s_[S(item, row, k, vector, lane)]) * Exact(v_[V(item, k, vector, lane)]));
      }
      ASSERT_TRUE(sum.IsNear(C()[at])) << "row " << row << " vector " << vector << " lane " << lane
                                       << " is " << Exact(C()[at]) << ", expected " << sum.value;
    });
    for (int64_t i = 0; i < c_elements_; ++i) {
      ASSERT_TRUE(is_written[i] || SameBits(C()[i], before[i])) << "element " << i;
    }
  }

  // One row and one vector at a time give the same bits.
  void CheckAgainstSingleBlocks() {
    const std::vector<T> before(C(), C() + c_elements_);
    Multiply(Tile());
    const std::vector<T> whole(C(), C() + c_elements_);
    std::copy(before.begin(), before.end(), C());
    for (int64_t row = 0; row < shape_.rows; ++row) {
      for (int64_t vector = 0; vector < shape_.vectors; ++vector) {
        ProductTile tile = Tile();
        tile.rows = tile.vectors = 1;
        tile.whole = vector < shape_.whole ? 1 : 0;
        tile.c_row += row;
        tile.v_vector += vector;
        tile.c_vector += vector;
        if (shape_.is_across) tile.s_vector += vector;
        MultiplyTile(tile, s_.data() + row * s_row_, v_.data(), C());
      }
    }
    for (int64_t i = 0; i < c_elements_; ++i) ASSERT_TRUE(SameBits(C()[i], whole[i])) << i;
  }

 private:
  T* C() { return c_.as<T>(); }
  int64_t S(int64_t item, int64_t row, int64_t k, int64_t vector, int64_t lane) const {
    const int64_t at = s_item_[item] + row * s_row_ + k * s_depth_;
    return shape_.is_across ? at + s_vector_[vector] + lane : at;
  }
  int64_t V(int64_t item, int64_t k, int64_t vector, int64_t lane) const {
    return v_item_[item] + v_depth_[k] + v_vector_[vector] + lane;
  }
  int64_t CAt(int64_t item, int64_t row, int64_t vector, int64_t lane) const {
    return c_item_[item] + c_row_[row] + c_vector_[vector] + lane;
  }

  template <typename F>
  void ForElements(F&& f) const {
    for (int64_t item = 0; item < shape_.items; ++item) {
      for (int64_t row = 0; row < shape_.rows; ++row) {
        for (int64_t vector = 0; vector < shape_.vectors; ++vector) {
          const int64_t elements = vector < shape_.whole ? lanes_ : shape_.partial_elements;
          for (int64_t lane = 0; lane < elements; ++lane) f(item, row, vector, lane);
        }
      }
    }
  }

  ProductTile Tile() const {
    ProductTile tile;
    tile.rows = shape_.rows, tile.depth = shape_.depth;
    tile.s_row = s_row_, tile.s_depth = s_depth_, tile.v_depth = v_depth_.data();
    tile.vectors = shape_.vectors, tile.whole = shape_.whole;
    tile.partial_elements = shape_.partial_elements;
    tile.v_vector = v_vector_.data(), tile.c_vector = c_vector_.data();
    tile.s_vector = shape_.is_across ? s_vector_.data() : nullptr;
    tile.c_row = c_row_.data();
    tile.items = shape_.items;
    tile.s_item = s_item_.data(), tile.v_item = v_item_.data(), tile.c_item = c_item_.data();
    tile.accumulate = shape_.accumulate, tile.stream = shape_.stream;
    return tile;
  }

  void Multiply(const ProductTile& tile) { MultiplyTile(tile, s_.data(), v_.data(), C()); }

  const Shape shape_;
  const int64_t lanes_;
  int64_t s_row_ = 0, s_depth_ = 0, c_elements_ = 0;
  std::vector<int64_t> s_item_, v_item_, c_item_, v_depth_, s_vector_, v_vector_, c_vector_, c_row_;
  std::vector<T> s_, v_;
  Buffer c_;
};

Shape RandomShape(int64_t lanes, std::mt19937_64& random) {
  Shape shape;
  shape.rows = Uniform(random, 1, 9);
  shape.depth = Uniform(random, 1, random() % 4 == 0 ? 70 : 8);
  shape.vectors = Uniform(random, 1, 6);
  const bool has_partial = lanes > 1 && random() % 2 == 0;
  shape.whole = has_partial ? Uniform(random, 0, shape.vectors - 1) : shape.vectors;
  shape.partial_elements = has_partial ? Uniform(random, 1, lanes - 1) : 0;
  shape.items = Uniform(random, 1, 3);
  shape.is_across = random() % 3 == 0;
  shape.accumulate = random() % 2 == 0;
  shape.stream = !shape.accumulate && !has_partial && random() % 2 == 0;
  return shape;
}

class ProductKernelsTest : public ::testing::TestWithParam<std::tuple<int64_t, int32_t>> {
 protected:
  // Calls `f(type_identity<T>)` for the test's type.
  template <typename F>
  void ForType(F&& f) {
    DispatchDType(std::get<1>(GetParam()), std::forward<F>(f));
  }

  const testing::TargetScope target_{std::get<0>(GetParam())};
  std::mt19937_64 random_{1};
};

TEST_P(ProductKernelsTest, VectorsHaveTheLengthOfTheInstructionSet) {
  ForType([&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t target = std::get<0>(GetParam());
    const int64_t bytes = VectorElements<T>() * static_cast<int64_t>(sizeof(T));
    if (target == HWY_AVX3) {
      EXPECT_EQ(bytes, 64);
    } else if (target == HWY_AVX2) {
      EXPECT_EQ(bytes, 32);
    } else {
      EXPECT_GE(VectorElements<T>(), 1);
    }
  });
}

TEST_P(ProductKernelsTest, RandomTiles) {
  ForType([&](auto type) {
    using T = typename decltype(type)::type;
    for (int round = 0; round < 600 && !HasFailure(); ++round) {
      const Shape shape = RandomShape(VectorElements<T>(), random_);
      SCOPED_TRACE(shape.Describe());
      Case<T>(shape, random_).CheckAgainstLoops();
    }
  });
}

TEST_P(ProductKernelsTest, EveryNumberOfRowsAndEveryDepth) {
  ForType([&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t rows = 1; rows <= 9; ++rows) {
      for (int64_t depth = 1; depth <= 70 && !HasFailure(); ++depth) {
        Shape shape = RandomShape(VectorElements<T>(), random_);
        shape.rows = rows;
        shape.depth = depth;
        SCOPED_TRACE(shape.Describe());
        Case<T>(shape, random_).CheckAgainstLoops();
      }
    }
  });
}

TEST_P(ProductKernelsTest, EveryPartialVector) {
  ForType([&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t elements = 1; elements < VectorElements<T>(); ++elements) {
      for (int64_t whole = 0; whole <= 5; ++whole) {
        for (const bool is_across : {false, true}) {
          const Shape shape{.rows = 1 + whole,
                            .depth = 5,
                            .vectors = whole + 2,
                            .whole = whole,
                            .partial_elements = elements,
                            .is_across = is_across,
                            .accumulate = elements % 2 == 0};
          SCOPED_TRACE(shape.Describe());
          Case<T>(shape, random_).CheckAgainstLoops();
          if (HasFailure()) return;
        }
      }
    }
  });
}

TEST_P(ProductKernelsTest, BitsDoNotDependOnThePlaceInTheTile) {
  ForType([&](auto type) {
    using T = typename decltype(type)::type;
    for (int round = 0; round < 300 && !HasFailure(); ++round) {
      const Shape shape = RandomShape(VectorElements<T>(), random_);
      SCOPED_TRACE(shape.Describe());
      Case<T>(shape, random_).CheckAgainstSingleBlocks();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Targets, ProductKernelsTest,
    ::testing::Combine(::testing::ValuesIn(testing::MachineTargets()),
                       ::testing::Values(TENON_DTYPE_FLOAT32, TENON_DTYPE_FLOAT64,
                                         TENON_DTYPE_COMPLEX64, TENON_DTYPE_COMPLEX128)),
    [](const auto& info) {
      return StrCat(testing::TargetName(std::get<0>(info.param)), "_", std::get<1>(info.param));
    });

}  // namespace
}  // namespace tenon::cpu
