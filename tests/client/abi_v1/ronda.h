/* SPDX-License-Identifier: Apache-2.0 */

/* Ronda's C ABI, version 1: everything libronda.so exports.
 *
 * A process is one rank of a job. After ronda_init() it submits named tensors with the *_async functions, in any order;
 * each is carried out once every rank has submitted the tensor of that name. A submission returns a handle: wait for it
 * with ronda_synchronize(), look at it with ronda_poll(), and give it back with ronda_release().
 *
 * Functions return RONDA_OK or one of the codes below; ronda_last_error() then says what happened, with names, ranks
 * and what to do. Argument structs begin with their size, so that later versions can add fields: set struct_size to
 * sizeof(the struct) and zero the rest, or use the RONDA_*_INIT macros. Zero always means the default.
 *
 * Ranks are numbered as in the job everywhere, also in operations of a process set. Arrays with an entry for each
 * member of a process set are in ascending order of the members' ranks.
 *
 * Thread-safety: all functions may be called from any thread. Buffers belong to the caller and must stay valid and
 * untouched until the handle is complete.
 *
 * Tensors in a GPU's memory are submitted with RONDA_MEMORY_CUDA and a stream, as soon as the work that fills them has
 * been given to that stream. Only the device waits for that work. With ronda_synchronize_on_stream() a stream waits for
 * the result in the same way. Outputs that Ronda owns are in the GPU's memory then. The arguments themselves, shapes
 * and splits stay on the host. */
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
  RONDA_ERROR_INVALID_ARGUMENT = 1,    /* nothing was submitted; in ronda_init(): the ranks do not fit */
  RONDA_ERROR_NOT_INITIALIZED = 2,     /* ronda_init() has not been called, or ronda_shutdown() has */
  RONDA_ERROR_ALREADY_INITIALIZED = 3, /* ronda_init() was called twice */
  RONDA_ERROR_DUPLICATE_NAME = 4,      /* a tensor of this name is in flight in this process set */
  RONDA_ERROR_MISMATCH = 5,      /* ranks disagree about this tensor, or one it needs has joined; the job goes on */
  RONDA_ERROR_DEADLINE = 6,      /* a rank did not show up in time */
  RONDA_ERROR_PEER_FAILED = 7,   /* a rank died, or has left and will not take part */
  RONDA_ERROR_OUT_OF_MEMORY = 8, /* memory or shared memory is exhausted */
  RONDA_ERROR_INTERNAL = 9       /* a bug in Ronda, or a system call that should not fail */
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
  RONDA_BOOL = 8, /* one byte; results are 0 or 1 */
  RONDA_UINT16 = 9,
  RONDA_INT16 = 10,
  RONDA_UINT32 = 11,
  RONDA_UINT64 = 12
} ronda_dtype;

typedef enum ronda_reduce_op {
  RONDA_SUM = 0,
  RONDA_MIN = 1,
  RONDA_MAX = 2,
  RONDA_PRODUCT = 3,
  RONDA_AVERAGE = 4, /* the sum, which wraps in integers, by the number of ranks, towards zero; not for RONDA_BOOL */
  RONDA_BAND = 5,    /* bit by bit; integers and RONDA_BOOL */
  RONDA_BOR = 6,
  RONDA_BXOR = 7,
  RONDA_ADASUM = 8 /* adaptive sum, which scales with the ranks' agreement; allreduce of floating-point numbers */
} ronda_reduce_op;

/* The format in which floating-point elements travel when they are reduced; sums are made in fp32 and rounded once. The
 * 16-bit formats apply to float32 and float64, the 8-bit ones, blocks with a scale each, to the 16-bit types too. */
typedef enum ronda_compression {
  RONDA_COMPRESSION_NONE = 0,
  RONDA_COMPRESSION_FP16 = 1,
  RONDA_COMPRESSION_BF16 = 2,
  RONDA_COMPRESSION_FP8_E4M3 = 3,
  RONDA_COMPRESSION_FP8_E5M2 = 4
} ronda_compression;

