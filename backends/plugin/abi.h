/* The provider interface: a C ABI between the host (tenond, tests, tools) and a provider.
 *
 * A provider is one device kept ready. In-tree providers (cpu, reference) and plug-ins loaded from
 * a shared object go through this same door, so that a plug-in can do all that they do. Everything
 * that crosses is a plain descriptor: POD structs with `struct_size` first, flat arrays, status
 * plus text. No exception, no C++ type and no allocator of a provider's own crosses it.
 *
 * Versions. TENON_ABI_VERSION changes when an existing member changes meaning; new members are
 * appended at the end of a struct and recognised by `struct_size` (the size its writer was compiled
 * with). The reader must not touch members beyond it.
 *
 * Errors. Every call that can fail returns 0 or a canonical gRPC code (1..16) and fills `status`
 * with the same code, a reason (an upper-case name of backends/core/error.h) and a text. A call
 * that failed leaves its outputs untouched. A provider never throws across the interface.
 *
 * Faults. What the reason of a failed call says of the device decides what the host does next:
 *   DEVICE_FAULT, NO_DEVICE   sticky: the device is lost for this process (a fault that poisons the
 *                             context, a device that fell off the bus). The host marks the provider
 *                             failed and asks it for nothing again but to give back what it holds.
 *   DEVICE_MEMORY             the device has no room now. The work may be done by another provider
 *                             that the request names, or be tried again later.
 *   INTERNAL, and DATA_LOSS   transient: this call failed, another may succeed (a time-out of the
 *                             driver that leaves the context alive, a corrected memory error).
 *   all others                say nothing of the device: the request ends with them.
 * A call that gives no reason gets one by its code: UNAVAILABLE reads as DEVICE_FAULT and
 * RESOURCE_EXHAUSTED as DEVICE_MEMORY, so that a refused allocation of the host's should name its
 * reason, EXCEEDS_MEMORY_BUDGET; codes without a meaning here read as INTERNAL. The same group of
 * slices may be run again by another provider: a call that failed leaves nothing behind.
 *
 * Memory. A provider takes all request-sized memory from the host's allocator and gives it back;
 * the host counts it and refuses (returns NULL) when the request's plan is exceeded. A refused
 * allocation must fail the call with RESOURCE_EXHAUSTED, never crash.
 *
 * Ownership of a contraction's memory:
 *   operands      the caller's; read-only; valid from `begin` (varying ones: from `bind_set`) until
 *                 `end` or the next `bind_set` that replaces them.
 *   constant, set results of slice-independent steps ("prologue"): the execution's, from the host's
 *                 allocator; written by `begin` and `bind_set`, read-only while groups run.
 *   arena         a worker's scratch and its kept tensors (results of steps whose level is below
 *                 the deepest): the execution's, one per worker, from the host's allocator. Kept
 *                 tensors live from slice to slice of one group and are cold when a group starts.
 *   partial sum   the caller's; one block of the result, written by `run_group`.
 *
 * Concurrency. `describe`, `compile`, `run_group` on different workers of one execution or on
 * different executions, and `build_resources` on different requests may run at the same time, from
 * any thread. `begin`, `bind_set`, `end` of one execution are never concurrent with anything of
 * that execution; different executions, also of one compiled program, do not wait for each other.
 * `create`, `destroy`, `warm_up` of one provider are never concurrent with anything else of it. The
 * host destroys compiled programs after their executions and before the provider.
 *
 * Cancellation. `cancel` points to a 32-bit atomic that becomes non-zero when the work should stop;
 * a provider reads it between steps and at least every 50 ms inside long ones, and then returns
 * CANCELLED (1).
 */

#ifndef TENON_BACKENDS_PLUGIN_ABI_H_
#define TENON_BACKENDS_PLUGIN_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_ABI_VERSION 1u

/* The one symbol a plug-in exports: `const tenon_provider_api* tenon_provider_entry(void)`. */
#define TENON_PROVIDER_ENTRY "tenon_provider_entry"

