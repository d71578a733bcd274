/* SPDX-License-Identifier: Apache-2.0 */

/* Lanes, which run operations on GPUs in the order of the calls. This header is part of ronda.h; read ronda.h first.
 *
 * By default, the ranks negotiate each operation before it runs on the GPUs. A program in which all ranks make the same
 * calls in the same order, as torch.distributed requires, can use a lane instead. Once a process set has a lane, its
 * unnamed operations on GPU memory (tensor.name is NULL) use the lane. For such an operation, the calling thread itself
 * calls NCCL on the caller's buffers, within the call that submits the operation. The call waits for other ranks only
 * for the first operation of each kind, when NCCL connects the ranks. Handles work as for other operations.
 *
 * A lane runs allreduces, reduces, broadcasts, and allgathers and reducescatters of equal parts into the caller's
 * memory, if NCCL supports the type and the operator. Gathers, scatters and alltoalls use the lane if they are
 * submitted with ronda_lane_exchange_async(). Other unnamed operations on GPU memory bypass the lane: the ranks
 * negotiate them, in the order of the calls. The lane's next call then waits until all ranks have submitted these
 * operations. Sends and receives never use the lane.
 *
 * Each rank numbers its calls of a lane. If the ranks' n-th calls differ, the result is undefined, or the GPUs wait for
 * each other. If a GPU waits, Ronda detects the difference and fails the job with RONDA_ERROR_PEER_FAILED. The error
 * text names the number of the call, and the operations that two of the ranks called.
 *
 * If call.stream is being captured into a CUDA graph, the operation becomes part of the graph. All ranks of the set
 * must capture the same operations in the same order, and launch the graph the same number of times. The operation
 * counts as complete immediately. Before the capture ends, a stream of the capture must be made to wait for the
 * operation with ronda_synchronize_on_stream(). Other streams cannot wait for it. Destroy the graph before the lane is
 * closed.
 *
 * Each lane has its own NCCL communicator and its own stream. A GPU may run the operations of two lanes, or of a lane
 * and the negotiated operations, in any order. Using two lanes at the same time, or a lane and negotiated operations,
 * is therefore like using two NCCL communicators. Either the program's streams must wait for the first operation before
 * the second begins, or the GPU must have room for both at once. */
#ifndef RONDA_LANES_H_
#define RONDA_LANES_H_

#include "../ronda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the lane of a process set, unless it is already open. All ranks of the set must call the function at the same
 * point in the set's sequence of operations. All ranks get the same value of `*open`. `*open` becomes 1 if the lane is
 * open. It becomes 0 if the ranks' GPUs do not communicate over NCCL (RONDA_DEVICE_BACKEND), or if a rank cannot use
 * its GPU. In that case the first rank of the set logs the reason, and all operations are negotiated as without a lane.
 * `buffer` is an address in the memory of this rank's GPU, or NULL. Blocks until all ranks of the set have called the
 * function. Errors: the errors of an operation; RONDA_ERROR_INVALID_ARGUMENT (this rank is not in the set). */
ronda_status ronda_lane_open(ronda_process_set process_set, const void* buffer, int* open);

/* Closes the lane, if it is open. All ranks of the set must call the function at the same point in the set's sequence
 * of operations. Waits until the GPU has completed the lane's calls, and then at most a few seconds for the other
 * ranks. Does not wait for launches of CUDA graphs that contain calls of the lane, so wait for these launches and
 * destroy the graphs before this call. ronda_shutdown() closes all lanes. */
ronda_status ronda_lane_close(ronda_process_set process_set);

/* Like ronda_lane_close(), but returns immediately, and a Ronda thread closes the lane. Can be called by finalizers,
 * which may run at any point of the program. */
ronda_status ronda_lane_retire(ronda_process_set process_set);

