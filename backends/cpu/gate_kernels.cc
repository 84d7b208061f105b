#include "backends/cpu/gate_kernels.h"

#include <algorithm>

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
void Run(const GateRun&, const T*, const T*, T*) {}  // vectors of one element have no bits

#else

namespace hn = hwy::HWY_NAMESPACE;

// The lanes of two vectors that `lookups` names. Highway has no such operation.
template <class D, class V>
HWY_INLINE V LookUp(D, V low, V high, const uint32_t* lookups) {
#if HWY_TARGET == HWY_AVX3
  const hn::ScalableTag<uint32_t> lanes;
  const auto bits = _mm512_permutex2var_epi32(
      hn::BitCast(lanes, low).raw, _mm512_loadu_si512(lookups), hn::BitCast(lanes, high).raw);
  return hn::BitCast(D(), hn::Vec<decltype(lanes)>{bits});
#else
  (void)high, (void)lookups;  // never called
  return low;
#endif
}

template <typename T, int kHigh, int kPermutations, bool kHasLookups>
void Sweep(const GateRun& given, const T* s, const T* v, T* c) {
  const GateRun run = given;  // which no store to C can change
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
  // FirstN takes no more than there are.
  const int64_t s_reals = run.s_elements * kParts;
  const auto in_low = hn::FirstN(d, static_cast<size_t>(s_reals < n ? s_reals : n));
  const auto in_high = hn::FirstN(d, static_cast<size_t>(s_reals < n ? 0 : s_reals - n));
  int64_t v_high[kHigh], c_row[kMostGateRows];
  std::copy_n(run.v_high, kHigh, v_high);
  std::copy_n(run.c_row, run.rows, c_row);
  V low = hn::Zero(d), high = low;
  for (int64_t i = 0; i < run.positions; ++i, v += run.v_step, c += run.c_step) {
    if constexpr (kHasLookups) {
      const auto* from = reinterpret_cast<const Real*>(s + i * run.s_step);
      low = hn::MaskedLoad(in_low, d, from);
      high = hn::MaskedLoad(in_high, d, from + n);
    }
    V x[kTerms];
    for (int h = 0; h < kHigh; ++h) {
      const auto* from = reinterpret_cast<const Real*>(v + v_high[h]);
      x[h * kPermutations] = hn::LoadU(d, from);
      hwy::Prefetch(from + run.v_ahead * kParts);
      const auto bits = hn::BitCast(lanes, x[h * kPermutations]);
      for (int p = 1; p < kPermutations; ++p) {
        x[h * kPermutations + p] = hn::BitCast(d, hn::TableLookupLanes(bits, indices[p - 1]));
      }
    }
    const auto* coefficient = static_cast<const Real*>(run.coefficients);
    const uint32_t* lookups = run.lookups;
    for (int64_t row = 0; row < run.rows; ++row) {
      V sum[kParts];
      for (int t = 0; t < kTerms; ++t) {
        for (int part = 0; part < kParts; ++part) {
          V value;
          if constexpr (kHasLookups) {
            value = LookUp(d, low, high, lookups);
            lookups += n_lanes;
          } else {
            value = hn::Load(d, coefficient);
            coefficient += n;
          }
          sum[part] = t == 0 ? hn::Mul(value, x[t]) : hn::MulAdd(value, x[t], sum[part]);
        }
      }
      V value = sum[0];
      if constexpr (kParts == 2) {
        // Even lanes lose the product of imaginary parts, odd ones gain the mixed product.
        const V crossed = hn::Reverse2(d, sum[kParts - 1]);
        value = hn::Add(value, hn::OddEven(crossed, hn::Neg(crossed)));
      }
      auto* to = reinterpret_cast<Real*>(c + c_row[row]);
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

template <typename T, bool kHasLookups>
void RunAs(const GateRun& run, const T* s, const T* v, T* c) {
  switch (run.high * 16 + run.permutations) {
    case 1 * 16 + 2:
      return Sweep<T, 1, 2, kHasLookups>(run, s, v, c);
    case 2 * 16 + 2:
      return Sweep<T, 2, 2, kHasLookups>(run, s, v, c);
    case 4 * 16 + 2:
      return Sweep<T, 4, 2, kHasLookups>(run, s, v, c);
    case 1 * 16 + 4:
      return Sweep<T, 1, 4, kHasLookups>(run, s, v, c);
    case 2 * 16 + 4:
      return Sweep<T, 2, 4, kHasLookups>(run, s, v, c);
    default:
      return Sweep<T, 1, 8, kHasLookups>(run, s, v, c);
  }
}

template <typename T>
void Run(const GateRun& run, const T* s, const T* v, T* c) {
#if HWY_TARGET == HWY_AVX3
  if (run.lookups != nullptr) return RunAs<T, true>(run, s, v, c);
#endif
  RunAs<T, false>(run, s, v, c);
}

#endif  // HWY_TARGET == HWY_SCALAR

// Exported by number: the macro's names take no templates.
bool HasLookups() { return HWY_TARGET == HWY_AVX3; }
#define TENON_GATE_ENTRY(T, Name) \
  void Gate##Name(const GateRun& run, const T* s, const T* v, T* c) { Run<T>(run, s, v, c); }
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

HWY_EXPORT(HasLookups);

bool HasGateLookups() { return HWY_DYNAMIC_DISPATCH(HasLookups)(); }

#define TENON_EXPORT_GATE(T, Name)                                 \
  HWY_EXPORT(Gate##Name);                                          \
  template <>                                                      \
  void RunGate(const GateRun& run, const T* s, const T* v, T* c) { \
    HWY_DYNAMIC_DISPATCH(Gate##Name)(run, s, v, c);                \
  }
TENON_EXPORT_GATE(float, Float)
TENON_EXPORT_GATE(double, Double)
TENON_EXPORT_GATE(Complex<float>, ComplexFloat)
TENON_EXPORT_GATE(Complex<double>, ComplexDouble)
#undef TENON_EXPORT_GATE

}  // namespace tenon::cpu
#endif  // HWY_ONCE
