/* SPDX-License-Identifier: Apache-2.0 */

/* Operations and their handles. This header is part of ronda.h; read ronda.h first. */
#ifndef RONDA_OPERATIONS_H_
#define RONDA_OPERATIONS_H_

#include <stddef.h>
#include <stdint.h>

#include "../ronda.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RONDA_MAX_NAME_LENGTH 1024 /* bytes, without the terminating zero */
#define RONDA_MAX_NDIM 64

/* A dense tensor in row-major order. A tensor with a dimension of 0 needs no buffer.
 *
 * Ranks may submit tensors without a name (NULL). Operations on such tensors are matched by their order, as in MPI: in
 * a process set, the n-th unnamed operation of one rank matches the n-th unnamed operation of every other rank. A step
 * that repeats is as fast as with names if it has at most 1,024 unnamed operations. If ranks call different n-th
 * operations, the operation fails with RONDA_ERROR_MISMATCH, and the text gives n and the calls of two of the ranks.
 *
 * An unnamed operation is counted when it is submitted. A call rejected because of its arguments is not counted, unless
 * the program counts it with ronda_refuse(). If a call failed with RONDA_ERROR_DEADLINE because a rank was late, the
 * next call is a retry and gets the same number. The counter of a process set restarts after all ranks of the set have
 * joined.
 *
 * If several threads of a rank submit unnamed operations at the same time, the operations have no defined order.
 * Therefore, either only one thread should submit unnamed operations, or each thread should use its own process set.
 * Two equal operations in a row may run one after the other instead of together. Sends and receives are matched by
 * their tags (see ronda_send_args). Groups, sparse tensors and error feedback require names. If the set has an open
 * lane, the lane's calls are counted separately; lanes.h says how they fail.
 */
typedef struct ronda_tensor {
  const char* name; /* NULL, or UTF-8 that does not begin with "ronda/"; unique among the tensors in flight; the same on
                       every rank */
  ronda_dtype dtype;
  int ndim;             /* 0: scalar */
  const int64_t* shape; /* ndim dimensions, outermost first */
} ronda_tensor;
#define RONDA_TENSOR_INIT \
  { NULL, RONDA_FLOAT32, 0, NULL }

/* Options that all operations have. No field can be added to ronda_call_options, because some argument structs have
 * further fields after it. */
typedef struct ronda_call_options {
  ronda_process_set process_set; /* the ranks that take part */
  double warning_s;              /* as stall_warning_s, for this operation; 0: as the job; negative: never */
  double deadline_s;             /* as stall_deadline_s, for this operation; 0: as the job; negative: never */
  ronda_memory memory;           /* where the buffers are */
  void* stream; /* a cudaStream_t, with RONDA_MEMORY_CUDA: the operation comes after the stream's work so far; NULL: the
                   default stream; not a stream that a graph is captured from. With RONDA_MEMORY_HOST: NULL */
} ronda_call_options;
#define RONDA_CALL_OPTIONS_INIT \
  { 0, 0, 0, RONDA_MEMORY_HOST, NULL }

typedef int64_t ronda_handle; /* > 0 */

/* -- Outputs in the caller's memory --
 *
 * The result of reducescatter, allgather, gather, scatter and alltoall may differ in size from the input. Without an
 * `output`, Ronda allocates the result, which belongs to the handle. With an `output`, Ronda writes the rows directly
 * to `output`, which must be in the kind of memory that call.memory names. The rows in `output` remain after the handle
 * is released. With or without an `output`, ronda_output() returns the address of the result and the number of its
 * rows. `output` must not overlap the input, except on a lane (lanes.h): there the input of an allgather may be this
 * rank's part of `output`, and the `output` of a reducescatter may be this rank's part of the input. Each rank decides
 * for itself whether to pass an `output`.
 *
 * If the result is larger than `output_bytes`, the operation runs, and then fails on this rank with
 * RONDA_ERROR_INVALID_ARGUMENT and a text that names both sizes. In this case Ronda writes nothing to this rank's
 * `output`; the other ranks get their results. */