/* The exponent of a tensor whose finite elements are all zeros: it goes with any other. */
#define TENON_NO_EXPONENT INT64_MIN

/* ---- Status, host services ------------------------------------------------------------------ */

typedef struct tenon_status {
  uint32_t struct_size;
  int32_t code;       /* canonical gRPC code, 0 is OK */
  char reason[64];    /* NUL-terminated, empty when OK */
  char message[1024]; /* NUL-terminated UTF-8, truncated if longer */
} tenon_status;

/* What the host lends. All functions are thread-safe. `context` is passed back unchanged. */
typedef struct tenon_host {
  uint32_t struct_size;
  uint32_t abi_version;
  void* context;
  /* `bytes` bytes aligned to `alignment` (a power of two, at most 2 MiB); NULL when refused. */
  void* (*allocate)(void* context, int64_t bytes, int64_t alignment);
  /* Takes back what `allocate` gave; `bytes` as asked then. NULL is ignored. */
  void (*release)(void* context, void* memory, int64_t bytes);
  /* level: 0 debug, 1 info, 2 warning, 3 error. */
  void (*log)(void* context, int32_t level, const char* text);
} tenon_host;

typedef enum tenon_dtype { /* the numbers of tenon::DType */
                           TENON_DTYPE_BOOL = 1,
                           TENON_DTYPE_INT8 = 2,
                           TENON_DTYPE_INT16 = 3,
                           TENON_DTYPE_INT32 = 4,
                           TENON_DTYPE_INT64 = 5,
                           TENON_DTYPE_UINT8 = 6,
                           TENON_DTYPE_UINT16 = 7,
                           TENON_DTYPE_UINT32 = 8,
                           TENON_DTYPE_UINT64 = 9,
                           TENON_DTYPE_FLOAT32 = 10,
                           TENON_DTYPE_FLOAT64 = 11,
                           TENON_DTYPE_COMPLEX64 = 12,
                           TENON_DTYPE_COMPLEX128 = 13
} tenon_dtype;

/* ---- The lowered contraction program -------------------------------------------------------- */

/* One loop of a step: its extent (>= 1, or 0 for an empty sum or result) and its stride, in
 * elements, in each of the three tensors; 0 where the tensor does not have it. A diagonal is the
 * sum of the strides of the axes it runs along. */
typedef struct tenon_mode {
  int64_t extent;
  int64_t stride_a;
  int64_t stride_b;
  int64_t stride_c;
} tenon_mode;

/* Where a tensor of a step lies. */
typedef enum tenon_space {
  TENON_SPACE_OPERAND = 1,  /* a request operand; `index` is its number */
  TENON_SPACE_CONSTANT = 2, /* result of a phase-0 step */
  TENON_SPACE_SET = 3,      /* result of a phase-1 step */
  TENON_SPACE_ARENA = 4,    /* result of a phase-2 step */
  TENON_SPACE_RESULT = 5    /* the partial sum handed to run_group */
} tenon_space;

/* A sliced axis of a tensor: the tensor's base moves by stride * (current value of the index). */
typedef struct tenon_slice_term {
  int32_t sliced; /* position in tenon_program.sliced */
  int32_t reserved;
  int64_t stride; /* elements */
} tenon_slice_term;

typedef struct tenon_tensor_ref {
  int32_t space;  /* tenon_space */
  int32_t index;  /* operand number; 0 elsewhere */
  int64_t offset; /* elements from the start of the space (for an operand: of that operand) */
  int64_t extent_elements; /* elements the tensor spans from `offset`, over all slices */
  const tenon_slice_term* slice_terms; /* only for operands; owned by the program */
  int32_t n_slice_terms;
  int32_t reserved;
} tenon_tensor_ref;

typedef enum tenon_step_kind {
  /* C[b,m,n] = sum over k of A[b,m,k] * B[b,k,n]. */
  TENON_STEP_CONTRACT = 1,
  /* C[m] = sum over k of A[m,k]: reductions, traces, diagonals, permutations, copies. No B; only
   * the m and k groups are used. */
  TENON_STEP_UNARY = 2
} tenon_step_kind;

