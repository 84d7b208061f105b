// Networks of the corpus with their arrays and reference results.

#ifndef TENON_TESTS_BACKENDS_NETWORKS_CORPUS_NETWORK_H_
#define TENON_TESTS_BACKENDS_NETWORKS_CORPUS_NETWORK_H_

#include <complex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backends/core/network.h"
#include "backends/schedule/contraction_job.h"

namespace tenon::testing {

struct CorpusNetwork {
  NetworkFile file;
  nlohmann::json reference;  // by dtype, see tests/data/networks/README.md
};

// From tests/data/networks, or from the larger corpus beside the repository; nothing when that is
// absent.
std::optional<CorpusNetwork> LoadCorpusNetwork(const std::string& name);

// All operands by the corpus' rule in `rule`, then converted to `dtype`.
std::vector<Tensor> CorpusOperands(const NetworkFile& file, DType rule, DType dtype);

// A request for the file's own path and slices in `dtype`.
schedule::ContractionRequest CorpusRequest(const NetworkFile& file, DType dtype);

// Elements as complex doubles.
std::vector<std::complex<double>> ValuesOf(const Tensor& tensor);

// Fails the test unless `tensor` has what `reference` tells: shape, elements, their sum and squared
// norm. `tolerance` is relative: an element may be off by `tolerance` times the largest one, the
// tensor's norm by `tolerance` times itself.
void ExpectReference(const Tensor& tensor, const nlohmann::json& reference, double tolerance);

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_NETWORKS_CORPUS_NETWORK_H_
