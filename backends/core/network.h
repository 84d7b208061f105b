// A tensor network as people write it, its JSON form, and the corpus' arrays.

#ifndef TENON_BACKENDS_CORE_NETWORK_H_
#define TENON_BACKENDS_CORE_NETWORK_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/tensor.h"

namespace tenon {

// Index names per tensor, output index names in axis order, and index sizes. Names are compared as
// bytes and may be anything but empty. Not validated: backends/contraction/expression.h does that.
struct Network {
  std::vector<std::vector<std::string>> inputs;
  std::vector<std::string> output;
  std::map<std::string, int64_t> sizes;
};

// A path as written: one entry per step, each naming the tensors it consumes. In SSA form inputs
// are 0..N-1 and step s makes tensor N+s; in linear form the numbers are positions in the current
// list, from which they are removed and to whose end the result is appended.
struct PathSteps {
  enum class Format { kSsa, kLinear };
  Format format = Format::kSsa;
  std::vector<std::vector<int64_t>> steps;
};

// A corpus or user file: the network with an optional plan and the rule for its arrays.
struct NetworkFile {
  std::string name;
  Network network;
  std::optional<DType> dtype;
  std::optional<PathSteps> path;
  std::vector<std::string> sliced;
  std::optional<uint64_t> seed;
  std::vector<double> scales;  // one per tensor with `seed`
};

// Parses {"inputs": [[...]], "output": [...], "size_dict": {...}} with optional "name", "dtype",
// "path_ssa" or "path_linear", "sliced", "seed", "scales"; index names may be strings or integers;
// other keys and nulls are ignored. With "seed", "scales" must be there. BAD_EXPRESSION, BAD_PATH,
// BAD_SLICE or UNSUPPORTED_DTYPE with the key as field; the field is "json" for malformed text, for
// one over 16 MiB and for nesting over 32 levels.
absl::StatusOr<NetworkFile> ParseNetworkJson(std::string_view json);

// Reads a file; errors as ReadFile (backends/core/file.h) and ParseNetworkJson. Messages carry the
// path.
absl::StatusOr<NetworkFile> ReadNetworkFile(const std::string& path);

// Splits an einsum string "ab,bc->ac" into index names (one UTF-8 code point each; ASCII white
// space is ignored). Without "->" the output holds the indices that occur exactly once, in
// code-point order. An operand may be empty, a scalar: "" has one, "," two. Sizes are left empty.
// An ellipsis is refused. BAD_EXPRESSION, field "equation", with the position in bytes; also over 1
// MiB.
absl::StatusOr<Network> ParseEinsum(std::string_view equation);

// The shape of tensor `k` by the network's sizes; UNKNOWN_INDEX (field "inputs[k]") when a size is
// missing, BAD_PARAMETER when there is no such tensor.
absl::StatusOr<std::vector<int64_t>> InputShape(const Network& network, size_t k);

// Tensor `k` of the corpus rule: element n of a real tensor is scale * u(k,n), of a complex one
// scale/sqrt(2) * (u(k,2n) + i u(k,2n+1)), where u is the splitmix64 stream of tensor k mapped to
// [-1, 1); computed in double, then rounded to `spec.dtype` (a contraction type).
absl::StatusOr<Tensor> MakeCorpusTensor(uint64_t seed, size_t k, double scale,
                                        const TensorSpec& spec);

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_NETWORK_H_
