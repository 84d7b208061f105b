#include "backends/core/tensor.h"

#include <gtest/gtest.h>

#include <complex>
#include <cstring>
#include <limits>

#include "backends/core/memory.h"
#include "tests/support/status_matchers.h"

// A refused allocation is null, as without a sanitizer.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace tenon {
namespace {

using testing::Fails;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr DType kContractionDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kComplex64,
                                        DType::kComplex128};

TEST(DTypeTest, SizesAndNames) {
  const std::vector<std::pair<std::string_view, int64_t>> expected = {
      {"unspecified", 0}, {"bool", 1},    {"int8", 1},      {"int16", 2},      {"int32", 4},
      {"int64", 8},       {"uint8", 1},   {"uint16", 2},    {"uint32", 4},     {"uint64", 8},
      {"float32", 4},     {"float64", 8}, {"complex64", 8}, {"complex128", 16}};
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeName(dtype), expected[i].first);
    EXPECT_EQ(DTypeSize(dtype), expected[i].second);
    if (i > 0) {
      EXPECT_EQ(*DTypeFromName(expected[i].first), dtype);
    }
  }
  EXPECT_EQ(DTypeSize(static_cast<DType>(99)), 0);
  EXPECT_EQ(DTypeSize(static_cast<DType>(-1)), 0);
  EXPECT_TRUE(Fails(DTypeFromName("float16"), Reason::kUnsupportedDtype));
  EXPECT_TRUE(Fails(DTypeFromName("unspecified"), Reason::kUnsupportedDtype));
}

TEST(DTypeTest, PromotionIsNumPys) {
  for (const DType a : kContractionDTypes) {
    EXPECT_TRUE(IsContractionDType(a));
    for (const DType b : kContractionDTypes) {
      const bool wide =
          DTypeSize(a) / (IsComplex(a) ? 2 : 1) == 8 || DTypeSize(b) / (IsComplex(b) ? 2 : 1) == 8;
      const DType promoted = PromoteDTypes(a, b);
      EXPECT_EQ(IsComplex(promoted), IsComplex(a) || IsComplex(b));
      EXPECT_EQ(DTypeSize(promoted), (wide ? 8 : 4) * (IsComplex(promoted) ? 2 : 1));
    }
  }
  EXPECT_EQ(PromoteDTypes(DType::kFloat64, DType::kComplex64), DType::kComplex128);
  EXPECT_FALSE(IsContractionDType(DType::kInt64));
}

TEST(TensorTest, CountsAreChecked) {
  const auto count = [](std::vector<int64_t> extents) { return CheckedElementCount(extents); };
  EXPECT_EQ(*count({}), 1);
  EXPECT_EQ(*count({2, 3, 4}), 24);
  EXPECT_EQ(*count({kMax}), kMax);
  EXPECT_EQ(*count({kMax, kMax, 0}), 0);
  EXPECT_TRUE(Fails(count({kMax, 2}), Reason::kOverflow));
  EXPECT_TRUE(Fails(count({int64_t{1} << 32, int64_t{1} << 31}), Reason::kOverflow));
  EXPECT_TRUE(Fails(count({0, -1}), Reason::kShapeMismatch));
  EXPECT_EQ(*CheckedByteCount({DType::kComplex128, {2, 3}}), 96);
  EXPECT_TRUE(Fails(CheckedByteCount({DType::kFloat64, {kMax / 4}}), Reason::kOverflow));
}

TEST(TensorTest, RowMajorStrides) {
  EXPECT_EQ(RowMajorStrides({}), std::vector<int64_t>());
  const std::vector<int64_t> shape = {2, 3, 4}, strides = {12, 4, 1};
  EXPECT_EQ(RowMajorStrides(shape), strides);
  const std::vector<int64_t> empty = {0, kMax, kMax};
  EXPECT_EQ(RowMajorStrides(empty).back(), 1);  // and no overflow on the way
}

TEST(MemoryTest, AlignmentAndRefusals) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1000}, kHugePageBytes}) {
    for (const int64_t alignment : {int64_t{1}, int64_t{64}, int64_t{4096}, kHugePageBytes}) {
      void* memory = AllocateMemory(bytes, alignment);
      ASSERT_NE(memory, nullptr);
      const int64_t expected = std::max(alignment, bytes == kHugePageBytes ? bytes : 64);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % expected, 0u);
      std::memset(memory, 1, bytes);
      ReleaseMemory(memory, bytes);
    }
  }
  EXPECT_EQ(AllocateMemory(-1, 64), nullptr);
  EXPECT_EQ(AllocateMemory(64, 0), nullptr);
  EXPECT_EQ(AllocateMemory(64, 48), nullptr);
  EXPECT_EQ(AllocateMemory(64, 2 * kHugePageBytes), nullptr);
  EXPECT_EQ(AllocateMemory(kMax, 64), nullptr);
  ReleaseMemory(nullptr, 64);
}