/* How averages count ranks that have joined. */
typedef enum ronda_absent {
  RONDA_ABSENT_NOT_COUNTED = 0,     /* divide by the number of ranks that take part */
  RONDA_ABSENT_COUNTED_AS_ZEROS = 1 /* divide by the number of all ranks of the process set */
} ronda_absent;

/* Where the buffers of an operation are, on every rank. */
typedef enum ronda_memory {
  RONDA_MEMORY_HOST = 0,
  RONDA_MEMORY_CUDA = 1 /* of one GPU: all tensors of a rank are on the same */
} ronda_memory;

/* Names a process set; 0 is the set of all ranks. */
typedef uint32_t ronda_process_set;

/* Ranks of a job, ascending. */
typedef struct ronda_rank_list {
  const int* ranks;
  int count;
} ronda_rank_list;

/* Overrides of the environment (RONDA_*); zero leaves the environment's value, or the default. */
typedef struct ronda_options {
  size_t struct_size;
  double cycle_time_ms;     /* longest time a tensor may wait for others to be fused with; negative: none */
  int64_t fusion_threshold; /* bytes of a bucket; negative: no fusion */
  int64_t cache_capacity;   /* entries of the response cache; negative: no cache */
  double stall_warning_s;   /* a tensor missing on some rank for so long is reported; negative: never */
  double stall_deadline_s;  /* and fails after so long; negative: never */
  double start_timeout_s;   /* the longest time to wait for the other ranks in ronda_init(); not negative */
  /* Process sets that exist from the start, the same on every rank; their ids are 1, 2, ... in this order. */
  const ronda_rank_list* process_sets;
  int process_set_count;
} ronda_options;
#define RONDA_OPTIONS_INIT \
  { sizeof(ronda_options), 0, 0, 0, 0, 0, 0, NULL, 0 }

#define RONDA_MAX_NAME_LENGTH 1024 /* bytes, without the terminating zero */
#define RONDA_MAX_NDIM 64

/* A dense tensor in row-major order. A tensor with a zero among its dimensions needs no buffer. */
typedef struct ronda_tensor {
  const char* name; /* UTF-8, not beginning with "ronda/"; unique among the tensors in flight; the same on every rank */
  ronda_dtype dtype;
  int ndim;             /* 0: a scalar */
  const int64_t* shape; /* ndim dimensions, outermost first */
} ronda_tensor;
#define RONDA_TENSOR_INIT \
  { NULL, RONDA_FLOAT32, 0, NULL }

/* The part that the arguments of all operations share. */
typedef struct ronda_call_options {
  ronda_process_set process_set; /* its ranks take part */
  double warning_s;              /* as stall_warning_s, for this operation; 0: the job's; negative: never */
  double deadline_s;             /* as stall_deadline_s, for this operation; 0: the job's; negative: never */
  ronda_memory memory;           /* where the buffers are */
  void* stream;                  /* with RONDA_MEMORY_CUDA, a cudaStream_t: its work so far comes before the operation;
                                    NULL: the default stream. Not one that a graph is captured from. Otherwise NULL */
} ronda_call_options;
#define RONDA_CALL_OPTIONS_INIT \
  { 0, 0, 0, RONDA_MEMORY_HOST, NULL }

typedef int64_t ronda_handle; /* > 0 */

/* Reduces over all ranks; every rank gets the result. */
typedef struct ronda_allreduce_args {
  size_t struct_size;
  ronda_tensor tensor; /* the same shape on every rank */
  const void* input;
  void* output; /* may equal input; must not overlap it otherwise */
  ronda_reduce_op op;
  ronda_compression compression;
  double prescale;     /* finite factor of the input; 0 or 1: none. Integers round towards zero and saturate */
  double postscale;    /* the same of the result */
  int error_feedback;  /* not 0: rounding errors of compression are added to this rank's next tensor of this name */
  int detect_overflow; /* not 0: see ronda_found_inf() */
  ronda_call_options call;
} ronda_allreduce_args;
#define RONDA_ALLREDUCE_ARGS_INIT                                                                                   \
  {                                                                                                                 \
    sizeof(ronda_allreduce_args), RONDA_TENSOR_INIT, NULL, NULL, RONDA_SUM, RONDA_COMPRESSION_NONE, 1.0, 1.0, 0, 0, \
        RONDA_CALL_OPTIONS_INIT                                                                                     \
  }

