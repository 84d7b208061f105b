// What this machine can do: the rates that a contraction's floor is made of.

#ifndef TENON_TESTS_BENCH_CONTRACTION_MACHINE_RATES_H_
#define TENON_TESTS_BENCH_CONTRACTION_MACHINE_RATES_H_

#include "backends/core/dtype.h"

namespace tenon::bench {

struct MachineRates {
  double gemm_flops = 0;         // real operations per second of a large matrix product
  double copy_bytes = 0;         // read + written per second, tensors that fit in no cache
  double cached_copy_bytes = 0;  // the same for tensors below kCachedTensorBytes
};

// Tensors smaller than this are charged at the cached rate.
inline constexpr double kCachedTensorBytes = 16.0 * 1024 * 1024;

// Best of several runs on `threads` threads; takes about two seconds. `dtype` is a contraction
// type. Matrix products are the system BLAS library's, copies use non-temporal stores.
MachineRates MeasureRates(DType dtype, int threads);

}  // namespace tenon::bench

#endif  // TENON_TESTS_BENCH_CONTRACTION_MACHINE_RATES_H_