typedef enum tenon_phase {
  TENON_PHASE_CONSTANT = 0, /* once per execution */
  TENON_PHASE_SET = 1,      /* once per operand set */
  TENON_PHASE_SLICE = 2     /* in slices, by `level` */
} tenon_phase;

/* One step. Modes are stored in one array in the order batch, m, n, k; inside a group outermost
 * first by C's (for k: A's) stride. Groups are fused: no two neighbours of a group could be one
 * mode. An empty group is one iteration. A mode of extent 0 in k makes the sum 0; in any other
 * group it makes the result empty.
 *
 * `level`: 0 outside phase 2. In phase 2 the step must be redone in a slice if and only if a sliced
 * index at loop position < level changed since the step last ran in this group; the first slice of
 * a group runs all. (level = 1 + the innermost loop position among the indices it depends on.)
 *
 * A step whose C is in TENON_SPACE_RESULT accumulates: it overwrites in the first slice of a group
 * and adds in the others. All other steps overwrite. C never overlaps A or B. */
typedef struct tenon_step {
  uint32_t struct_size;
  int32_t kind;  /* tenon_step_kind */
  int32_t phase; /* tenon_phase */
  int32_t level;
  tenon_tensor_ref a;
  tenon_tensor_ref b; /* space 0 for unary steps */
  tenon_tensor_ref c;
  const tenon_mode* modes; /* owned by the program */
  int32_t n_batch;
  int32_t n_m;
  int32_t n_n;
  int32_t n_k;
} tenon_step;

typedef struct tenon_sliced_index {
  int64_t extent;    /* >= 1 */
  int32_t is_output; /* 1: its values select blocks of the result; 0: they are summed */
  int32_t reserved;
  int64_t result_stride; /* elements in the full result, for output indices */
} tenon_sliced_index;

/* The program. Sliced indices are nested loops, outermost first: output indices stand before summed
 * ones. The values of the output indices number the blocks, those of the summed ones the slices of
 * a block, both with the last index fastest. */
typedef struct tenon_program {
  uint32_t struct_size;
  int32_t dtype; /* float32, float64, complex64 or complex128: of every tensor */
  int32_t n_operands;
  int32_t n_steps;
  const tenon_step* steps; /* phase 0 first, then phase 1, then phase 2, each in execution order */
  int32_t n_sliced;
  int32_t accumulate_double; /* 1: float32/complex64 sums over k are formed in double */
  const tenon_sliced_index* sliced;
  const int64_t* operand_elements; /* n_operands */
  int64_t constant_elements;       /* sizes of the spaces */
  int64_t set_elements;
  int64_t arena_elements; /* per worker, kept tensors included */
  int64_t block_elements; /* of one partial sum, C order of the output without sliced indices */
  int64_t n_blocks;
  int64_t slices_per_block;
  uint8_t fingerprint[32]; /* of what decides the bits; a provider's compile extends it */
  /* 1: every tensor is kept as mantissas with a power of two beside it, chosen by its values alone,
   * so that no step over- or underflows as a whole, whatever the operands' magnitudes. Groups are
   * then run by `run_scaled_group`; programs with this go only to providers that have it. */
  int32_t normalize;
  int32_t reserved;
  /* With normalize, n_operands flags: 1 when an operand changes from set to set. NULL: none. */
  const uint8_t* varying;
} tenon_program;

typedef struct tenon_compile_options {
  uint32_t struct_size;
  int32_t threads; /* threads a run may use in all, >= 1; never part of the result's bits */
  int32_t allow_reduced_precision;
  int32_t reserved;
} tenon_compile_options;

