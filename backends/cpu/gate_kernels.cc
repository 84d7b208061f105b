#include "backends/cpu/gate_kernels.h"

#include "backends/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gate_kernels.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

template <typename T>
void Run(const GateRun&, const T*, T*) {}  // vectors of one element have no bits

#else

namespace hn = hwy::HWY_NAMESPACE;

template <typename T, int kHigh, int kPermutations>
void Sweep(const GateRun& run, const T* v, T* c) {
  using Real = typename Parts<T>::Real;
  constexpr int kParts = Parts<T>::kCount, kTerms = kHigh * kPermutations;
  const hn::ScalableTag<Real> d;
  const hn::ScalableTag<uint32_t> lanes;
  using V = hn::Vec<decltype(d)>;
  const auto n = static_cast<int64_t>(hn::Lanes(d));
  const auto n_lanes = static_cast<int64_t>(hn::Lanes(lanes));
  using Indices = decltype(hn::SetTableIndices(lanes, run.lanes));
  Indices indices[kPermutations - 1];
  for (int p = 1; p < kPermutations; ++p) {
    indices[p - 1] = hn::SetTableIndices(lanes, run.lanes + p * n_lanes);
  }
  for (int64_t i = 0; i < run.positions; ++i, v += run.v_step, c += run.c_step) {
    V x[kTerms];
    for (int h = 0; h < kHigh; ++h) {
      const auto* from = reinterpret_cast<const Real*>(v + run.v_high[h]);
      x[h * kPermutations] = hn::LoadU(d, from);
      hwy::Prefetch(from + run.v_ahead * kParts);
      const auto bits = hn::BitCast(lanes, x[h * kPermutations]);
      for (int p = 1; p < kPermutations; ++p) {
        x[h * kPermutations + p] = hn::BitCast(d, hn::TableLookupLanes(bits, indices[p - 1]));
      }
    }
    const auto* coefficient = static_cast<const Real*>(run.coefficients);
    for (int64_t row = 0; row < run.rows; ++row, coefficient += kTerms * kParts * n) {
      V sum[kParts];
      for (int part = 0; part < kParts; ++part) {
        sum[part] = hn::Mul(hn::Load(d, coefficient + part * n), x[0]);
      }
      for (int t = 1; t < kTerms; ++t) {
        for (int part = 0; part < kParts; ++part) {
          sum[part] =
              hn::MulAdd(hn::Load(d, coefficient + (t * kParts + part) * n), x[t], sum[part]);
        }
      }
      V value = sum[0];
      if constexpr (kParts == 2) {
        // Even lanes lose the product of imaginary parts, odd ones gain the mixed product.
        const V crossed = hn::Reverse2(d, sum[kParts - 1]);
        value = hn::Add(value, hn::OddEven(crossed, hn::Neg(crossed)));
      }
      auto* to = reinterpret_cast<Real*>(c + run.c_row[row]);
      if (run.stream) {
        hn::Stream(value, d, to);
      } else {
        if (run.accumulate) value = hn::Add(hn::LoadU(d, to), value);
        hn::StoreU(value, d, to);
      }
    }
  }
  if (run.stream) hwy::FlushStream();
}

template <typename T>
void Run(const GateRun& run, const T* v, T* c) {
  switch (run.high * 16 + run.permutations) {
    case 1 * 16 + 2:
      return Sweep<T, 1, 2>(run, v, c);
    case 2 * 16 + 2:
      return Sweep<T, 2, 2>(run, v, c);
    case 4 * 16 + 2:
      return Sweep<T, 4, 2>(run, v, c);
    case 1 * 16 + 4:
      return Sweep<T, 1, 4>(run, v, c);
    case 2 * 16 + 4:
      return Sweep<T, 2, 4>(run, v, c);
    default:
      return Sweep<T, 1, 8>(run, v, c);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

// Exported by number: the macro's names take no templates.
#define TENON_GATE_ENTRY(T, Name) \
  void Gate##Name(const GateRun& run, const T* v, T* c) { Run<T>(run, v, c); }
TENON_GATE_ENTRY(float, Float)
TENON_GATE_ENTRY(double, Double)
TENON_GATE_ENTRY(Complex<float>, ComplexFloat)
TENON_GATE_ENTRY(Complex<double>, ComplexDouble)
#undef TENON_GATE_ENTRY

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

bool HasGateKernel(int64_t high, int64_t permutations) {
  return (permutations == 2 || permutations == 4 || permutations == 8) &&
         (high == 1 || high == 2 || high == 4) && high * permutations <= kMostGateTerms;
}

#define TENON_EXPORT_GATE(T, Name)                     \
  HWY_EXPORT(Gate##Name);                              \
  template <>                                          \
  void RunGate(const GateRun& run, const T* v, T* c) { \
    HWY_DYNAMIC_DISPATCH(Gate##Name)(run, v, c);       \
  }
TENON_EXPORT_GATE(float, Float)
TENON_EXPORT_GATE(double, Double)
TENON_EXPORT_GATE(Complex<float>, ComplexFloat)
TENON_EXPORT_GATE(Complex<double>, ComplexDouble)
#undef TENON_EXPORT_GATE

}  // namespace tenon::cpu
#endif  // HWY_ONCE