/* Sets `*reduces` to 1 if the set has an open lane that runs allreduces, reduces and reducescatters of this type, with
 * this operator and this input factor (1: none); else to 0. A rank that finds its own arguments invalid calls
 * ronda_lane_refuse() if `*reduces` is 1, and ronda_refuse() otherwise.
 * Errors: RONDA_ERROR_INVALID_ARGUMENT. */
ronda_status ronda_lane_reduces(ronda_process_set process_set, ronda_dtype dtype, ronda_reduce_op op, double factor,
                                int* reduces);

/* Announces that this rank will not make its next call of the open lane. If another rank makes that call, the job fails
 * on that rank; the error contains the first 60 bytes of `message`, which must be a single line. On a rank on another
 * host, the call may instead fail at its deadline, without the message. If another thread is in a call of the lane,
 * ronda_lane_refuse() waits until that call has enqueued its work on the GPU. It waits for other ranks only if that
 * call must first connect the ranks.
 * Errors: RONDA_ERROR_INVALID_ARGUMENT (the set has no open lane). */
ronda_status ronda_lane_refuse(ronda_process_set process_set, const char* message);

/* The operations that ronda_lane_exchange_async() submits. */
typedef enum ronda_lane_exchange {
  RONDA_LANE_ALLTOALL = 0,
  RONDA_LANE_GATHER = 1,
  RONDA_LANE_SCATTER = 2
} ronda_lane_exchange;

/* The elements that a rank sends to, or receives from, another rank. */
typedef struct ronda_lane_part {
  void* data;    /* may be NULL if count is 0; a part that is sent is only read */
  int64_t count; /* elements */
} ronda_lane_part;

typedef struct ronda_lane_exchange_args {
  size_t struct_size;
  ronda_dtype dtype;
  ronda_lane_exchange op;
  int root;                        /* of a gather or a scatter; else ignored */
  const ronda_lane_part* sends;    /* a part for each rank of the process set, in the order of the ranks */
  const ronda_lane_part* receives; /* as sends */
  int part_count;                  /* entries of sends, and of receives */
  ronda_call_options call;         /* memory is RONDA_MEMORY_CUDA */
} ronda_lane_exchange_args;
#define RONDA_LANE_EXCHANGE_ARGS_INIT \
  { sizeof(ronda_lane_exchange_args), RONDA_FLOAT32, RONDA_LANE_ALLTOALL, 0, NULL, NULL, 0, RONDA_CALL_OPTIONS_INIT }

/* Submits a gather, scatter or alltoall to the open lane. Each rank knows how many elements it sends to and receives
 * from every rank, so the ranks exchange no sizes. The count that rank a passes in `sends` for rank b must equal the
 * count that rank b passes in `receives` for rank a. Between ranks that exchange nothing, parts have 0 elements. In a
 * gather only the root receives, and in a scatter only the root sends. The part that a rank sends to itself may be the
 * same memory in `sends` and `receives`. Otherwise, received parts must not overlap any other part. The arrays need to
 * exist only during the call. ronda_output() returns no rows for this operation.
 *
 * If two ranks pass different counts, the result is undefined. On each host, Ronda compares the counts of the host's
 * ranks. If they differ, the job fails with RONDA_ERROR_PEER_FAILED while a GPU waits, or soon after the GPU has
 * completed the call. In the second case, Ronda misses the difference if one of the ranks has meanwhile made at least
 * about 100 other calls. If the counts differ from member to member, this limit is lower in large groups: about 20
 * calls among 64 ranks.
 * Errors: the errors of an operation; RONDA_ERROR_INVALID_ARGUMENT (the set has no open lane). */
ronda_status ronda_lane_exchange_async(const ronda_lane_exchange_args* args, ronda_handle* handle);