/* What compiling found out; pointers belong to the compiled program. */
typedef struct tenon_compiled_info {
  uint32_t struct_size;
  int32_t n_steps;
  const char* const* kernels;  /* per step, the name of the implementation chosen */
  const char* const* refusals; /* per step, why better-listed ones were refused; "" if none was */
  int64_t worker_bytes;        /* per worker beyond the arena: packing, library buffers */
  int64_t shared_bytes;        /* once per execution, beyond constant and set results */
  double predicted_slice_seconds; /* of one worker; negative when unknown */
  uint8_t fingerprint[32]; /* the program's, extended by kernels, tile grids, ISA, libraries */
  int64_t thread_bytes;    /* per thread of a worker beyond its first, added to worker_bytes */
  double predicted_once_seconds; /* of what slices share, on one thread; negative when unknown */
  /* Per step, predicted seconds of one run on one thread that has the machine to itself; NULL when
   * unknown. */
  const double* step_seconds;
} tenon_compiled_info;

/* Seconds of a run. */
typedef struct tenon_prediction {
  uint32_t struct_size;
  int32_t reserved;
  double once_seconds;  /* what slices share, with all threads */
  double slice_seconds; /* of one slice on one worker, while all the others work, too */
} tenon_prediction;

/* What a provider measured of its device: calibration.h. */
typedef struct tenon_calibration tenon_calibration;

typedef struct tenon_execution_options {
  uint32_t struct_size;
  int32_t workers;            /* concurrent run_group calls, >= 1 */
  int32_t threads_per_worker; /* threads that each worker's share comes to, >= 1 */
  /* Threads that all workers may use at once; those that have no group may help inside the steps of
   * the others. Less than workers * threads_per_worker (0, from older hosts) means as many as that.
   */
  int32_t threads;
  const int32_t* cancel;
} tenon_execution_options;

typedef struct tenon_run_statistics {
  uint32_t struct_size;
  int32_t timing_scope; /* 1 synchronous host, 2 device events, 3 unverified */
  int64_t slices;
  double flops;             /* real floating-point operations really done, in all steps */
  double execution_seconds; /* to completion; negative when timing_scope is 3 */
  double dispatch_seconds;  /* call to return on the host */
  double transfer_in_seconds, transfer_out_seconds;
  int64_t transfer_in_bytes, transfer_out_bytes;
  /* Per step of the program, sums over all workers; the execution's, valid until `end`. NULL when
   * the provider does not time its steps. */
  const int64_t* step_runs;
  const double* step_seconds;
} tenon_run_statistics;

/* ---- Measurement resources ------------------------------------------------------------------ */

typedef enum tenon_resource_kind {
  TENON_RESOURCE_KNN = 1,             /* k nearest neighbours of one space */
  TENON_RESOURCE_DENSITY = 2,         /* Gaussian densities of one space; parameter = sigma */
  TENON_RESOURCE_PAIR_ORDER = 3,      /* order and average ranks of all pairs of one space */
  TENON_RESOURCE_CONDENSED = 4,       /* distances of all pairs i < j of one space */
  TENON_RESOURCE_PAIR_STATISTICS = 5, /* sufficient sums over pairs of both spaces */
  TENON_RESOURCE_ORDERED_PAIR_STATISTICS = 6, /* sums over pair ranks of both spaces */
  TENON_RESOURCE_SELECTED_RANKS = 7, /* ranks of each space's k neighbours in the other space */
  TENON_RESOURCE_NEIGHBOR_STATISTICS = 8,
  TENON_RESOURCE_TOPOGRAPHIC = 9,
  TENON_RESOURCE_RANK_TABLE = 10 /* inverse ranks of all pairs of one space */
} tenon_resource_kind;

typedef enum tenon_resource_space {
  TENON_RESOURCE_ORIGINAL = 1,
  TENON_RESOURCE_EMBEDDED = 2,
  TENON_RESOURCE_PAIR = 3
} tenon_resource_space;

/* The layout of each kind's bytes is documented in backends/measurement/resource.h. */
typedef struct tenon_resource_key {
  int32_t kind;
  int32_t space;
  int64_t k;        /* neighbours, 0 where the kind has none */
  double parameter; /* sigma, 0 where the kind has none */
} tenon_resource_key;