/* Allreduce: reduces the tensors of all ranks, and gives every rank the result. */
typedef struct ronda_allreduce_args {
  size_t struct_size;
  ronda_tensor tensor; /* the same shape on every rank */
  const void* input;
  void* output; /* equals input, or does not overlap it */
  ronda_reduce_op op;
  ronda_compression compression;
  double prescale;     /* finite factor of the input; 0 or 1: none. Integers are rounded towards zero and saturate */
  double postscale;    /* as prescale, for the result */
  int error_feedback;  /* not 0: rounding errors of compression are added to this rank's next tensor of this name */
  int detect_overflow; /* not 0: see ronda_found_inf() */
  ronda_call_options call;
} ronda_allreduce_args;
#define RONDA_ALLREDUCE_ARGS_INIT                                                                                   \
  {                                                                                                                 \
    sizeof(ronda_allreduce_args), RONDA_TENSOR_INIT, NULL, NULL, RONDA_SUM, RONDA_COMPRESSION_NONE, 1.0, 1.0, 0, 0, \
        RONDA_CALL_OPTIONS_INIT                                                                                     \
  }

/* Reduce: like an allreduce, but only `root` gets the result. */
typedef struct ronda_reduce_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  void* output; /* on root; ignored elsewhere; equals input, or does not overlap it */
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

/* Reducescatter: like an allreduce, but each member of the process set gets only some rows of the result. With n rows
 * and m members, each member gets n / m rows, and the first n % m members get one more. ndim >= 1. Without an `output`,
 * Ronda allocates the result: see ronda_output(). */
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
  void* output;        /* NULL: Ronda owns the output; else see "Outputs in the caller's memory" */
  size_t output_bytes; /* room at output */
} ronda_reducescatter_args;
#define RONDA_REDUCESCATTER_ARGS_INIT                                                                             \
  {                                                                                                               \
    sizeof(ronda_reducescatter_args), RONDA_TENSOR_INIT, NULL, RONDA_SUM, RONDA_COMPRESSION_NONE, 1.0, 1.0, 0, 0, \
        RONDA_CALL_OPTIONS_INIT, NULL, 0                                                                          \
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

/* Allgather: concatenates the tensors of all ranks along their first dimension, which may differ between ranks.
 * ndim >= 1. */
typedef struct ronda_allgather_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  ronda_call_options call;
  void* output;        /* NULL: Ronda owns the output; else see "Outputs in the caller's memory" */
  size_t output_bytes; /* room at output */
} ronda_allgather_args;
#define RONDA_ALLGATHER_ARGS_INIT \
  { sizeof(ronda_allgather_args), RONDA_TENSOR_INIT, NULL, RONDA_CALL_OPTIONS_INIT, NULL, 0 }

/* Gather: like an allgather, but only `root` gets the result. */
typedef struct ronda_gather_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  int root;
  ronda_call_options call;
  void* output;        /* on root: as in ronda_allgather_args; ignored elsewhere */
  size_t output_bytes; /* room at output */
} ronda_gather_args;
#define RONDA_GATHER_ARGS_INIT \
  { sizeof(ronda_gather_args), RONDA_TENSOR_INIT, NULL, 0, RONDA_CALL_OPTIONS_INIT, NULL, 0 }

/* Scatter: distributes the rows of root's tensor to the members of the process set. ndim >= 1. The other ranks must
 * pass the same dtype and dimensions, but their first dimension is ignored. */
typedef struct ronda_scatter_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;     /* on root; ignored elsewhere */
  const int64_t* splits; /* on root: rows for each member; NULL: distributed as by reducescatter */
  int split_count;       /* entries of splits */
  int root;
  ronda_call_options call;
  void* output;        /* NULL: Ronda owns the output; else see "Outputs in the caller's memory" */
  size_t output_bytes; /* room at output */
} ronda_scatter_args;
#define RONDA_SCATTER_ARGS_INIT \
  { sizeof(ronda_scatter_args), RONDA_TENSOR_INIT, NULL, NULL, 0, 0, RONDA_CALL_OPTIONS_INIT, NULL, 0 }

