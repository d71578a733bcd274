/* Ronda's C ABI, version 1: everything libronda.so exports.
 *
 * A process is one rank of a job. After ronda_init() it submits named tensors with the *_async functions, in any
 * order; each is carried out once every rank has submitted the tensor of that name. A submission returns a handle:
 * wait for it with ronda_synchronize(), look at it with ronda_poll(), and give it back with ronda_release().
 *
 * Functions return RONDA_OK or one of the codes below; ronda_last_error() then says what happened, with names, ranks
 * and what to do. Argument structs begin with their size, so that later versions can add fields: set struct_size to
 * sizeof(the struct) and zero the rest, or use the RONDA_*_INIT macros.
 *
 * Thread-safety: all functions may be called from any thread. Buffers belong to the caller and must stay valid and
 * untouched until the handle is complete.
 */
#ifndef RONDA_H_
#define RONDA_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RONDA_ABI_VERSION 1

typedef enum ronda_status {
  RONDA_OK = 0,
  RONDA_ERROR_INVALID_ARGUMENT = 1,    /* a null pointer, an unknown dtype, ... : nothing was submitted */
  RONDA_ERROR_NOT_INITIALIZED = 2,     /* ronda_init() has not been called, or ronda_shutdown() has */
  RONDA_ERROR_ALREADY_INITIALIZED = 3, /* ronda_init() was called twice */
  RONDA_ERROR_DUPLICATE_NAME = 4,      /* a tensor of this name is in flight */
  RONDA_ERROR_MISMATCH = 5,            /* ranks disagree about this tensor; the job goes on */
  RONDA_ERROR_DEADLINE = 6,            /* a rank did not show up in time */
  RONDA_ERROR_PEER_FAILED = 7,         /* a rank died, or has left and will not take part */
  RONDA_ERROR_OUT_OF_MEMORY = 8,       /* memory or shared memory is exhausted */
  RONDA_ERROR_INTERNAL = 9             /* a bug in Ronda, or a system call that should not fail */
} ronda_status;

typedef enum ronda_dtype {
  RONDA_UINT8 = 0,
  RONDA_INT8 = 1,
  RONDA_INT32 = 2,
  RONDA_INT64 = 3,
  RONDA_FLOAT16 = 4,
  RONDA_BFLOAT16 = 5,
  RONDA_FLOAT32 = 6,
  RONDA_FLOAT64 = 7,
  RONDA_BOOL = 8 /* one byte; results are 0 or 1 */
} ronda_dtype;

typedef enum ronda_reduce_op {
  RONDA_SUM = 0,
  RONDA_MIN = 1,
  RONDA_MAX = 2,
  RONDA_PRODUCT = 3,
  RONDA_AVERAGE = 4 /* the sum divided by the number of ranks; integers round towards zero; not for RONDA_BOOL */
} ronda_reduce_op;

/* The format in which float32 and float64 elements travel; sums are made in fp32 and rounded once. */
typedef enum ronda_compression {
  RONDA_COMPRESSION_NONE = 0,
  RONDA_COMPRESSION_FP16 = 1,
  RONDA_COMPRESSION_BF16 = 2
} ronda_compression;

/* Overrides of the environment (RONDA_*); zero leaves the environment's value, or the default. */
typedef struct ronda_options {
  size_t struct_size;
  double cycle_time_ms;     /* longest time a tensor may wait for others to be fused with; negative: none */
  int64_t fusion_threshold; /* bytes of a bucket; negative: no fusion */
  int64_t cache_capacity;   /* entries of the response cache; negative: no cache */
  double stall_warning_s;   /* a tensor missing on some rank for so long is reported; negative: never */
  double stall_deadline_s;  /* and fails after so long; negative: never */
  double start_timeout_s;   /* the longest time to wait for the other ranks in ronda_init(); not negative */
} ronda_options;
#define RONDA_OPTIONS_INIT \
  { sizeof(ronda_options), 0, 0, 0, 0, 0, 0 }

#define RONDA_MAX_NAME_LENGTH 1024 /* bytes, without the terminating zero */
#define RONDA_MAX_NDIM 64

