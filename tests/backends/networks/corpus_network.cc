#include "tests/backends/networks/corpus_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "tests/support/test_data.h"

namespace tenon::testing {
namespace {

using nlohmann::json;

std::complex<double> ParseValue(const json& value) {
  if (value.is_number()) return value.get<double>();
  return {value.at(0).get<double>(), value.at(1).get<double>()};
}

template <typename T>
std::vector<std::complex<double>> Widen(const Tensor& tensor) {
  const T* data = tensor.buffer.as<T>();
  return {data, data + *CheckedElementCount(tensor.spec.shape)};
}

}  // namespace

std::optional<CorpusNetwork> LoadCorpusNetwork(const std::string& name) {
  std::string folder = TestPath("data/networks");
  if (!std::filesystem::exists(folder + "/" + name + ".json")) {
    const auto shared = SharedPath("networks");
    if (!shared.has_value()) return std::nullopt;
    folder = *shared;
  }
  auto file = ReadNetworkFile(folder + "/" + name + ".json");
  EXPECT_TRUE(file.ok()) << file.status();
  return CorpusNetwork{*std::move(file), ReadJsonOrDie(folder + "/reference.json").at(name)};
}

std::vector<Tensor> CorpusOperands(const NetworkFile& file, DType rule, DType dtype) {
  std::vector<Tensor> operands;
  for (size_t k = 0; k < file.network.inputs.size(); ++k) {
    auto shape = InputShape(file.network, k);
    EXPECT_TRUE(shape.ok()) << shape.status();
    auto tensor = MakeCorpusTensor(file.seed.value(), k, file.scales.at(k), {rule, *shape});
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    if (rule != dtype) tensor = ConvertTensor(*tensor, dtype);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    operands.push_back(*std::move(tensor));
  }
  return operands;
}

schedule::ContractionRequest CorpusRequest(const NetworkFile& file, DType dtype) {
  schedule::ContractionRequest request;
  request.network = file.network;
  request.path = file.path;
  request.sliced = file.sliced;
  request.allow_slicing = false;
  for (size_t k = 0; k < file.network.inputs.size(); ++k) {
    request.operands.push_back({dtype, InputShape(file.network, k).value()});
  }
  return request;
}

std::vector<std::complex<double>> ValuesOf(const Tensor& tensor) {
  switch (tensor.spec.dtype) {
    case DType::kFloat32:
      return Widen<float>(tensor);
    case DType::kFloat64:
      return Widen<double>(tensor);
    case DType::kComplex64:
      return Widen<std::complex<float>>(tensor);
    default:
      return Widen<std::complex<double>>(tensor);
  }
}

void ExpectReference(const Tensor& tensor, const json& reference, double tolerance) {
  ASSERT_EQ(tensor.spec.shape, reference.at("shape").get<std::vector<int64_t>>());
  const std::vector<std::complex<double>> values = ValuesOf(tensor);
  const bool is_whole = reference.contains("values");
  const json& expected = is_whole ? reference.at("values") : reference.at("sample_values");
  ASSERT_EQ(is_whole ? values.size() : expected.size(), expected.size());
  const double largest = reference.at("max_abs").get<double>();
  for (size_t i = 0; i < expected.size(); ++i) {
    const size_t position = is_whole ? i : reference.at("sample_positions").at(i).get<size_t>();
    const std::complex<double> wanted = ParseValue(expected.at(i));
    EXPECT_LE(std::abs(values.at(position) - wanted), tolerance * largest)
        << "element " << position << " is " << values[position] << ", expected " << wanted;
  }
  std::complex<long double> sum = 0;  // the sums' own roundings must not count
  long double norm2 = 0;
  for (const std::complex<double>& value : values) {
    sum += value;
    norm2 += std::norm(std::complex<long double>(value));
  }
  // Errors of norm e give a sum that is off by up to sqrt(n) e, and a norm that is off by e.
  const double norm = std::sqrt(reference.at("norm2").get<double>());
  const std::complex<double> wanted = ParseValue(reference.at("sum"));
  EXPECT_LE(std::abs(std::complex<double>(sum) - wanted),
            tolerance * norm * std::sqrt(static_cast<double>(values.size())))
      << "the sum is " << sum << ", expected " << wanted;
  EXPECT_LE(std::abs(static_cast<double>(std::sqrt(norm2)) - norm), tolerance * norm);
}

}  // namespace tenon::testing