/* Alltoall: sends rows of this rank's tensor to every member, and receives rows from every member, in member order.
 * ndim >= 1. The first dimension may differ between ranks. Without `splits`, each member gets the same number of rows,
 * so the number of members must divide the first dimension. */
typedef struct ronda_alltoall_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  const int64_t* splits; /* rows for each member; NULL: the same number of rows for each */
  int split_count;       /* entries of splits */
  ronda_call_options call;
  void* output;        /* NULL: Ronda owns the output; else see "Outputs in the caller's memory" */
  size_t output_bytes; /* room at output */
} ronda_alltoall_args;
#define RONDA_ALLTOALL_ARGS_INIT \
  { sizeof(ronda_alltoall_args), RONDA_TENSOR_INIT, NULL, NULL, 0, RONDA_CALL_OPTIONS_INIT, NULL, 0 }

/* Sends a tensor from one rank to another. Rank a's n-th send to rank b with a given tag matches rank b's n-th receive
 * from rank a with the same tag. Up to 64 sends with the same tag may be in flight from a to b. tensor.name is ignored.
 *
 * A receive from RONDA_ANY_SOURCE matches the first message with its tag that arrives from any rank of the process set
 * and that matches no earlier receive. From then on, Ronda treats it as a receive from the rank that sent the message;
 * ronda_source() returns that rank. Until this receive has completed, later receives with the same tag are matched in
 * the order of the calls. */
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

#define RONDA_ANY_SOURCE (-1)

typedef struct ronda_recv_args {
  size_t struct_size;
  ronda_tensor tensor; /* dtype and shape as sent */
  void* output;
  int from; /* or RONDA_ANY_SOURCE */
  int tag;
  ronda_call_options call;
} ronda_recv_args;
#define RONDA_RECV_ARGS_INIT \
  { sizeof(ronda_recv_args), RONDA_TENSOR_INIT, NULL, 0, 0, RONDA_CALL_OPTIONS_INIT }

/* Broadcasts or gathers bytes in host memory; their number may differ between ranks. Ronda allocates the output;
 * ronda_output() returns it, and counts bytes as rows. */
typedef struct ronda_object_args {
  size_t struct_size;
  const char* name; /* as in ronda_tensor; NULL: matched by order, like unnamed tensors */
  const void* data; /* broadcast: on root; ignored elsewhere */
  size_t size;
  int root; /* broadcast only */
  ronda_call_options call;
} ronda_object_args;
#define RONDA_OBJECT_ARGS_INIT \
  { sizeof(ronda_object_args), NULL, NULL, 0, 0, RONDA_CALL_OPTIONS_INIT }

/* Sums or averages sparse tensors, in which only few rows are nonzero. Every rank gets the rows of all ranks, and the
 * indices of these rows. If several ranks pass the same index, the caller must add up the rows with this index to get
 * the dense tensor. An average is divided by the same number as in an allreduce. Ronda allocates the outputs. */
typedef struct ronda_sparse_allreduce_args {
  size_t struct_size;
  ronda_tensor tensor;    /* of the values: the first dimension is the number of this rank's rows */
  const void* values;     /* rows */
  const int64_t* indices; /* of the rows in the dense tensor */
  ronda_reduce_op op;     /* RONDA_SUM, or RONDA_AVERAGE of floating-point numbers in host memory (Ronda divides) */
  ronda_call_options call;
} ronda_sparse_allreduce_args;
#define RONDA_SPARSE_ALLREDUCE_ARGS_INIT \
  { sizeof(ronda_sparse_allreduce_args), RONDA_TENSOR_INIT, NULL, NULL, RONDA_SUM, RONDA_CALL_OPTIONS_INIT }

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

/* The functions without _async wait until the operation has completed, and return RONDA_OK, or the error of the
 * submission or of the operation. For small tensors they are faster than the *_async functions, because the calling
 * thread runs the operation itself, without a handle. */
