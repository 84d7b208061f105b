#include <gtest/gtest.h>

#include <complex>
#include <nlohmann/json.hpp>

#include "backends/core/error.h"
#include "backends/core/network.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tenon {
namespace {

using testing::Fails;

TEST(CorpusTest, TheDocumentedStream) {
  const auto tensor = MakeCorpusTensor(1000, 0, 1.0, {DType::kFloat64, {2, 2}});
  ASSERT_TRUE(tensor.ok());
  const double expected[] = {-0.017791864035785032, -0.9720520441249609, -0.36408564773800745,
                             -0.18025082370136936};
  for (int n = 0; n < 4; ++n) EXPECT_EQ(tensor->buffer.as<double>()[n], expected[n]) << n;
}

TEST(CorpusTest, ComplexTensorsTakeTwoNumbersEach) {
  const auto real = MakeCorpusTensor(77, 5, 1.0, {DType::kFloat64, {6}});
  const auto complex = MakeCorpusTensor(77, 5, 3.0, {DType::kComplex128, {3}});
  ASSERT_TRUE(real.ok() && complex.ok());
  for (int n = 0; n < 6; ++n) {
    EXPECT_DOUBLE_EQ(complex->buffer.as<double>()[n],
                     3.0 / std::sqrt(2.0) * real->buffer.as<double>()[n]);
  }
}

TEST(CorpusTest, SinglePrecisionIsTheRoundedDouble) {
  for (const auto& [wide, narrow] : {std::pair(DType::kFloat64, DType::kFloat32),
                                     std::pair(DType::kComplex128, DType::kComplex64)}) {
    const auto exact = MakeCorpusTensor(9, 2, 0.37, {wide, {4, 5}});
    const auto rounded = MakeCorpusTensor(9, 2, 0.37, {narrow, {4, 5}});
    ASSERT_TRUE(exact.ok() && rounded.ok());
    for (int n = 0; n < 20; ++n) {
      EXPECT_EQ(rounded->buffer.as<float>()[n], static_cast<float>(exact->buffer.as<double>()[n]));
    }
  }
}

TEST(CorpusTest, Refusals) {
  EXPECT_TRUE(
      Fails(MakeCorpusTensor(1, 0, 1, {DType::kInt32, {1}}), Reason::kUnsupportedDtype, "dtype"));
  EXPECT_TRUE(
      Fails(MakeCorpusTensor(1, 0, 1, {DType::kFloat64, {int64_t{1} << 62}}), Reason::kOverflow));
  EXPECT_TRUE(Fails(MakeCorpusTensor(1, 0, 1, {DType::kFloat64, {-1}}), Reason::kShapeMismatch));
}

TEST(CorpusTest, EveryReferenceBeginsWithTheSameElements) {
  const auto reference = testing::ReadJsonOrDie(testing::TestPath("data/networks/reference.json"));
  int checked = 0;
  for (const auto& [name, entry] : reference.items()) {
    SCOPED_TRACE(name);
    const auto file = ReadNetworkFile(testing::TestPath("data/networks/" + name + ".json"));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ(file->seed, entry["seed"].get<uint64_t>());
    const auto shape = InputShape(file->network, 0);
    ASSERT_TRUE(shape.ok()) << shape.status();
    for (const DType dtype : {DType::kFloat64, DType::kComplex128}) {
      const auto figures = entry.find(std::string(DTypeName(dtype)));
      if (figures == entry.end()) continue;
      const auto& elements = (*figures)["first_elements_of_tensor0"];
      const auto count = static_cast<int64_t>(elements.size());
      ASSERT_GE(*CheckedElementCount(*shape), count);
      // An element depends on its number, not on the shape.
      const auto tensor = MakeCorpusTensor(*file->seed, 0, file->scales.at(0), {dtype, {count}});
      ASSERT_TRUE(tensor.ok()) << tensor.status();
      const auto expected = elements.flatten();
      ASSERT_FALSE(expected.empty());
      int n = 0;
      for (const auto& value : expected) {
        EXPECT_DOUBLE_EQ(tensor->buffer.as<double>()[n++], value.get<double>());
        ++checked;
      }
    }
  }
  EXPECT_GE(checked, 100);
}

}  // namespace
}  // namespace tenon
