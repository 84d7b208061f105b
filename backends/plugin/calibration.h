/* What a provider measures of its device at warm-up: a part of the provider interface (abi.h) that
 * few need. The host keeps it from start to start; it never decides bits. */

#ifndef TENON_BACKENDS_PLUGIN_CALIBRATION_H_
#define TENON_BACKENDS_PLUGIN_CALIBRATION_H_

#include <stdint.h>

#include "backends/plugin/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds of the steps of a contraction by the sizes of their tensors, for the search of a path,
 * which knows no more of a step. On one thread; each is finite and >= 0. */
typedef struct tenon_step_times {
  double step;         /* of any step */
  double multiply_add; /* per element of all indices together, in a large product */
  /* Per element of the operands and of the result, in caches ("near") and beyond ("far"). */
  double near_read, far_read;
  double near_write, far_write;
  double near_elements; /* tensors of a step that have more together are far */
} tenon_step_times;

enum { TENON_CALIBRATION_FACTORS = 32 };

struct tenon_calibration {
  uint32_t struct_size;
  int32_t version; /* the provider's own, of the meaning of what follows */
  int32_t threads; /* that were measured */
  int32_t n_factors;
  tenon_step_times times[4]; /* float32, float64, complex64, complex128 */
  /* How many times as fast `threads` threads are: in arithmetic, and in far reads and writes. */
  double arithmetic_speedup, traffic_speedup;
  double factors[TENON_CALIBRATION_FACTORS]; /* the provider's own; n_factors are in use */
};

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TENON_BACKENDS_PLUGIN_CALIBRATION_H_ */