/* The same; only `root` gets the result. */
typedef struct ronda_reduce_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  void* output; /* on root; not looked at elsewhere; may equal input; must not overlap it otherwise */
  ronda_reduce_op op;
  ronda_compression compression;
  double prescale;
  double postscale;
  int error_feedback;
  int detect_overflow;
  int root;
  ronda_call_options call;
} ronda_reduce_args;
#define RONDA_REDUCE_ARGS_INIT                                                                                      \
  {                                                                                                                 \
    sizeof(ronda_reduce_args), RONDA_TENSOR_INIT, NULL, NULL, RONDA_SUM, RONDA_COMPRESSION_NONE, 1.0, 1.0, 0, 0, 0, \
        RONDA_CALL_OPTIONS_INIT                                                                                     \
  }

/* The same; the rows of the first dimension are dealt out: with n rows and m members each gets n / m, and the first
 * n % m members one more. ndim >= 1. Ronda owns the output: see ronda_output(). */
typedef struct ronda_reducescatter_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  ronda_reduce_op op;
  ronda_compression compression;
  double prescale;
  double postscale;
  int error_feedback;
  int detect_overflow;
  ronda_call_options call;
} ronda_reducescatter_args;
#define RONDA_REDUCESCATTER_ARGS_INIT                                                                             \
  {                                                                                                               \
    sizeof(ronda_reducescatter_args), RONDA_TENSOR_INIT, NULL, RONDA_SUM, RONDA_COMPRESSION_NONE, 1.0, 1.0, 0, 0, \
        RONDA_CALL_OPTIONS_INIT                                                                                   \
  }

typedef struct ronda_broadcast_args {
  size_t struct_size;
  ronda_tensor tensor;
  void* data; /* read on root, written on the other ranks */
  int root;
  ronda_call_options call;
} ronda_broadcast_args;
#define RONDA_BROADCAST_ARGS_INIT \
  { sizeof(ronda_broadcast_args), RONDA_TENSOR_INIT, NULL, 0, RONDA_CALL_OPTIONS_INIT }

/* Concatenates along the first dimension, which may differ between ranks; ndim >= 1. Ronda owns the output: see
 * ronda_output(). */
typedef struct ronda_allgather_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  ronda_call_options call;
} ronda_allgather_args;
#define RONDA_ALLGATHER_ARGS_INIT \
  { sizeof(ronda_allgather_args), RONDA_TENSOR_INIT, NULL, RONDA_CALL_OPTIONS_INIT }

/* The same; only `root` gets the result. */
typedef struct ronda_gather_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  int root;
  ronda_call_options call;
} ronda_gather_args;
#define RONDA_GATHER_ARGS_INIT \
  { sizeof(ronda_gather_args), RONDA_TENSOR_INIT, NULL, 0, RONDA_CALL_OPTIONS_INIT }

/* Deals the rows of root's tensor out to the members; ndim >= 1. The other ranks pass the same dtype and dimensions;
 * their first dimension is not looked at. Ronda owns the output: see ronda_output(). */
typedef struct ronda_scatter_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;     /* on root; not looked at elsewhere */
  const int64_t* splits; /* on root: rows for each member; NULL: as ronda_reducescatter_args deals them */
  int split_count;       /* entries of splits */
  int root;
  ronda_call_options call;
} ronda_scatter_args;
#define RONDA_SCATTER_ARGS_INIT \
  { sizeof(ronda_scatter_args), RONDA_TENSOR_INIT, NULL, NULL, 0, 0, RONDA_CALL_OPTIONS_INIT }

