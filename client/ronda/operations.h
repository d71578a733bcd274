/* Operations and their handles: part of ronda.h, which see. */
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
 * Operations on tensors without a name (NULL) match by their order, as in MPI: the n-th of each rank in a process set
 * meets the n-th of the other ranks, and is not told apart by time. A step that repeats itself is as fast as one with
 * names: at most 1,024 such operations are one step. Ranks that differ in the n-th operation get RONDA_ERROR_MISMATCH
 * from it, with n and what two of the ranks have called. These operations count:
 *  - those that were submitted: a call whose arguments are refused does not count, unless the program counts it with
 *    ronda_refuse(), and one that failed with RONDA_ERROR_DEADLINE, because a rank was late, is made good by the next
 *    one, which repeats it;
 *  - from the beginning, or from the last time that all ranks of the set had joined.
 * Threads of a rank that make them in the same process set at the same time have no order: one thread makes them, or
 * each thread has a process set of its own. Two that are alike and follow each other may run one after the other, not
 * together. Sends and receives have an order of their own. Groups, sparse tensors and error feedback need names. */
typedef struct ronda_tensor {
  const char* name; /* NULL, or UTF-8, not beginning with "ronda/"; unique among the tensors in flight; the same on
                       every rank */
  ronda_dtype dtype;
  int ndim;             /* 0: a scalar */
  const int64_t* shape; /* ndim dimensions, outermost first */
} ronda_tensor;
#define RONDA_TENSOR_INIT \
  { NULL, RONDA_FLOAT32, 0, NULL }

/* The part that the arguments of all operations share. Fields follow it in some of them, so it cannot grow any more. */
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

/* -- Outputs of the caller's --
 *
 * The result of reducescatter, allgather, gather, scatter and alltoall may be of another size than the input. Without
 * an `output` Ronda allocates it, with the handle: ronda_output() tells where it is and how many rows it has. With one
 * the rows go straight to `output`, in the memory that call.memory names, and ronda_output() tells the same of them;
 * they stay when the handle is given back. `output` must not overlap the input. Each rank chooses for itself.
 *
 * Where the result has more than `output_bytes` bytes the operation fails on this rank, once it has been carried out,
 * with RONDA_ERROR_INVALID_ARGUMENT and a text that names both sizes; nothing is written to `output`, and the other
 * ranks have their results. */

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
  void* output;        /* NULL: Ronda owns the output; else it goes here, see "Outputs of the caller's" */
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

/* Concatenates along the first dimension, which may differ between ranks; ndim >= 1. */
typedef struct ronda_allgather_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  ronda_call_options call;
  void* output;        /* NULL: Ronda owns the output; else it goes here, see "Outputs of the caller's" */
  size_t output_bytes; /* room at output */
} ronda_allgather_args;
#define RONDA_ALLGATHER_ARGS_INIT \
  { sizeof(ronda_allgather_args), RONDA_TENSOR_INIT, NULL, RONDA_CALL_OPTIONS_INIT, NULL, 0 }

/* The same; only `root` gets the result. */
typedef struct ronda_gather_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  int root;
  ronda_call_options call;
  void* output;        /* the same on root; not looked at elsewhere */
  size_t output_bytes; /* room at output */
} ronda_gather_args;
#define RONDA_GATHER_ARGS_INIT \
  { sizeof(ronda_gather_args), RONDA_TENSOR_INIT, NULL, 0, RONDA_CALL_OPTIONS_INIT, NULL, 0 }

/* Deals the rows of root's tensor out to the members; ndim >= 1. The other ranks pass the same dtype and dimensions;
 * their first dimension is not looked at. */
typedef struct ronda_scatter_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;     /* on root; not looked at elsewhere */
  const int64_t* splits; /* on root: rows for each member; NULL: as ronda_reducescatter_args deals them */
  int split_count;       /* entries of splits */
  int root;
  ronda_call_options call;
  void* output;        /* NULL: Ronda owns the output; else it goes here, see "Outputs of the caller's" */
  size_t output_bytes; /* room at output */
} ronda_scatter_args;
#define RONDA_SCATTER_ARGS_INIT \
  { sizeof(ronda_scatter_args), RONDA_TENSOR_INIT, NULL, NULL, 0, 0, RONDA_CALL_OPTIONS_INIT, NULL, 0 }

/* Sends rows of the first dimension to every member, and receives theirs in the order of the members; ndim >= 1. The
 * first dimension may differ between ranks. */
