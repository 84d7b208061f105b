// Sessions over the real resources, and readers for the recorded cases.

#ifndef TENON_TESTS_BACKENDS_MEASUREMENT_MEASUREMENT_FIXTURE_H_
#define TENON_TESTS_BACKENDS_MEASUREMENT_MEASUREMENT_FIXTURE_H_

#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/tensor.h"
#include "backends/measurement/session.h"
#include "tests/support/fake_provider.h"

namespace tenon::testing {

// A provider whose resources are those of the "cpu" or the "reference" provider.
class ResourceProvider {
 public:
  explicit ResourceProvider(bool reference = false);
  FakeProvider& fake() { return fake_; }
  // Made at the first call, so that a test can change fake() before.
  std::shared_ptr<plugin::Provider> get();

 private:
  FakeProvider fake_;
  std::shared_ptr<plugin::Provider> provider_;
};

// A float64 matrix from rows of numbers; "NaN" and "Infinity" may stand as text.
Tensor MatrixOf(const nlohmann::json& rows);
Tensor MatrixOf(std::initializer_list<std::initializer_list<double>> rows);
Tensor GoldenMatrix(const std::string& relative_path);

measurement::RawSpec SpecOf(const nlohmann::json& json);

// Must not outlive the provider.
struct Scored {
  std::unique_ptr<measurement::Session> session;
  measurement::ProjectionScores scores;
};

// Prepares a session for `original` and scores `projection`. Row and column counts of `options` are
// taken from the matrices.
absl::StatusOr<Scored> Score(ResourceProvider& provider,
                             const std::vector<measurement::RawSpec>& specs, const Tensor& original,
                             const Tensor& projection, measurement::SessionOptions options = {},
                             measurement::Labels labels = {});

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_MEASUREMENT_MEASUREMENT_FIXTURE_H_
