/* SPDX-License-Identifier: Apache-2.0 */

/* Lanes, which run operations on GPUs in the order of the calls. This header is part of ronda.h; read that first.
 *
 * By default the ranks agree on each operation before the GPUs get it. A program in which all ranks make the same calls
 * in the same order, as torch.distributed demands, can use a lane instead. Once a process set has a lane, its
 * operations on GPU memory without names (NULL) use the lane. In the call that submits such an operation, the calling
 * thread itself calls NCCL on the caller's buffers. The call waits for other ranks only at the first operation of each
 * kind, for which NCCL connects the ranks. Handles are the same as for other operations.
 *
 * A lane carries out allreduces, reduces, broadcasts, allgathers of equal parts into the caller's memory, and
 * reducescatters of equal parts into the caller's memory, if NCCL supports the type and the operator. Gathers, scatters
 * and alltoalls use the lane if the program submits them with ronda_lane_exchange_async(). Other operations on GPU
 * memory without names do not use the lane: the ranks agree on them, in the order of the calls. The next call of the
 * lane then waits until all ranks have submitted these other operations. Sends and receives never use the lane.
 *
 * Each rank numbers its calls of a lane. If the ranks' n-th calls differ, the result of the call is undefined, or the
 * GPUs wait for each other. If a GPU waits, Ronda finds the difference and fails the job with RONDA_ERROR_PEER_FAILED.
 * The error text has the number of the call, and the operations that two of the ranks have called.
 *
 * If call.stream is being captured into a CUDA graph, the operation becomes part of the graph. All ranks of the set
 * must capture the same operations in the same order, and launch the graph equally often. The operation counts as
 * complete at once. A stream of the capture waits for it by ronda_synchronize_on_stream() before the capture ends.
 * Other streams cannot wait for it. Destroy the graph before the lane is closed.
 *
 * Each lane has its own NCCL communicator and its own stream. A GPU may run the operations of two lanes, or of a lane
 * and of other operations, in any order. So a program may use two lanes, or a lane and other operations, at the same
 * time only as it may use two NCCL communicators: either its streams wait for the first operation before the second
 * begins, or the GPU has room for both at once. */
#ifndef RONDA_LANES_H_
#define RONDA_LANES_H_

#include "../ronda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the lane of a process set, unless it is already open. All ranks of the set must call the function between the
 * same two operations in the set. All ranks get the same value of `*open`. `*open` becomes 1 if the lane is open.
 * `*open` becomes 0 if the ranks' GPUs do not communicate over NCCL (RONDA_DEVICE_BACKEND), or if a rank cannot use its
 * GPU. In this case the set's first rank logs the reason, and the ranks agree on all operations as without a lane.
 * `buffer` is an address in the memory of this rank's GPU, or NULL. Blocks until all ranks of the set have called the
 * function. Errors: the errors of an operation; RONDA_ERROR_INVALID_ARGUMENT (this rank is not in the set). */
ronda_status ronda_lane_open(ronda_process_set process_set, const void* buffer, int* open);

/* Closes the lane, if it is open. All ranks of the set must call the function between the same two operations in the
 * set. The call waits until the GPU has carried out the lane's calls, and then waits a few seconds for the other ranks.
 * It does not wait for launches of CUDA graphs that contain calls of the lane. So wait for these launches, and destroy
 * the graphs, before the call. ronda_shutdown() closes all lanes. */
ronda_status ronda_lane_close(ronda_process_set process_set);

/* As ronda_lane_close(), but returns at once, and a thread of Ronda closes the lane. Finalizers, which may run at any
 * point of the program, can call this function. */
ronda_status ronda_lane_retire(ronda_process_set process_set);

/* Sets `*reduces` to 1 if the set has an open lane that carries allreduces, reduces and reducescatters of this type,
 * with this operator and this factor of the input (1: none); else to 0. A rank whose own arguments are wrong calls
 * ronda_lane_refuse() if `*reduces` is 1, and else ronda_refuse().
 * Errors: RONDA_ERROR_INVALID_ARGUMENT. */
ronda_status ronda_lane_reduces(ronda_process_set process_set, ronda_dtype dtype, ronda_reduce_op op, double factor,
                                int* reduces);