/* Sends rows of the first dimension to every member, and receives theirs in the order of the members; ndim >= 1. The
 * first dimension may differ between ranks. Ronda owns the output: see ronda_output(). */
typedef struct ronda_alltoall_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  const int64_t* splits; /* rows for each member; NULL: the same for all, which must divide the first dimension */
  int split_count;       /* entries of splits */
  ronda_call_options call;
} ronda_alltoall_args;
#define RONDA_ALLTOALL_ARGS_INIT \
  { sizeof(ronda_alltoall_args), RONDA_TENSOR_INIT, NULL, NULL, 0, RONDA_CALL_OPTIONS_INIT }

/* One tensor from one rank to another. The n-th send from a to b with a tag meets the n-th receive on b from a with
 * that tag; up to 64 of them may be in flight. tensor.name is not looked at. */
typedef struct ronda_send_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  int to;
  int tag; /* not negative */
  ronda_call_options call;
} ronda_send_args;
#define RONDA_SEND_ARGS_INIT \
  { sizeof(ronda_send_args), RONDA_TENSOR_INIT, NULL, 0, 0, RONDA_CALL_OPTIONS_INIT }

typedef struct ronda_recv_args {
  size_t struct_size;
  ronda_tensor tensor; /* dtype and shape as sent */
  void* output;
  int from;
  int tag;
  ronda_call_options call;
} ronda_recv_args;
#define RONDA_RECV_ARGS_INIT \
  { sizeof(ronda_recv_args), RONDA_TENSOR_INIT, NULL, 0, 0, RONDA_CALL_OPTIONS_INIT }

/* Bytes, as many as each rank likes, in host memory. Ronda owns the output: see ronda_output(); a row is a byte. */
typedef struct ronda_object_args {
  size_t struct_size;
  const char* name; /* as ronda_tensor's */
  const void* data; /* broadcast: on root; not looked at elsewhere */
  size_t size;
  int root; /* broadcast only */
  ronda_call_options call;
} ronda_object_args;
#define RONDA_OBJECT_ARGS_INIT \
  { sizeof(ronda_object_args), NULL, NULL, 0, 0, RONDA_CALL_OPTIONS_INIT }

/* A sum or average of tensors that are zero but for a few rows: every rank gets the rows of all ranks and their
 * indices. The same index may come from several ranks; a caller that needs the dense tensor adds those rows up. An
 * average divides by the same number as that of an allreduce. Ronda owns the outputs. */
typedef struct ronda_sparse_allreduce_args {
  size_t struct_size;
  ronda_tensor tensor;    /* of the values: the first dimension counts this rank's rows */
  const void* values;     /* rows */
  const int64_t* indices; /* of the rows in the dense tensor */
  ronda_reduce_op op;     /* RONDA_SUM, or RONDA_AVERAGE of floating-point numbers in host memory: the values come back
                             divided */
  ronda_call_options call;
} ronda_sparse_allreduce_args;
#define RONDA_SPARSE_ALLREDUCE_ARGS_INIT \
  { sizeof(ronda_sparse_allreduce_args), RONDA_TENSOR_INIT, NULL, NULL, RONDA_SUM, RONDA_CALL_OPTIONS_INIT }

/* The version of the library, "0.1.0". */
const char* ronda_version(void);

/* The error text of this thread's last call that did not return RONDA_OK; "" if there is none. Valid until the thread's
 * next call. */
const char* ronda_last_error(void);

/* -- The job -- */

/* Joins the job that the environment describes (rondarun, torchrun-style variables, or a single rank); blocks until
 * every rank has. `options` may be NULL. */
ronda_status ronda_init(const ronda_options* options);