TEST(BufferTest, MovesAndRefusals) {
  auto buffer = Buffer::Allocate(100);
  ASSERT_TRUE(buffer.ok());
  std::memset(buffer->data(), 7, 100);
  Buffer moved = *std::move(buffer);
  EXPECT_EQ(moved.size_bytes(), 100);
  EXPECT_EQ(moved.as<uint8_t>()[99], 7);
  Buffer other;
  EXPECT_EQ(other.size_bytes(), 0);
  other = std::move(moved);
  EXPECT_EQ(other.as<uint8_t>()[0], 7);
  other.Reset();
  EXPECT_EQ(other.data(), nullptr);
  EXPECT_TRUE(Buffer::Allocate(0).ok());
  EXPECT_TRUE(Fails(Buffer::Allocate(kMax), Reason::kExceedsMemoryBudget));
  EXPECT_TRUE(Fails(Buffer::Allocate(kMax / 2), Reason::kExceedsMemoryBudget));
  EXPECT_TRUE(Fails(Buffer::Allocate(-8), Reason::kExceedsMemoryBudget));
}

TEST(TensorTest, AllocateAndClone) {
  auto tensor = Tensor::Allocate({DType::kInt32, {2, 2}});
  ASSERT_TRUE(tensor.ok());
  const int32_t values[] = {1, -2, 3, -4};
  std::memcpy(tensor->buffer.data(), values, sizeof(values));
  const auto copy = tensor->Clone();
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->spec, tensor->spec);
  EXPECT_NE(copy->buffer.data(), tensor->buffer.data());
  EXPECT_EQ(std::memcmp(copy->buffer.data(), values, sizeof(values)), 0);
  EXPECT_TRUE(Fails(Tensor::Allocate({DType::kFloat64, {kMax, 2}}), Reason::kOverflow));
}

template <typename T>
Tensor MakeTensor(DType dtype, const std::vector<T>& values) {
  Tensor tensor = *Tensor::Allocate({dtype, {static_cast<int64_t>(values.size())}});
  std::memcpy(tensor.buffer.data(), values.data(), values.size() * sizeof(T));
  return tensor;
}

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  const T* data = tensor.buffer.as<T>();
  return std::vector<T>(data, data + tensor.buffer.size_bytes() / sizeof(T));
}

TEST(ConvertTest, RoundsToNearest) {
  const std::vector<double> values = {0.1, -2.5, 1e300, 16777217.0};
  const auto narrow = ConvertTensor(MakeTensor(DType::kFloat64, values), DType::kFloat32);
  ASSERT_TRUE(narrow.ok());
  const std::vector<float> expected = {0.1f, -2.5f, std::numeric_limits<float>::infinity(),
                                       16777216.0f};
  EXPECT_EQ(Values<float>(*narrow), expected);
}

TEST(ConvertTest, IntegersAndComplex) {
  const auto from_int = ConvertTensor(MakeTensor<int16_t>(DType::kInt16, {-3, 7}), DType::kFloat64);
  EXPECT_EQ(Values<double>(*from_int), (std::vector<double>{-3, 7}));
  const auto from_unsigned =
      ConvertTensor(MakeTensor<uint64_t>(DType::kUint64, {uint64_t{1} << 63}), DType::kComplex128);
  EXPECT_EQ(Values<std::complex<double>>(*from_unsigned)[0], std::complex<double>(0x1p63, 0));
  const Tensor complex = MakeTensor<std::complex<double>>(DType::kComplex128, {{0.1, -4}});
  const auto narrow = ConvertTensor(complex, DType::kComplex64);
  EXPECT_EQ(Values<std::complex<float>>(*narrow)[0], std::complex<float>(0.1f, -4));
  const auto same = ConvertTensor(complex, DType::kComplex128);
  EXPECT_EQ(Values<std::complex<double>>(*same)[0], std::complex<double>(0.1, -4));
}

TEST(ConvertTest, Refusals) {
  const Tensor complex = MakeTensor<std::complex<float>>(DType::kComplex64, {{1, 2}});
  EXPECT_TRUE(Fails(ConvertTensor(complex, DType::kFloat64), Reason::kUnsupportedDtype));
  const Tensor real = MakeTensor<float>(DType::kFloat32, {1});
  EXPECT_TRUE(Fails(ConvertTensor(real, DType::kInt32), Reason::kUnsupportedDtype));
  EXPECT_TRUE(Fails(ConvertTensor(real, DType::kUnspecified), Reason::kUnsupportedDtype));
}

}  // namespace
}  // namespace tenon
