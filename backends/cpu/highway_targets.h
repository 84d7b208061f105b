// Which instruction sets the vector kernels are compiled for. Include before Highway.

#ifndef TENON_BACKENDS_CPU_HIGHWAY_TARGETS_H_
#define TENON_BACKENDS_CPU_HIGHWAY_TARGETS_H_

// AVX-512, AVX2 and the baseline: the steps between them would cost build time and change nothing
// that these kernels use.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#endif  // TENON_BACKENDS_CPU_HIGHWAY_TARGETS_H_