/* Completes the operations in flight, waits until every rank has called it, and ends the job for this process. It does
 * so also if it returns an error: then the job had failed, and the operations in flight have that error. Handles stay
 * valid, complete, until they are released. ronda_init() may be called again afterwards. A process that ends without it
 * counts as failed. */
ronda_status ronda_shutdown(void);

int ronda_is_initialized(void); /* 1 or 0 */

/* -1 before ronda_init(). */
int ronda_rank(void);
int ronda_size(void);
int ronda_local_rank(void);
int ronda_local_size(void);
int ronda_cross_rank(void);
int ronda_cross_size(void);

/* *stop becomes 1 once some rank has received SIGTERM, which schedulers send to jobs whose machine they take back; else
 * 0. Every rank calls it as often as the others, once a step. All ranks read the 1 in the same call, and may save their
 * state there and end.
 *
 * A call answers with the knowledge of the ranks in the previous call, and does not wait where that is complete. So
 * ranks learn of a signal up to two calls after it has come. The first call sets a handler for SIGTERM, which calls a
 * handler that the program has installed before. Until the first call the signal ends the process as usual. Ranks that
 * have joined do not call it until all have; then the first call answers 0. One thread of a rank calls it. Errors: as
 * those of an operation. */
ronda_status ronda_should_stop(int* stop);

/* Runs `body` once for each rank of a job of `size` ranks that are threads of this process, and returns when all have
 * ended: the job's first failure, if it failed. In `body`, and in functions that it calls, every function of this
 * header acts for that thread's rank; the job begins and ends with `body`, so ronda_init() is not called there.
 * `options` may be NULL; otherwise the environment's settings and these hold. */
ronda_status ronda_run_threads(const ronda_options* options, int size, void (*body)(void* context), void* context);

/* The rank for which a thread acts: 0 for the rank that ronda_init() made, else one of ronda_run_threads(). A thread
 * that `body` starts acts for the same rank as the one that starts it once it has passed on what ronda_current()
 * returned there to ronda_make_current(). */
typedef int64_t ronda_context;
ronda_context ronda_current(void);
ronda_status ronda_make_current(ronda_context context);

/* Counts of this rank's work since ronda_init(), which only grow. They tell whether a job has settled: once its steps
 * repeat, only buckets_scheduled and schedule_rounds still grow. */