/* -- The memory of a lane --
 *
 * With RONDA_LANE_MEMORY_MB on the first rank of the process set, each rank of the set allocates that many MiB on its
 * GPU when the lane opens, and all ranks of the lane register this memory with NCCL together. NCCL can use such memory
 * directly. From 2.28.7 on, NCCL has special kernels for it, and copies without kernels. The ranks must be on one host.
 *
 * NCCL needs each buffer of a call to be in this memory on all ranks or on none, at the same place on all ranks. The
 * place depends only on the sequence of a rank's calls of ronda_lane_allocate() and ronda_lane_free(), so all ranks
 * must make these calls in the same order. The input of an allgather and the output of a reducescatter may have
 * different places. What a rank sends from this memory in an exchange, the other rank must receive in its own. If a
 * call differs, the job fails with RONDA_ERROR_PEER_FAILED, at the latest soon after the GPU has carried out the call.
 * The text names both calls. */

/* Sets `*bytes` to the size of the lane's memory; to 0 if the set has no open lane, or if the lane has no memory. */
ronda_status ronda_lane_memory(ronda_process_set process_set, size_t* bytes);

/* Sets `*memory` to a block of at least `bytes` bytes in the lane's memory, aligned to 512 bytes, for work on `stream`
 * (a cudaStream_t). Other streams may use the block after the work that `stream` has now.
 * Errors: RONDA_ERROR_INVALID_ARGUMENT (the lane is not open or has no memory; `stream` is being captured);
 * RONDA_ERROR_OUT_OF_MEMORY (the text has the sizes). */
ronda_status ronda_lane_allocate(ronda_process_set process_set, size_t bytes, void* stream, void** memory);

/* Frees a block of ronda_lane_allocate() or ronda_gradient_allocate(). The work that is now on `stream` may still use
 * the block; no other work may. Works after ronda_lane_close() and ronda_shutdown(), too: until then the block is
 * valid, but NCCL takes it for other memory. The lane's memory is freed with its last block. Errors:
 * RONDA_ERROR_INVALID_ARGUMENT (no block begins at `memory`; `stream` is being captured). */
ronda_status ronda_lane_free(void* memory, void* stream);

/* Functions as an allocator of PyTorch needs them (torch._C._cuda_customAllocator). They call ronda_lane_allocate(),
 * for the lane that the process set has at the time of the call, and ronda_lane_free(). The first function returns NULL
 * after an error, which ronda_last_error() describes, and also if `device` is not the lane's. The second function logs
 * an error. */
typedef void* (*ronda_lane_allocate_function)(size_t bytes, int device, void* stream);
typedef void (*ronda_lane_free_function)(void* memory, size_t bytes, int device, void* stream);

/* Returns the functions for the lane of a process set. They stay valid until the process ends.
 * Errors: RONDA_ERROR_INVALID_ARGUMENT (only the process sets 0 to 255 have such functions). */
ronda_status ronda_lane_allocator(ronda_process_set process_set, ronda_lane_allocate_function* allocate,
                                  ronda_lane_free_function* free);

/* -- The memory for gradients --
 *
 * With RONDA_GRADIENT_MEMORY_MB on rank 0, all ranks register that many MiB with NCCL together when the job's first
 * operation on GPU memory begins. This memory is for allreduces outside lanes, such as those of gradients. A bucket of
 * a locked schedule is reduced there, without a copy, if its tensors lie one after the other at the same place on all
 * ranks. The ranks compare the places, so each rank may allocate, free and move its tensors as it likes. A bucket at
 * different places is copied. */

/* Sets `*memory` to a block of at least `bytes` bytes in this memory, as ronda_lane_allocate(); ronda_lane_free() frees
 * it. Sets `*memory` to NULL if there is no such memory: because of the setting, because the GPUs do not communicate
 * over NCCL 2.19 or later, or because no operation on GPU memory has begun yet. Errors: RONDA_ERROR_INVALID_ARGUMENT
 * (`stream` is being captured); RONDA_ERROR_OUT_OF_MEMORY (the text has the sizes). */
ronda_status ronda_gradient_allocate(size_t bytes, void* stream, void** memory);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RONDA_LANES_H_ */