/* A dense tensor in row-major order. A tensor with a zero among its dimensions needs no buffer. */
typedef struct ronda_tensor {
  const char* name; /* UTF-8; unique among the tensors in flight; the same on every rank */
  ronda_dtype dtype;
  int ndim;             /* 0: a scalar */
  const int64_t* shape; /* ndim dimensions, outermost first */
} ronda_tensor;

typedef int64_t ronda_handle; /* > 0 */

typedef struct ronda_allreduce_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  void* output; /* may equal input; must not overlap it otherwise */
  ronda_reduce_op op;
  ronda_compression compression;
  double prescale;  /* finite factor applied to the input; 0 or 1 for none */
  double postscale; /* finite factor applied to the result; 0 or 1 for none */
} ronda_allreduce_args;
#define RONDA_ALLREDUCE_ARGS_INIT                                                                                     \
  {                                                                                                                   \
    sizeof(ronda_allreduce_args), {NULL, RONDA_FLOAT32, 0, NULL}, NULL, NULL, RONDA_SUM, RONDA_COMPRESSION_NONE, 1.0, \
        1.0                                                                                                           \
  }

typedef struct ronda_broadcast_args {
  size_t struct_size;
  ronda_tensor tensor;
  void* data; /* read on root, written on the other ranks */
  int root;
} ronda_broadcast_args;
#define RONDA_BROADCAST_ARGS_INIT \
  { sizeof(ronda_broadcast_args), {NULL, RONDA_FLOAT32, 0, NULL}, NULL, 0 }

/* Concatenates along the first dimension, which may differ between ranks; ndim >= 1. Ronda owns the output: see
 * ronda_allgather_output(). */
typedef struct ronda_allgather_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
} ronda_allgather_args;
#define RONDA_ALLGATHER_ARGS_INIT \
  { sizeof(ronda_allgather_args), {NULL, RONDA_FLOAT32, 0, NULL}, NULL }

/* The version of the library, "0.1.0". */
const char* ronda_version(void);

/* What went wrong in this thread's last call that did not return RONDA_OK; "" if none did. Valid until its next call.
 */
const char* ronda_last_error(void);

/* Joins the job that the environment describes (rondarun, torchrun-style variables, or a single rank); blocks until
 * every rank has. `options` may be NULL. */
ronda_status ronda_init(const ronda_options* options);

/* Completes what is in flight, waits until every rank has called it, and leaves the job, also if it returns an error:
 * then the job had failed, and what was in flight has that error. Handles stay valid, complete, until they are
 * released. ronda_init() may be called again afterwards. A process that ends without it counts as failed. */
ronda_status ronda_shutdown(void);

int ronda_is_initialized(void); /* 1 or 0 */

/* -1 before ronda_init(). */
int ronda_rank(void);
int ronda_size(void);
int ronda_local_rank(void);
int ronda_local_size(void);
int ronda_cross_rank(void);
int ronda_cross_size(void);

ronda_status ronda_allreduce_async(const ronda_allreduce_args* args, ronda_handle* handle);
ronda_status ronda_broadcast_async(const ronda_broadcast_args* args, ronda_handle* handle);
ronda_status ronda_allgather_async(const ronda_allgather_args* args, ronda_handle* handle);

/* Blocks until every rank has called it. */
ronda_status ronda_barrier(void);

/* *done becomes 1 if the operation has completed, in success or failure, else 0. */
ronda_status ronda_poll(ronda_handle handle, int* done);

/* Blocks until the operation has completed and returns its status. The handle stays valid. */
ronda_status ronda_synchronize(ronda_handle handle);

/* The result of a completed allgather: `*data` is valid until ronda_release(), `first_dim` is the sum of the ranks'
 * first dimensions, and `first_dims` (if not NULL) receives each rank's, ronda_size() entries. */
ronda_status ronda_allgather_output(ronda_handle handle, const void** data, int64_t* first_dim, int64_t* first_dims);

/* Gives the handle back; waits for the operation first if it is still in flight. */
ronda_status ronda_release(ronda_handle handle);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RONDA_H_ */