typedef struct ronda_statistics {
  size_t struct_size;
  uint64_t reports_sent;      /* control messages to rank 0 */
  uint64_t reports_received;  /* by rank 0, its own included */
  uint64_t lists_sent;        /* control messages of rank 0, each to all ranks */
  uint64_t lists_received;    /* of these, by this rank */
  uint64_t buckets_agreed;    /* tensors that ran together: because rank 0 said so */
  uint64_t buckets_scheduled; /* because the locked schedule says so: without any control message */
  uint64_t schedules_begun;   /* how often the steps of the job had repeated so that a schedule was locked */
  uint64_t schedules_left;    /* and how often a rank did something else then */
  uint64_t own_vetoes;        /* of these, how often it was this rank */
  uint64_t schedule_rounds;   /* how often a locked schedule was carried out as a whole */
} ronda_statistics;
#define RONDA_STATISTICS_INIT \
  { sizeof(ronda_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Writes the first struct_size bytes of the statistics; bytes beyond those that this library knows become zero. */
ronda_status ronda_get_statistics(ronda_statistics* statistics);

/* Makes this rank write a timeline from now on: the events of its tensors, as a trace that Perfetto shows. The file is
 * `path` with the rank before the extension: "trace.json" becomes "trace.rank3.json". An existing file is replaced.
 * Every rank that calls it writes one; ranks need not call it together. The same as RONDA_TIMELINE for a part of the
 * job. Errors: RONDA_ERROR_INVALID_ARGUMENT (the file cannot be created, or there is a timeline already). */
ronda_status ronda_start_timeline(const char* path);

/* Ends the file; so does ronda_shutdown(). Nothing happens if there is none. */
ronda_status ronda_stop_timeline(void);

/* -- Process sets: ranks that operate among themselves, also at the same time as other sets -- */

/* Makes a set of these ranks, ascending, and writes its id. Blocks until every rank of the job, also those that are not
 * in the set, has called it with the same ranks. */
ronda_status ronda_add_process_set(const int* ranks, int count, ronda_process_set* id);

/* Ends a set. Blocks until every rank of the job has called it. Operations in flight in the set fail. */
ronda_status ronda_remove_process_set(ronda_process_set id);

/* The number of ranks in the set, and this rank's position among them; -1 if there is no such set, or this rank is not
 * in it. */
int ronda_process_set_size(ronda_process_set id);
int ronda_process_set_rank(ronda_process_set id);

/* Writes the ranks of the set, ronda_process_set_size() of them. */
ronda_status ronda_process_set_ranks(ronda_process_set id, int* ranks);

/* Writes how many sets there are, and the ids of the first `capacity` of them, ascending, to `ids`. */
ronda_status ronda_process_set_ids(ronda_process_set* ids, int capacity, int* count);

/* -- Operations -- */

ronda_status ronda_allreduce_async(const ronda_allreduce_args* args, ronda_handle* handle);
ronda_status ronda_reduce_async(const ronda_reduce_args* args, ronda_handle* handle);
ronda_status ronda_reducescatter_async(const ronda_reducescatter_args* args, ronda_handle* handle);
ronda_status ronda_broadcast_async(const ronda_broadcast_args* args, ronda_handle* handle);
ronda_status ronda_allgather_async(const ronda_allgather_args* args, ronda_handle* handle);
ronda_status ronda_gather_async(const ronda_gather_args* args, ronda_handle* handle);
ronda_status ronda_scatter_async(const ronda_scatter_args* args, ronda_handle* handle);
ronda_status ronda_alltoall_async(const ronda_alltoall_args* args, ronda_handle* handle);
ronda_status ronda_send_async(const ronda_send_args* args, ronda_handle* handle);
ronda_status ronda_recv_async(const ronda_recv_args* args, ronda_handle* handle);
ronda_status ronda_broadcast_object_async(const ronda_object_args* args, ronda_handle* handle);
ronda_status ronda_allgather_object_async(const ronda_object_args* args, ronda_handle* handle);

/* The same, and waits: RONDA_OK, or the error of the submission or of the operation. For small tensors these are
 * faster: the calling thread carries out the operation instead of waiting for it, and there is no handle. */
ronda_status ronda_allreduce(const ronda_allreduce_args* args);
ronda_status ronda_reduce(const ronda_reduce_args* args);
ronda_status ronda_broadcast(const ronda_broadcast_args* args);
ronda_status ronda_send(const ronda_send_args* args);
ronda_status ronda_recv(const ronda_recv_args* args);

/* Two handles, one for each output: of the indices (int64), and of the values. */
ronda_status ronda_sparse_allreduce_async(const ronda_sparse_allreduce_args* args, ronda_handle* indices,
                                          ronda_handle* values);

/* `count` operations, `args[0]` to `args[count - 1]`, that are carried out together or, if one of them fails, not at
 * all: then each has the error of the first that failed. `group` names them, the same on every rank. Writes `count`
 * handles, or none if it fails. */
ronda_status ronda_grouped_allreduce_async(const ronda_allreduce_args* args, size_t count, const char* group,
                                           ronda_handle* handles);
ronda_status ronda_grouped_allgather_async(const ronda_allgather_args* args, size_t count, const char* group,
                                           ronda_handle* handles);
ronda_status ronda_grouped_reducescatter_async(const ronda_reducescatter_args* args, size_t count, const char* group,
                                               ronda_handle* handles);

/* The first of these, and waits. */
ronda_status ronda_grouped_allreduce(const ronda_allreduce_args* args, size_t count, const char* group);

/* Blocks until every rank of the set has called it. */
ronda_status ronda_barrier(ronda_process_set process_set);

/* The same, for at most `timeout_s` seconds (0: the job's deadline; negative: for ever). RONDA_ERROR_DEADLINE then
 * names every rank that is missing. */
ronda_status ronda_monitored_barrier(ronda_process_set process_set, double timeout_s);

/* Sets `bytes` bytes of a GPU's memory to zero, after the work that `stream` (a cudaStream_t) has been given so far.
 * Only the stream waits for it. A rank that has nothing to add to a tensor submits zeros. */
ronda_status ronda_cuda_zero(void* data, size_t bytes, void* stream);

/* This rank has no more data: until every rank of the set has joined, the operations of the others go on without it, as
 * far as they can. Operations that need this rank (as their root, for instance) fail on them with RONDA_ERROR_MISMATCH.
 * Blocks until every rank has joined; then all take part again, and `*last_rank`, unless NULL, is the last that joined.
 */
ronda_status ronda_join(ronda_process_set process_set, ronda_absent absent, int* last_rank);
ronda_status ronda_join_async(ronda_process_set process_set, ronda_absent absent, ronda_handle* handle);

/* -- Handles -- */

/* *done becomes 1 if the operation has completed, in success or failure, else 0. */
ronda_status ronda_poll(ronda_handle handle, int* done);

/* Blocks until the operation has completed and returns its status. The handle stays valid. */
ronda_status ronda_synchronize(ronda_handle handle);

/* Makes `stream` (a cudaStream_t) wait for an operation on GPU memory: work that the stream is given from now on comes
 * after it, and there the buffers are the caller's again. The calling thread waits until all ranks have submitted the
 * tensor and the device has its work (in a locked schedule, until the device has all ranks' votes on it), not for that
 * work. Errors known by then are returned. Later errors on the device fail the job; ronda_synchronize() and the next
 * submission return them. After RONDA_OK the handle may be given back without any wait; while it is kept, ronda_poll()
 * tells when the device has done the operation, and ronda_synchronize() how it ended. RONDA_ERROR_INVALID_ARGUMENT if
 * the stream is being captured into a graph. Operations on host memory are waited for as by ronda_synchronize(). */
ronda_status ronda_synchronize_on_stream(ronda_handle handle, void* stream);

/* The result of a completed operation whose output Ronda owns. `*data` holds `*rows` rows: units of the first
 * dimension. If `rows_per_member` is not NULL, `*rows_per_member` and `*members` become an array and its length: for
 * allgather (of tensors or objects), gather (on root) and alltoall how many of the rows came from each member of the
 * process set; for other operations it is empty. All is valid until ronda_release().
 *
 * Of an operation on GPU memory `*data` is there, and the operation need not have completed: work on a stream for which
 * ronda_synchronize_on_stream() has returned RONDA_OK finds the result. That work has to be done before
 * ronda_release(). */
ronda_status ronda_output(ronda_handle handle, const void** data, int64_t* rows, const int64_t** rows_per_member,
                          int* members);

/* Whether the result of a completed reduction has an element that is infinite or not a number, on any rank: the same
 * answer on every rank. For operations submitted with detect_overflow; 0 for others, which are not searched. */
ronda_status ronda_found_inf(ronda_handle handle, int* found);

/* The last rank to join, of a completed ronda_join_async(). */
ronda_status ronda_last_rank(ronda_handle handle, int* last_rank);

/* Has `callback` called once, with the operation's status and, if that is an error, its text, when it has completed; at
 * once if it has. It runs on a thread of Ronda's that serves nothing else, and acts for the same rank as the calling
 * thread; it may submit, but if it waits, the callbacks after it are delayed. */
typedef void (*ronda_callback)(void* context, ronda_status status, const char* message);
ronda_status ronda_on_completion(ronda_handle handle, ronda_callback callback, void* context);

/* Gives the handle back; waits for the operation first if it is still in flight and no stream waits for it. */
ronda_status ronda_release(ronda_handle handle);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RONDA_H_ */