/* A row-major matrix of points in the caller's memory; TENON_DTYPE_FLOAT64 or _FLOAT32. */
typedef struct tenon_matrix {
  const void* data;
  int32_t dtype;
  int32_t geodesic; /* 1: columns are longitude, latitude in radians (original space only) */
  int64_t rows;
  int64_t columns;
} tenon_matrix;

typedef struct tenon_resource {
  tenon_resource_key key;
  void* data; /* host memory, size by the key and the number of rows */
  int64_t bytes;
} tenon_resource;

/* Builds all `outputs` in as few passes over the pairs as the provider can. `available` holds
 * resources built earlier (of the original space, say) that may be used and must not be changed. */
typedef struct tenon_resource_request {
  uint32_t struct_size;
  int32_t n_outputs;
  const tenon_resource* outputs; /* memory is the caller's, filled by the provider */
  int32_t n_available;
  int32_t threads;
  const tenon_resource* available;
  tenon_matrix original; /* data may be NULL when no output needs that space */
  tenon_matrix embedded;
  int64_t working_memory_bytes; /* the provider's scratch for this call stays within it */
  const int32_t* cancel;
  /* A folder for temporary files and how many bytes of them may exist at once; NULL and 0: none.
   * Orders of pairs that are not among `available` are then made in files. Nothing is left there,
   * whatever happens. */
  const char* temporary_directory;
  int64_t temporary_bytes;
} tenon_resource_request;

typedef struct tenon_resource_statistics {
  uint32_t struct_size;
  int32_t timing_scope;
  double execution_seconds;
  double transfer_in_seconds, transfer_out_seconds;
  int64_t transfer_in_bytes, transfer_out_bytes;
  int64_t block_rows; /* rows of a block of the pass; 0 when it had none */
  int64_t working_bytes;
  int64_t temporary_bytes; /* of files at most at once; 0: none were made */
  int64_t sorted_runs;     /* blocks of records that went to files */
} tenon_resource_statistics;

/* ---- The provider --------------------------------------------------------------------------- */

typedef struct tenon_provider tenon_provider;   /* opaque, the provider's */
typedef struct tenon_compiled tenon_compiled;   /* opaque, a compiled program */
typedef struct tenon_execution tenon_execution; /* opaque, a running contraction */

typedef struct tenon_provider_info {
  uint32_t struct_size;
  int32_t exact;           /* must be 1: full definitions, float32 only where asked for */
  const char* name;        /* "cpu", "cuda:0": unique in a server */
  const char* kind;        /* "cpu", "cuda", "reference", a plug-in's own */
  const char* description; /* for people: device model, libraries */
  const char* isa;         /* instruction set in use, "" if it has no meaning */
  int64_t memory_bytes;    /* of the device; 0 means the host's memory */
  int32_t max_workers;     /* run_group calls that make sense at once, >= 1 */
  int32_t reserved;
  uint32_t contraction_dtypes; /* bit (1 << tenon_dtype) */
  uint32_t step_kinds;         /* bit (1 << tenon_step_kind); 0: does no contraction */
  uint32_t resource_kinds;     /* bit (1 << tenon_resource_kind) */
  uint32_t resource_dtypes;    /* bit (1 << tenon_dtype) of points it computes in */
  double cold_seconds;         /* what create + warm_up cost; 0 before warm_up */
} tenon_provider_info;