typedef struct ronda_alltoall_args {
  size_t struct_size;
  ronda_tensor tensor;
  const void* input;
  const int64_t* splits; /* rows for each member; NULL: the same for all, which must divide the first dimension */
  int split_count;       /* entries of splits */
  ronda_call_options call;
  void* output;        /* NULL: Ronda owns the output; else it goes here, see "Outputs of the caller's" */
  size_t output_bytes; /* room at output */
} ronda_alltoall_args;
#define RONDA_ALLTOALL_ARGS_INIT \
  { sizeof(ronda_alltoall_args), RONDA_TENSOR_INIT, NULL, NULL, 0, RONDA_CALL_OPTIONS_INIT, NULL, 0 }

/* One tensor from one rank to another. The n-th send from a to b with a tag meets the n-th receive on b from a with
 * that tag; up to 64 of them may be in flight. tensor.name is not looked at.
 *
 * A receive from RONDA_ANY_SOURCE takes the first message with its tag that arrives, from any rank of the process set,
 * and that no earlier receive takes; it counts as the receive from that rank, which ronda_source() tells. Receives with
 * the tag that follow it before it has ended, from one rank or any, take their messages in their order as well. */
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

/* Bytes, as many as each rank likes, in host memory. Ronda owns the output: see ronda_output(); a row is a byte. */
typedef struct ronda_object_args {
  size_t struct_size;
  const char* name; /* as ronda_tensor's; without one it is one of those operations */
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
/* It waits for `timeout_s` seconds at most (negative: without end). If the operation has not ended by then, the call
 * returns RONDA_OK and `*handle` is its handle, in flight; otherwise `*handle` becomes 0. */
ronda_status ronda_allreduce_for(const ronda_allreduce_args* args, double timeout_s, ronda_handle* handle);
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

/* This rank cannot take part in an operation, because it has found its own arguments wrong, for instance: in the
 * operation on the tensor `name`, or, if that is NULL, in its next one without a name in the process set. The operation
 * counts as made by this rank. Once all other ranks have made it, it fails there with RONDA_ERROR_MISMATCH and a text
 * that names this rank and has the first 1,024 bytes of `message`. If several ranks refuse, the first of them is named.
 * The name is free again then. Waits for no rank; nothing but the end of the job tells this rank more. */
ronda_status ronda_refuse(ronda_process_set process_set, const char* name, const char* message);

/* The same for the next message from rank `from` to rank `to` with this tag, which one of the two refuses. */
ronda_status ronda_refuse_message(ronda_process_set process_set, int from, int to, int tag, const char* message);

/* Blocks until every rank of the set has called it. */
ronda_status ronda_barrier(ronda_process_set process_set);

/* The same without blocking: the operation is complete when every rank of the set has submitted it. A rank's n-th
 * barrier of a set, in either form, meets the n-th of the others; up to 64 of a set may be in flight. */
ronda_status ronda_barrier_async(ronda_process_set process_set, ronda_handle* handle);

/* The same, for at most `timeout_s` seconds (0: the job's deadline; negative: for ever). RONDA_ERROR_DEADLINE then
 * names every rank that is missing. */
ronda_status ronda_monitored_barrier(ronda_process_set process_set, double timeout_s);

/* ronda_barrier_async() with the deadline of ronda_monitored_barrier(). A rank that does not want to wait gives it a
 * millisecond: the error then names the ranks that have not come by now. */
ronda_status ronda_monitored_barrier_async(ronda_process_set process_set, double timeout_s, ronda_handle* handle);

/* ronda_remove_process_set() without blocking: the set is gone when every rank that has to has called either form. A
 * program that does not want to know when gives the handle back: the ranks may then end several sets each in its own
 * order, and late. That a rank is late is not warned of, and ronda_shutdown() does not wait for it; the handle then has
 * an error. */
ronda_status ronda_remove_process_set_async(ronda_process_set id, ronda_handle* handle);

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

/* The same for `timeout_s` seconds at most (negative: without end). *done becomes 1 if the operation has completed;
 * else 0, and the call returns RONDA_OK. Programs that have something to look at while they wait, signals for instance,
 * wait in slices; each costs as much as one wake-up. */
ronda_status ronda_synchronize_for(ronda_handle handle, double timeout_s, int* done);

/* Makes `stream` (a cudaStream_t) wait for an operation on GPU memory: work that the stream is given from now on comes
 * after it, and there the buffers are the caller's again. The calling thread waits until all ranks have submitted the
 * tensor and the device has its work (in a locked schedule, until this rank's device has it), not for that work. (But a
 * tensor that was submitted behind a result which the device does not have yet is given to it after that.) Errors known
 * by then are returned. Later errors fail the job; ronda_synchronize() and the next submission return them. After
 * RONDA_OK the handle may be given back without any wait; while it is kept, ronda_poll() tells when the device has done
 * the operation, and ronda_synchronize() how it ended. RONDA_ERROR_INVALID_ARGUMENT if the stream is being captured
 * into a graph. Operations on host memory are waited for as by ronda_synchronize(). So are all in an elastic job: what
 * the stream is given next, an optimizer's step for instance, must not change parameters if a rank has died. */
ronda_status ronda_synchronize_on_stream(ronda_handle handle, void* stream);

/* The same, where the calling thread waits for `timeout_s` seconds at most (negative: without end). *done becomes 1 if
 * the stream waits for the operation, or there is an error; else 0, and the call returns RONDA_OK. */
ronda_status ronda_synchronize_on_stream_for(ronda_handle handle, void* stream, double timeout_s, int* done);

/* The same without blocking the host: `callback` is called once `stream` waits for the operation, with RONDA_OK, or
 * with the error that ronda_synchronize_on_stream() would have returned. The stream's next work is given to it in the
 * callback or after that; the stream lives until then. The callback runs as those of ronda_on_completion() do. */
typedef void (*ronda_callback)(void* context, ronda_status status, const char* message);
ronda_status ronda_synchronize_on_stream_async(ronda_handle handle, void* stream, ronda_callback callback,
                                               void* context);

/* The result of a completed operation by rows: `*data`, which is `output` if that was passed, holds `*rows` rows: units
 * of the first dimension. If `rows_per_member` is not NULL, `*rows_per_member` and `*members` become an array and its
 * length: for allgather (of tensors or objects), gather (on root) and alltoall how many of the rows came from each
 * member of the process set; for other operations it is empty. All is valid until ronda_release().
 *
 * Of an operation on GPU memory `*data` is there, and the operation need not have completed: work on a stream for which
 * ronda_synchronize_on_stream() has returned RONDA_OK finds the result. Such a stream lives until ronda_release(): the
 * memory is used again once the device has done the work that the stream has been given by then. Work of other streams
 * has to be done before ronda_release(), but not before ronda_release_on_stream(). */
ronda_status ronda_output(ronda_handle handle, const void** data, int64_t* rows, const int64_t** rows_per_member,
                          int* members);

/* Whether the result of a completed reduction has an element that is infinite or not a number, on any rank: the same
 * answer on every rank. For operations submitted with detect_overflow; 0 for others, which are not searched. */
ronda_status ronda_found_inf(ronda_handle handle, int* found);

/* The rank that has sent the tensor, of a completed ronda_send_async() or ronda_recv_async(), or of one on GPU memory
 * that a stream waits for. */
ronda_status ronda_source(ronda_handle handle, int* rank);

/* By how many ranks an average of the gathered rows divides: those that took part, and those that have joined to be
 * counted as zeros. Of an allgather, also the indices and the values of a sparse allreduce, that is complete, or on GPU
 * memory that a stream waits for. */
ronda_status ronda_averaged_over(ronda_handle handle, int* ranks);

/* The last rank to join, of a completed ronda_join_async(). */
ronda_status ronda_last_rank(ronda_handle handle, int* last_rank);

/* Has `callback` called once, with the operation's status and, if that is an error, its text, when it has completed; at
 * once if it has. It runs on a thread of Ronda's that serves nothing else, and acts for the same rank as the calling
 * thread; it may submit, but if it waits, the callbacks after it are delayed. */
ronda_status ronda_on_completion(ronda_handle handle, ronda_callback callback, void* context);

/* Gives the handle back; waits for the operation first if it is still in flight and no stream waits for it. */
ronda_status ronda_release(ronda_handle handle);

/* The same where work that `stream` (a cudaStream_t) has been given so far still uses an output that Ronda owns, in a
 * GPU's memory: that memory is used again once the device has done this work. No thread waits for it. After an error
 * the handle is still valid; RONDA_ERROR_INVALID_ARGUMENT if the stream is being captured into a graph. */
ronda_status ronda_release_on_stream(ronda_handle handle, void* stream);

/* One call for the handles of a step, `handles[0]` to `handles[count - 1]`.
 *
 * *done becomes 1 if all operations have completed, in success or failure, else 0. */
ronda_status ronda_poll_all(const ronda_handle* handles, size_t count, int* done);

/* Blocks until all operations have completed, also after the first error, which it returns. First in the order of the
 * array; an unknown handle is an error, too. The handles stay valid. */
ronda_status ronda_synchronize_all(const ronda_handle* handles, size_t count);

/* ronda_release() of each. A handle that is unknown is an error, after which the others are given back all the same. */
ronda_status ronda_release_all(const ronda_handle* handles, size_t count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RONDA_OPERATIONS_H_ */