/* Says that this rank will not make its next call of the open lane. If another rank makes that call, the job fails on
 * that rank, with the first 60 bytes of `message`, a single line. If that rank is on another host, the call may instead
 * fail at its deadline, without the message. If another thread is in a call of the lane, ronda_lane_refuse() waits
 * until that call has been given to the GPU. ronda_lane_refuse() waits for other ranks only if that call must first
 * connect the ranks.
 * Errors: RONDA_ERROR_INVALID_ARGUMENT (the set has no open lane). */
ronda_status ronda_lane_refuse(ronda_process_set process_set, const char* message);

/* The operations that ronda_lane_exchange_async() submits. */
typedef enum ronda_lane_exchange {
  RONDA_LANE_ALLTOALL = 0,
  RONDA_LANE_GATHER = 1,
  RONDA_LANE_SCATTER = 2
} ronda_lane_exchange;

/* Elements that a rank sends to another rank, or receives from it. */
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

/* Submits a gather, a scatter or an alltoall to the open lane. Each rank knows all numbers of elements that it sends
 * and receives, so the ranks exchange no sizes. The count that rank a passes for b in `sends` must equal the count that
 * rank b passes for a in `receives`. Ranks that exchange nothing have parts of 0 elements. In a gather only the root
 * receives, and in a scatter only the root sends. The part of a rank for itself may be the same memory in `sends` and
 * `receives`. Otherwise the received parts overlap no other part. The arrays need to exist only during the call.
 * ronda_output() has no rows for this operation.
 *
 * If the counts of two ranks differ, the result is undefined. On each host Ronda compares the counts of its ranks. The
 * job fails with RONDA_ERROR_PEER_FAILED if a GPU waits, or soon after the GPU has carried out the call. In the second
 * case Ronda does not find the difference if one of the ranks has meanwhile made about 100 other calls or more. With
 * different counts for each member, this limit is lower in large groups: about 20 calls among 64 ranks.
 * Errors: the errors of an operation; RONDA_ERROR_INVALID_ARGUMENT (the set has no open lane). */
ronda_status ronda_lane_exchange_async(const ronda_lane_exchange_args* args, ronda_handle* handle);

/* -- The memory of a lane --
 *
 * With RONDA_LANE_MEMORY_MB on rank 0, each rank allocates that many MiB on its GPU when a lane opens, and all ranks of
 * the lane register this memory with NCCL together. NCCL can use such memory directly. From 2.28.7 on, NCCL has special
 * kernels for it, and copies without kernels. The ranks must be on one host.
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
 * Errors: RONDA_ERROR_INVALID_ARGUMENT (the lane is not open or has no memory; the text says why);
 * RONDA_ERROR_OUT_OF_MEMORY (the text has the sizes). */
ronda_status ronda_lane_allocate(ronda_process_set process_set, size_t bytes, void* stream, void** memory);

/* Frees a block of ronda_lane_allocate(). The work that is now on `stream` may still use the block; no other work may.
 * Works after ronda_lane_close() and ronda_shutdown(), too: until then the block is valid, but NCCL takes it for other
 * memory. The lane's memory is freed with its last block.
 * Errors: RONDA_ERROR_INVALID_ARGUMENT (no block begins at `memory`; `stream` is being captured). */
ronda_status ronda_lane_free(void* memory, void* stream);

/* Functions as an allocator of PyTorch needs them (torch._C._cuda_customAllocator). They call ronda_lane_allocate(),
 * for the lane that the process set has at the time of the call, and ronda_lane_free(). The first function returns NULL
 * after an error, which ronda_last_error() describes, and also if `device` is not the lane's. */
typedef void* (*ronda_lane_allocate_function)(size_t bytes, int device, void* stream);
typedef void (*ronda_lane_free_function)(void* memory, size_t bytes, int device, void* stream);

/* Returns the functions for the lane of a process set. They stay valid until the process ends.
 * Errors: RONDA_ERROR_INVALID_ARGUMENT (only the process sets 0 to 255 have such functions). */
ronda_status ronda_lane_allocator(ronda_process_set process_set, ronda_lane_allocate_function* allocate,
                                  ronda_lane_free_function* free);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RONDA_LANES_H_ */