ronda_status ronda_allreduce(const ronda_allreduce_args* args);
/* Like ronda_allreduce(), but waits for at most `timeout_s` seconds (negative: no limit). If the operation is still in
 * flight then, returns RONDA_OK and sets `*handle` to the handle of the operation. Otherwise sets `*handle` to 0. */
ronda_status ronda_allreduce_for(const ronda_allreduce_args* args, double timeout_s, ronda_handle* handle);
ronda_status ronda_reduce(const ronda_reduce_args* args);
ronda_status ronda_broadcast(const ronda_broadcast_args* args);
ronda_status ronda_send(const ronda_send_args* args);
ronda_status ronda_recv(const ronda_recv_args* args);

/* Writes two handles: `*indices` for the gathered indices (int64), and `*values` for the gathered rows. */
ronda_status ronda_sparse_allreduce_async(const ronda_sparse_allreduce_args* args, ronda_handle* indices,
                                          ronda_handle* values);

/* Submits `count` operations, `args[0]` to `args[count - 1]`, that run together. If one operation fails, none of them
 * runs, and each handle gets the error of the first operation that failed. `group` names the group, and must be the
 * same on every rank. Writes `count` handles, or none if the call fails. */
ronda_status ronda_grouped_allreduce_async(const ronda_allreduce_args* args, size_t count, const char* group,
                                           ronda_handle* handles);
ronda_status ronda_grouped_allgather_async(const ronda_allgather_args* args, size_t count, const char* group,
                                           ronda_handle* handles);
ronda_status ronda_grouped_reducescatter_async(const ronda_reducescatter_args* args, size_t count, const char* group,
                                               ronda_handle* handles);

/* Like ronda_grouped_allreduce_async(), but waits. */
ronda_status ronda_grouped_allreduce(const ronda_allreduce_args* args, size_t count, const char* group);

/* Announces that this rank cannot take part in an operation, for instance because its own arguments are invalid. If
 * `name` is not NULL, refuses the operation on the tensor `name`. If `name` is NULL, refuses this rank's next unnamed
 * operation in the process set, and counts it. Once all other ranks have submitted the operation, it fails on these
 * ranks with RONDA_ERROR_MISMATCH. The error text names this rank (the first one, if several ranks refuse) and contains
 * the first 1,024 bytes of `message`. After that, the name may be used again. Does not wait for other ranks. This rank
 * is not told when the operation has failed on the others, unless the job fails. To refuse a call of an open lane, use
 * ronda_lane_refuse() instead. */
ronda_status ronda_refuse(ronda_process_set process_set, const char* name, const char* message);

/* Like ronda_refuse(), but refuses the next message from rank `from` to rank `to` with this tag. Either of these two
 * ranks may call this function. */
ronda_status ronda_refuse_message(ronda_process_set process_set, int from, int to, int tag, const char* message);

/* Blocks until every rank of the set has called the function. */
ronda_status ronda_barrier(ronda_process_set process_set);

/* Like ronda_barrier(), but does not block: the operation is complete once every rank of the set has submitted it. A
 * rank's n-th barrier in a set, blocking or not, completes once every other rank has submitted its n-th barrier. Up to
 * 64 barriers may be in flight in each set. */
ronda_status ronda_barrier_async(ronda_process_set process_set, ronda_handle* handle);

/* Like ronda_barrier(), but waits for at most `timeout_s` seconds (0 for the job's deadline, negative for no limit).
 * If the time expires, the error text of RONDA_ERROR_DEADLINE names every rank that has not called the function. */
ronda_status ronda_monitored_barrier(ronda_process_set process_set, double timeout_s);

/* Like ronda_barrier_async(), with the deadline of ronda_monitored_barrier(). A rank that does not want to wait can
 * pass 0.001. The error then names the ranks that have not submitted the barrier yet. */
ronda_status ronda_monitored_barrier_async(ronda_process_set process_set, double timeout_s, ronda_handle* handle);

