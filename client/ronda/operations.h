/* SPDX-License-Identifier: Apache-2.0 */

/* Operations and their handles. This header is part of ronda.h; read that first. */
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

/* A dense tensor in row-major order. A tensor with a zero among its dimensions needs no buffer.
 *
 * Operations on tensors without a name (NULL) match by their order, as in MPI. In a process set, the n-th such
 * operation of a rank meets the n-th such operation of each other rank, at whatever time. A step that repeats is as
 * fast as a step with names, if it has at most 1,024 such operations. If ranks differ in the n-th operation, it fails
 * with RONDA_ERROR_MISMATCH, and the text gives n and what two of the ranks have called.
 *
 * An operation is counted when it is submitted. A call whose arguments are refused is not counted, unless the program
 * counts it with ronda_refuse(). If a call failed with RONDA_ERROR_DEADLINE, because a rank was late, the next call
 * repeats the failed call and takes its number. Counting starts at the beginning, and again when all ranks of the set
 * have joined.
 *
 * Calls that several threads of a rank make in the same process set at the same time have no order. So either one
 * thread makes them, or each thread has its own process set. Two equal operations that follow each other may run one
 * after the other instead of together. Sends and receives have their own order. Groups, sparse tensors and error
 * feedback need names. If the set has an open lane, the lane's calls are counted apart from the others, and lanes.h
 * says how they fail.
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

/* The fields that the arguments of all operations share. This struct cannot grow any more, because some argument
 * structs have fields after it. */
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
 * The result of reducescatter, allgather, gather, scatter and alltoall may have another size than the input. Without an
 * `output` Ronda allocates the result, which belongs to the handle. If `output` is given, the rows go straight there,
 * in the memory that call.memory names, and they stay when the handle is given back. In both cases ronda_output()
 * returns where the result is and how many rows it has. `output` must not overlap the input. A rank may give an
 * `output` even if other ranks do not.
 *
 * If the result has more than `output_bytes` bytes, the operation runs, and then fails on this rank with
 * RONDA_ERROR_INVALID_ARGUMENT and a text that names both sizes. The rank writes nothing to `output`. The other ranks
 * have their results. */

/* Reduces over all ranks; every rank gets the result. */
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

/* As allreduce, but only `root` gets the result. */
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

/* As allreduce, but each member gets only some rows of the result. With n rows and m members each member gets n / m
 * rows, and the first n % m members get one more. ndim >= 1. Ronda owns the output: see ronda_output(). */
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

/* Concatenates along the first dimension, which may differ between ranks. ndim >= 1. */
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

/* As allgather, but only `root` gets the result. */
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

/* Distributes the rows of root's tensor to the members. ndim >= 1. The other ranks pass the same dtype and dimensions;
 * their first dimension is ignored. */
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

/* Sends rows of the first dimension to every member, and receives the members' rows in the order of the members. ndim
 * >= 1. The first dimension may differ between ranks. */
typedef struct ronda_alltoall_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  const int64_t* splits; /* rows for each member; NULL: equally many, which must divide the first dimension */
  int split_count;       /* entries of splits */
  ronda_call_options call;
  void* output;        /* NULL: Ronda owns the output; else see "Outputs in the caller's memory" */
  size_t output_bytes; /* room at output */
} ronda_alltoall_args;
#define RONDA_ALLTOALL_ARGS_INIT \
  { sizeof(ronda_alltoall_args), RONDA_TENSOR_INIT, NULL, NULL, 0, RONDA_CALL_OPTIONS_INIT, NULL, 0 }

/* Sends a tensor from one rank to another. The n-th send from rank a to rank b with a tag meets rank b's n-th receive
 * from rank a with that tag. Up to 64 sends from a to b with a tag may be in flight. tensor.name is ignored.
 *
 * A receive from RONDA_ANY_SOURCE takes the first message with its tag that arrives from any rank of the process set
 * and that no earlier receive takes. From then on Ronda treats it as a receive from the message's rank, which
 * ronda_source() returns. Until this receive has ended, later receives with the tag, from a given rank or from any
 * rank, also take their messages in the order of the calls. */
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

