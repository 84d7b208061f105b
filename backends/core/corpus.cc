#include <numbers>

#include "backends/core/error.h"
#include "backends/core/network.h"

namespace tenon {
namespace {

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15;

// The output function of the splitmix64 generator.
uint64_t Mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// Fills `count` numbers with factor * u(k, n): a complex tensor is the same stream, two at a time.
template <typename Real>
void Fill(uint64_t base, double factor, int64_t count, Real* out) {
  uint64_t state = base;
  for (int64_t n = 0; n < count; ++n) {
    state += kGamma;
    const double u = static_cast<double>(Mix64(state) >> 11) * 0x1p-52 - 1.0;
    out[n] = static_cast<Real>(factor * u);
  }
}

}  // namespace

absl::StatusOr<Tensor> MakeCorpusTensor(uint64_t seed, size_t k, double scale,
                                        const TensorSpec& spec) {
  if (!IsContractionDType(spec.dtype)) {
    return Error(Reason::kUnsupportedDtype,
                 StrCat("corpus tensors are float or complex, not ", DTypeName(spec.dtype)))
        .Field("dtype");
  }
  TENON_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(spec));
  const uint64_t base = Mix64(seed + (k + 1) * kGamma);
  const double factor = IsComplex(spec.dtype) ? scale / std::numbers::sqrt2 : scale;
  if (spec.dtype == DType::kFloat32 || spec.dtype == DType::kComplex64) {
    Fill(base, factor, tensor.buffer.size_bytes() / 4, tensor.buffer.as<float>());
  } else {
    Fill(base, factor, tensor.buffer.size_bytes() / 8, tensor.buffer.as<double>());
  }
  return tensor;
}

}  // namespace tenon