/* Like ronda_remove_process_set(), but does not block: the set is removed once every rank that must call the function
 * has called it, in either form. A program that does not need to know when the set is removed can release the handle
 * immediately. Each rank may remove several sets at any time and in any order. Ronda does not warn about a late rank,
 * and ronda_shutdown() does not wait for one, but completes the handle with an error. */
ronda_status ronda_remove_process_set_async(ronda_process_set id, ronda_handle* handle);

/* Sets `bytes` bytes of GPU memory to zero, after the work already enqueued on `stream` (a cudaStream_t). Does not
 * block on that work. A rank that has nothing to contribute to a tensor can use this function and submit the zeros. */
ronda_status ronda_cuda_zero(void* data, size_t bytes, void* stream);

/* Announces that this rank has no more data. Until every rank of the set has joined, the operations of the other ranks
 * continue without this rank where possible. Operations that need this rank (for instance as their root) fail on the
 * other ranks with RONDA_ERROR_MISMATCH. Blocks until every rank has joined; after that, all ranks take part in
 * operations again. `*last_rank`, unless `last_rank` is NULL, becomes the rank that joined last.
 */
ronda_status ronda_join(ronda_process_set process_set, ronda_absent absent, int* last_rank);
ronda_status ronda_join_async(ronda_process_set process_set, ronda_absent absent, ronda_handle* handle);

/* -- Handles -- */

/* *done becomes 1 if the operation has completed, successfully or not, else 0. */
ronda_status ronda_poll(ronda_handle handle, int* done);

/* Blocks until the operation has completed and returns its status. The handle stays valid. */
ronda_status ronda_synchronize(ronda_handle handle);

/* Like ronda_synchronize(), but waits for at most `timeout_s` seconds (negative: no limit). If the operation has
 * completed, sets *done to 1. Otherwise sets *done to 0 and returns RONDA_OK. A program that must check for signals
 * while it waits can call this function in a loop; each call costs about one thread wake-up. */
ronda_status ronda_synchronize_for(ronda_handle handle, double timeout_s, int* done);

/* Makes `stream` (a cudaStream_t) wait for an operation on GPU memory. Work enqueued on the stream from now on runs
 * after the operation, and may reuse the buffers. The calling thread blocks until all ranks have submitted the tensor,
 * and until Ronda has enqueued the operation's work on this rank's device. It does not block until the device has done
 * this work.
 *
 * Returns the errors that have occurred so far. Errors that occur later fail the job; they are returned by
 * ronda_synchronize() and by the next submission. After such an error the stream does not continue, because the result
 * would be wrong, and the process must end (RONDA_FAILURE_GRACE). After RONDA_OK, the handle may be released without
 * waiting. Until the release, ronda_poll() tells whether the device has completed the operation, and
 * ronda_synchronize() returns the operation's status. Returns RONDA_ERROR_INVALID_ARGUMENT if the stream is being
 * captured into a graph, unless the operation is part of that graph (lanes.h).
 *
 * For operations on host memory, and for all operations in an elastic job, the call waits as ronda_synchronize() does.
 * In an elastic job, the stream's next work, for instance an optimizer step, could otherwise change parameters even
 * though a rank has died. */
ronda_status ronda_synchronize_on_stream(ronda_handle handle, void* stream);

/* Like ronda_synchronize_on_stream(), but the calling thread waits for at most `timeout_s` seconds (negative: no
 * limit). Sets *done to 1 if the stream waits for the operation, or if the call returns an error. Otherwise sets *done
 * to 0 and returns RONDA_OK. */
ronda_status ronda_synchronize_on_stream_for(ronda_handle handle, void* stream, double timeout_s, int* done);

/* Like ronda_synchronize_on_stream(), but does not block the host: `callback` is called once `stream` waits for the
 * operation, with RONDA_OK, or with the error that ronda_synchronize_on_stream() would return. Enqueue the stream's
 * next work in the callback or later, and keep the stream alive until then. The callback runs on the same thread as the
 * callbacks of ronda_on_completion(). */