/* Bytes in host memory, as many as each rank likes. Ronda owns the output: see ronda_output(); a row is a byte. */
typedef struct ronda_object_args {
  size_t struct_size;
  const char* name; /* as in ronda_tensor; NULL: matched by order, as tensors without a name */
  const void* data; /* broadcast: on root; ignored elsewhere */
  size_t size;
  int root; /* broadcast only */
  ronda_call_options call;
} ronda_object_args;
#define RONDA_OBJECT_ARGS_INIT \
  { sizeof(ronda_object_args), NULL, NULL, 0, 0, RONDA_CALL_OPTIONS_INIT }

/* A sum or average of tensors that are zero except for a few rows. Every rank gets the rows of all ranks, and their
 * indices. Several ranks may pass the same index; a caller that needs the dense tensor adds those rows. An average
 * divides by the same number as in an allreduce. Ronda owns the outputs. */
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

/* As the *_async functions, but these functions wait. They return RONDA_OK, or the error of the submission or of the
 * operation. They are faster for small tensors, because the calling thread carries out the operation itself, without a
 * handle. */
ronda_status ronda_allreduce(const ronda_allreduce_args* args);
/* Waits for at most `timeout_s` seconds (negative: without end). If the operation has not ended by then, the call
 * returns RONDA_OK, and `*handle` is its handle, in flight. Otherwise `*handle` becomes 0. */
ronda_status ronda_allreduce_for(const ronda_allreduce_args* args, double timeout_s, ronda_handle* handle);
ronda_status ronda_reduce(const ronda_reduce_args* args);
ronda_status ronda_broadcast(const ronda_broadcast_args* args);
ronda_status ronda_send(const ronda_send_args* args);
ronda_status ronda_recv(const ronda_recv_args* args);

/* Writes two handles: `*indices` for the gathered indices (int64), and `*values` for the gathered rows. */
ronda_status ronda_sparse_allreduce_async(const ronda_sparse_allreduce_args* args, ronda_handle* indices,
                                          ronda_handle* values);

/* `count` operations, `args[0]` to `args[count - 1]`, that run together. If one of them fails, none is carried out, and
 * each has the error of the first that failed. `group` names them, the same on every rank. Writes `count` handles, or
 * none if the call fails. */
ronda_status ronda_grouped_allreduce_async(const ronda_allreduce_args* args, size_t count, const char* group,
                                           ronda_handle* handles);
ronda_status ronda_grouped_allgather_async(const ronda_allgather_args* args, size_t count, const char* group,
                                           ronda_handle* handles);
ronda_status ronda_grouped_reducescatter_async(const ronda_reducescatter_args* args, size_t count, const char* group,
                                               ronda_handle* handles);

/* As ronda_grouped_allreduce_async(), but the call waits. */
ronda_status ronda_grouped_allreduce(const ronda_allreduce_args* args, size_t count, const char* group);

/* Says that this rank cannot take part in an operation, for instance because it has found its own arguments wrong. The
 * operation is the one on the tensor `name`. If `name` is NULL, it is the rank's next operation without a name in the
 * process set. Ronda treats the operation as called by this rank. Once all other ranks have called the operation, it
 * fails on them with RONDA_ERROR_MISMATCH. The text names this rank (the first, if several ranks refuse) and has the
 * first 1,024 bytes of `message`. Then the name is free again. The call waits for no rank. This rank learns nothing
 * more about the operation, unless the job ends. A call of an open lane is refused with ronda_lane_refuse() instead. */
ronda_status ronda_refuse(ronda_process_set process_set, const char* name, const char* message);

/* As ronda_refuse(), for the next message from rank `from` to rank `to` with this tag. One of these two ranks calls
 * this function. */
ronda_status ronda_refuse_message(ronda_process_set process_set, int from, int to, int tag, const char* message);

/* Blocks until every rank of the set has called the function. */
ronda_status ronda_barrier(ronda_process_set process_set);

/* As ronda_barrier() without blocking: the operation is complete when every rank of the set has submitted it. A rank's
 * n-th barrier of a set, in either form, meets the n-th of the other ranks. Up to 64 barriers of a set may be in
 * flight. */
ronda_status ronda_barrier_async(ronda_process_set process_set, ronda_handle* handle);

