#include "tests/backends/measurement/measurement_fixture.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "backends/core/npy.h"
#include "backends/cpu/resources.h"
#include "backends/plugin/provider.h"
#include "tests/support/test_data.h"

namespace tenon::testing {
namespace {

int32_t PlanOnCpu(tenon_provider*, const tenon_resource_request* request, int64_t available_bytes,
                  int64_t* bytes, tenon_status* status) {
  const auto result = cpu::ResourceWorkingMemory(*request, available_bytes);
  if (!result.ok()) return plugin::ToAbiStatus(result.status(), status);
  *bytes = *result;
  return 0;
}

double NumberOf(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  const std::string text = value.get<std::string>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return text[0] == '-' ? -infinity : infinity;
}

measurement::ParameterValue ValueOf(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  return value.get<std::string>();
}

// "5-means" is k-means with 5 clusters.
void AddStrategy(const std::string& strategy, measurement::RawSpec& spec) {
  const size_t dash = strategy.find("-means");
  if (dash != std::string::npos) {
    spec.parameters["cluster_count"] = int64_t{std::stoll(strategy.substr(0, dash))};
  }
  spec.parameters["clustering_strategy"] = dash == std::string::npos ? strategy : "kmeans";
}

// Adds a parameter of the recorded program under the name that it has here.
void AddParameter(const std::string& name, const nlohmann::json& value,
                  const nlohmann::json& parameters, measurement::RawSpec& spec) {
  if (name == "random_seed" || name == "random_state") {
    spec.parameters["random.generator"] = "numpy";
    spec.parameters["random.seed"] = ValueOf(value);
  } else if (name == "clustering_args") {
    const std::string prefix = parameters.value("clustering", "kmeans") + ".";
    for (const auto& [inner, argument] : value.items()) {
      spec.parameters[prefix + inner] = ValueOf(argument);
    }
  } else if (name == "n_jobs") {
    spec.parameters["workers"] = ValueOf(value);
  } else if (name == "clustering_strategy") {
    AddStrategy(value.get<std::string>(), spec);
  } else {
    spec.parameters[name] = ValueOf(value);
  }
}

}  // namespace

ResourceProvider::ResourceProvider(bool reference) : fake_(reference ? "reference" : "cpu") {
  fake_.info.resource_kinds = cpu::ResourceKinds();
  fake_.info.resource_dtypes = 1u << TENON_DTYPE_FLOAT64 | 1u << TENON_DTYPE_FLOAT32;
  fake_.table.working_memory = PlanOnCpu;
  fake_.build = [reference](const tenon_resource_request& request) {
    tenon_resource_statistics statistics;
    return reference ? cpu::BuildResourcesReference(request, &statistics)
                     : cpu::BuildResources(request, &statistics);
  };
}

std::shared_ptr<plugin::Provider> ResourceProvider::get() {
  if (provider_ == nullptr) {
    auto provider = plugin::Provider::Create(fake_.api(), fake_.options());
    EXPECT_TRUE(provider.ok()) << provider.status();
    provider_ = *std::move(provider);
  }
  return provider_;
}

Tensor MatrixOf(const nlohmann::json& rows) {
  const int64_t n = static_cast<int64_t>(rows.size());
  const int64_t columns = static_cast<int64_t>(rows[0].size());
  Tensor tensor = *Tensor::Allocate({DType::kFloat64, {n, columns}});
  double* out = tensor.buffer.as<double>();
  for (const auto& row : rows) {
    for (const auto& value : row) *out++ = NumberOf(value);
  }
  return tensor;
}

Tensor MatrixOf(std::initializer_list<std::initializer_list<double>> rows) {
  const int64_t n = static_cast<int64_t>(rows.size());
  const int64_t columns = static_cast<int64_t>(rows.begin()->size());
  Tensor tensor = *Tensor::Allocate({DType::kFloat64, {n, columns}});
  double* out = tensor.buffer.as<double>();
  for (const auto& row : rows) out = std::copy(row.begin(), row.end(), out);
  return tensor;
}

Tensor GoldenMatrix(const std::string& relative_path) {
  auto tensor = ReadNpyFile(TestPath(relative_path));
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  return *std::move(tensor);
}

measurement::RawSpec SpecOf(const nlohmann::json& json) {
  measurement::RawSpec spec;
  spec.id = json.at("id").get<std::string>();
  if (!json.contains("params")) return spec;
  for (const auto& [name, value] : json.at("params").items()) {
    AddParameter(name, value, json.at("params"), spec);
  }
  // The recorded program draws from its global generator, which had this seed.
  if (spec.id == "l_tnc" && json.at("params").value("cvm", "") == "ch_btw") {
    spec.parameters["random.generator"] = "numpy";
    spec.parameters["random.seed"] = int64_t{12345};
  }
  return spec;
}

absl::StatusOr<Scored> Score(ResourceProvider& provider,
                             const std::vector<measurement::RawSpec>& specs, const Tensor& original,
                             const Tensor& projection, measurement::SessionOptions options,
                             measurement::Labels labels) {
  options.rows = original.spec.shape[0];
  options.original_columns = original.spec.shape[1];
  options.max_embedded_columns = projection.spec.shape[1];
  Scored scored;
  TENON_ASSIGN_OR_RETURN(scored.session, measurement::Session::Prepare(
                                             specs, options, std::move(labels), provider.get()));
  TENON_RETURN_IF_ERROR(scored.session->BindOriginal(original, nullptr));
  TENON_ASSIGN_OR_RETURN(scored.scores, scored.session->Measure(projection, nullptr));
  return scored;
}

}  // namespace tenon::testing
