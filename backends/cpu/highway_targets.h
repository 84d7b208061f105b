// Which instruction sets the vector kernels are compiled for. Include before Highway.

#ifndef TENON_BACKENDS_CPU_HIGHWAY_TARGETS_H_
#define TENON_BACKENDS_CPU_HIGHWAY_TARGETS_H_

// AVX-512, AVX2 and the baseline: the steps between them would cost build time and change nothing
// that these kernels use.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

// The baseline is the target whose vectors have one element, for which the kernels have code of
// their own. Highway itself takes it, or emulated vectors, by the compiler's version.
#ifndef HWY_BROKEN_EMU128
#define HWY_BROKEN_EMU128 1
#endif

#endif  // TENON_BACKENDS_CPU_HIGHWAY_TARGETS_H_