/* As ronda_barrier(), for at most `timeout_s` seconds (0 for the job's deadline, negative for no limit).
 * RONDA_ERROR_DEADLINE then names every rank that is missing. */
ronda_status ronda_monitored_barrier(ronda_process_set process_set, double timeout_s);

/* ronda_barrier_async() with the deadline of ronda_monitored_barrier(). If a rank does not want to wait, it passes a
 * millisecond. The error then names the ranks that have not submitted the barrier yet. */
ronda_status ronda_monitored_barrier_async(ronda_process_set process_set, double timeout_s, ronda_handle* handle);

/* ronda_remove_process_set() without blocking: the set is gone once every rank that must call it has called either
 * form. A program that does not need to know this moment gives the handle back. So each rank may end several sets in
 * its own order, and late. Ronda does not warn of a late rank, and ronda_shutdown() does not wait for a late rank. In
 * that case the handle has an error. */
ronda_status ronda_remove_process_set_async(ronda_process_set id, ronda_handle* handle);

/* Sets `bytes` bytes of a GPU's memory to zero, after the work that `stream` (a cudaStream_t) has been given so far.
 * Only the stream waits, not the calling thread. The function is for a rank that has nothing to add to a tensor, and so
 * submits zeros. */
ronda_status ronda_cuda_zero(void* data, size_t bytes, void* stream);

/* Says that this rank has no more data. Until every rank of the set has joined, the operations of the other ranks go on
 * without this rank, as far as they can. Operations that need this rank (for instance as their root) fail on the other
 * ranks with RONDA_ERROR_MISMATCH. Blocks until every rank has joined. Then all ranks take part again. `*last_rank`,
 * unless it is NULL, becomes the last rank that joined.
 */
ronda_status ronda_join(ronda_process_set process_set, ronda_absent absent, int* last_rank);
ronda_status ronda_join_async(ronda_process_set process_set, ronda_absent absent, ronda_handle* handle);

/* -- Handles -- */

/* *done becomes 1 if the operation has completed, with success or failure, else 0. */
ronda_status ronda_poll(ronda_handle handle, int* done);

/* Blocks until the operation has completed and returns its status. The handle stays valid. */
ronda_status ronda_synchronize(ronda_handle handle);

/* As ronda_synchronize(), for at most `timeout_s` seconds (negative: without end). *done becomes 1 if the operation has
 * completed; else 0, and the call returns RONDA_OK. A program that has to check something while it waits, for instance
 * signals, waits in slices; each slice costs about one wake-up. */
ronda_status ronda_synchronize_for(ronda_handle handle, double timeout_s, int* done);

/* Makes `stream` (a cudaStream_t) wait for an operation on GPU memory. Work that the stream is given from now on comes
 * after the operation, and may use the buffers again. The calling thread does not wait for the device's work. It waits
 * until all ranks have submitted the tensor and this rank's device has been given the operation's work. In a locked
 * schedule it does not wait for the other ranks. (If the tensor was submitted behind a result that the device does not
 * have yet, the device gets the tensor's work after that result.)
 *
 * The call returns errors that are known by then. Later errors fail the job; ronda_synchronize() and the next
 * submission return them. The stream does not go on then, because the result would be wrong, and the process has to end
 * (RONDA_FAILURE_GRACE). After RONDA_OK the handle may be given back without a wait. While it is kept, ronda_poll()
 * says whether the device has done the operation, and ronda_synchronize() how it ended. RONDA_ERROR_INVALID_ARGUMENT if
 * the stream is being captured into a graph.
 *
 * For operations on host memory the call waits as ronda_synchronize() does. In an elastic job the call waits in this
 * way for all operations, because the stream's next work must not change parameters if a rank has died. Such work is
 * for instance an optimizer's step. */
ronda_status ronda_synchronize_on_stream(ronda_handle handle, void* stream);

/* As ronda_synchronize_on_stream(), but the calling thread waits for at most `timeout_s` seconds (negative: without
 * end). The value of *done becomes 1 if the stream waits for the operation, or if the call returns an error; else 0,
 * and the call returns RONDA_OK. */
ronda_status ronda_synchronize_on_stream_for(ronda_handle handle, void* stream, double timeout_s, int* done);