typedef void (*ronda_callback)(void* context, ronda_status status, const char* message);
ronda_status ronda_synchronize_on_stream_async(ronda_handle handle, void* stream, ronda_callback callback,
                                               void* context);

/* Returns the result of a completed operation as rows (slices along the first dimension). `*data` becomes the address
 * of the result, which has `*rows` rows. `*data` equals `output` if the caller passed one. If `rows_per_member` is not
 * NULL, `*rows_per_member` and `*members` become an array and its length. For allgather (of tensors or objects), gather
 * (on root) and alltoall, the array says how many of the rows came from each member of the process set; for other
 * operations it is empty. The addresses are valid until ronda_release().
 *
 * An operation on GPU memory need not have completed before ronda_output() is called. If ronda_synchronize_on_stream()
 * has returned RONDA_OK for a stream, later work on that stream finds the result at `*data`. The stream must exist
 * until ronda_release(). Ronda reuses the memory once the device has done the work enqueued on that stream before
 * ronda_release(). Work of other streams that use the result must be done before ronda_release(); it need not be done
 * before ronda_release_on_stream(). */
ronda_status ronda_output(ronda_handle handle, const void** data, int64_t* rows, const int64_t** rows_per_member,
                          int* members);

/* *found becomes 1 if the result of a completed reduction has an infinite or NaN element on any rank, else 0. All ranks
 * get the same value. Without detect_overflow, *found becomes 0, because Ronda does not check the result. */
ronda_status ronda_found_inf(ronda_handle handle, int* found);

/* Writes the rank that sent the tensor. The handle must belong to a completed ronda_send_async() or ronda_recv_async().
 * For operations on GPU memory, it is enough that a stream waits for the operation. */
ronda_status ronda_source(ronda_handle handle, int* rank);

/* Writes the divisor for an average of the gathered rows. This is the number of ranks that took part, plus the number
 * of joined ranks that are counted as zeros. The handle must belong to an allgather, or to the indices or the values of
 * a sparse allreduce. The operation must have completed; on GPU memory, it is enough that a stream waits for it. */
ronda_status ronda_averaged_over(ronda_handle handle, int* ranks);

/* Writes the rank that joined last. The handle must belong to a completed ronda_join_async(). */
ronda_status ronda_last_rank(ronda_handle handle, int* last_rank);

/* Calls `callback` once, when the operation has completed, or immediately if it already has. The callback gets the
 * operation's status and, after an error, the error text. The callback runs on a Ronda thread that only runs callbacks,
 * and acts for the calling thread's rank. The callback may submit operations. If the callback blocks, it delays later
 * callbacks. */
ronda_status ronda_on_completion(ronda_handle handle, ronda_callback callback, void* context);

/* Releases the handle. If the operation is in flight and no stream waits for it, first waits for the operation. */
ronda_status ronda_release(ronda_handle handle);

/* Like ronda_release(), for an output that Ronda has allocated in GPU memory and that `stream` (a cudaStream_t) still
 * uses. Ronda reuses this memory once the device has done the work already enqueued on the stream. No thread waits for
 * that work. After an error, the handle is still valid. Returns RONDA_ERROR_INVALID_ARGUMENT if the stream is being
 * captured into a graph. */
ronda_status ronda_release_on_stream(ronda_handle handle, void* stream);

/* The following functions take an array `handles` of `count` handles, for instance all handles of a step.
 *
 * *done becomes 1 if all operations have completed, successfully or not, else 0. */
ronda_status ronda_poll_all(const ronda_handle* handles, size_t count, int* done);

/* Blocks until all operations have completed, even after an error. Returns the first error in array order; an unknown
 * handle is also an error. The handles stay valid. */
ronda_status ronda_synchronize_all(const ronda_handle* handles, size_t count);

/* Calls ronda_release() for each handle. If a handle is unknown, returns an error, but still releases the other
 * handles. */
ronda_status ronda_release_all(const ronda_handle* handles, size_t count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RONDA_OPERATIONS_H_ */