typedef struct tenon_provider_api {
  uint32_t struct_size;
  uint32_t abi_version; /* TENON_ABI_VERSION it was compiled with */

  /* `options` is a provider-defined text ("" by default); `host` outlives the provider. */
  int32_t (*create)(const tenon_host* host, const char* options, tenon_provider** provider,
                    tenon_status* status);
  void (*destroy)(tenon_provider* provider);
  /* Strings in `info` live as long as the provider. */
  int32_t (*describe)(tenon_provider* provider, tenon_provider_info* info, tenon_status* status);
  /* Pays cold initialisation: contexts, handles, pools, kernel selection tables. */
  int32_t (*warm_up)(tenon_provider* provider, tenon_status* status);

  /* Contraction. `program` outlives the compiled program. */
  int32_t (*compile)(tenon_provider* provider, const tenon_program* program,
                     const tenon_compile_options* options, tenon_compiled** compiled,
                     tenon_status* status);
  int32_t (*compiled_info)(const tenon_compiled* compiled, tenon_compiled_info* info,
                           tenon_status* status);
  void (*release_compiled)(tenon_compiled* compiled);
  /* Takes memory and runs the constant steps. `operands` has one pointer per operand; varying
   * ones may be NULL here. `memory` is where this execution's memory comes from. */
  int32_t (*begin)(tenon_compiled* compiled, const tenon_host* memory, const void* const* operands,
                   const tenon_execution_options* options, tenon_execution** execution,
                   tenon_status* status);
  /* Binds the operands of one set (all pointers valid) and runs the set steps. Called once per
   * set, also when nothing varies. */
  int32_t (*bind_set)(tenon_execution* execution, const void* const* operands,
                      tenon_status* status);
  /* Runs slices [first_slice, last_slice) of `block` on `worker` (0 .. workers-1) in order and
   * leaves their sum in `partial_sum` (host memory, block_elements elements). */
  int32_t (*run_group)(tenon_execution* execution, int32_t worker, int64_t block,
                       int64_t first_slice, int64_t last_slice, void* partial_sum,
                       tenon_status* status);
  /* Sums since `begin`. Not while a group runs. */
  int32_t (*execution_statistics)(const tenon_execution* execution,
                                  tenon_run_statistics* statistics, tenon_status* status);
  void (*end)(tenon_execution* execution);

  /* Measurement resources. */
  /* Scratch bytes wanted for building `outputs`; `available_bytes` is what the plan has left.
   * Returns through `bytes` a positive number, or 0 for "needs none". */
  int32_t (*working_memory)(tenon_provider* provider, const tenon_resource_request* request,
                            int64_t available_bytes, int64_t* bytes, tenon_status* status);
  int32_t (*build_resources)(tenon_provider* provider, const tenon_resource_request* request,
                             tenon_resource_statistics* statistics, tenon_status* status);
  /* Whether several requests of equal widths gain from one call. This and build_batch may be NULL
   * (or beyond struct_size) where none does; all other entries are mandatory. */
  int32_t (*can_batch)(tenon_provider* provider, const tenon_resource_key* key);
  /* `n_requests` requests at once; `failed` gets the number of the one at fault. */
  int32_t (*build_batch)(tenon_provider* provider, const tenon_resource_request* requests,
                         int32_t n_requests, tenon_resource_statistics* statistics, int32_t* failed,
                         tenon_status* status);
  /* `run_group` for programs with `normalize`: the sum is partial_sum * 2^exponent, its largest
   * finite magnitude well inside the range of the dtype; TENON_NO_EXPONENT when no finite element
   * differs from zero. NULL (or beyond struct_size): the provider doesn't normalise. */
  int32_t (*run_scaled_group)(tenon_execution* execution, int32_t worker, int64_t block,
                              int64_t first_slice, int64_t last_slice, void* partial_sum,
                              int64_t* exponent, tenon_status* status);

  /* Times, for predictions only: no bit and no kernel may depend on them. Both entries may be NULL
   * (or beyond struct_size) where there is no time model. */
  /* Once, after `warm_up` and before the first `compile`. `known` is what an earlier process got
   * from a provider of the same name, description and ISA, or NULL: then the device is measured, in
   * well below half a second. `calibration` gets what counts from now on, which is not `known`
   * where that has another version or makes no sense. */
  int32_t (*calibrate)(tenon_provider* provider, const tenon_calibration* known,
                       tenon_calibration* calibration, tenon_status* status);
  /* Of a run with these options, whose `cancel` is not read. */
  int32_t (*predict)(const tenon_compiled* compiled, const tenon_execution_options* options,
                     tenon_prediction* prediction, tenon_status* status);
} tenon_provider_api;

typedef const tenon_provider_api* (*tenon_provider_entry_fn)(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TENON_BACKENDS_PLUGIN_ABI_H_ */