/* As ronda_synchronize_on_stream() without blocking the host: `callback` is called once `stream` waits for the
 * operation, with RONDA_OK, or with the error that ronda_synchronize_on_stream() would have returned. Give the stream
 * its next work in the callback or later, and keep the stream until then. The callback runs as the callbacks of
 * ronda_on_completion() do. */
typedef void (*ronda_callback)(void* context, ronda_status status, const char* message);
ronda_status ronda_synchronize_on_stream_async(ronda_handle handle, void* stream, ronda_callback callback,
                                               void* context);

/* The result of a completed operation, by rows (units of the first dimension). `*data` holds `*rows` rows. It equals
 * `output` if the caller has passed an `output`. If `rows_per_member` is not NULL, `*rows_per_member` and `*members`
 * become an array and its length. For allgather (of tensors or objects), gather (on root) and alltoall the array says
 * how many of the rows came from each member of the process set; for other operations it is empty. All of this is valid
 * until ronda_release().
 *
 * An operation on GPU memory need not have completed. If ronda_synchronize_on_stream() has returned RONDA_OK for a
 * stream, later work on that stream finds the result at `*data`. The stream must live until ronda_release(), because
 * Ronda uses the memory again once the device has done the work that the stream has been given until then. Work of
 * other streams has to be done before ronda_release(), but not before ronda_release_on_stream(). */
ronda_status ronda_output(ronda_handle handle, const void** data, int64_t* rows, const int64_t** rows_per_member,
                          int* members);

/* *found becomes 1 if the result of a completed reduction, on any rank, has an element that is infinite or not a
 * number, else 0. The answer is the same on every rank. It is 0 for operations without detect_overflow, because their
 * results are not searched. */
ronda_status ronda_found_inf(ronda_handle handle, int* found);

/* Writes the rank that sent the tensor. The handle is that of a ronda_send_async() or ronda_recv_async() which has
 * completed, or which is on GPU memory and has a stream that waits for it. */
ronda_status ronda_source(ronda_handle handle, int* rank);

/* Writes the number by which an average of the gathered rows divides. It is the number of ranks that took part, plus
 * the ranks that have joined and are counted as zeros. The handle is that of an allgather, or of the indices or the
 * values of a sparse allreduce. The operation has completed, or it is on GPU memory and a stream waits for it. */
ronda_status ronda_averaged_over(ronda_handle handle, int* ranks);

/* The last rank that joined, for a completed ronda_join_async(). */
ronda_status ronda_last_rank(ronda_handle handle, int* last_rank);

/* Calls `callback` once when the operation has completed, or at once if it has already. The callback gets the
 * operation's status and, after an error, its text. It runs on a thread of Ronda that does nothing else, and acts for
 * the same rank as the calling thread. It may submit operations. If it waits, later callbacks are delayed. */
ronda_status ronda_on_completion(ronda_handle handle, ronda_callback callback, void* context);

/* Gives the handle back. First waits for the operation if it is in flight and no stream waits for it. */
ronda_status ronda_release(ronda_handle handle);

/* As ronda_release(), if work that `stream` (a cudaStream_t) has been given so far still uses an output that Ronda
 * owns, in a GPU's memory. Ronda uses that memory again once the device has done this work. No thread waits for it.
 * After an error the handle is still valid. RONDA_ERROR_INVALID_ARGUMENT if the stream is being captured into a
 * graph. */
ronda_status ronda_release_on_stream(ronda_handle handle, void* stream);

/* The following functions are for all handles of a step, `handles[0]` to `handles[count - 1]`.
 *
 * *done becomes 1 if all operations have completed, with success or failure, else 0. */
ronda_status ronda_poll_all(const ronda_handle* handles, size_t count, int* done);

/* Blocks until all operations have completed, also after an error. Returns the first error in the order of the array;
 * an unknown handle is also an error. The handles stay valid. */
ronda_status ronda_synchronize_all(const ronda_handle* handles, size_t count);

/* Calls ronda_release() for each handle. An unknown handle is an error, but the other handles are given back all the
 * same. */
ronda_status ronda_release_all(const ronda_handle* handles, size_t count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RONDA_OPERATIONS_H_ */
