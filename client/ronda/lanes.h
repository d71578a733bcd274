/* SPDX-License-Identifier: Apache-2.0 */

/* Lanes: operations on GPUs in the order of the calls. This header is part of ronda.h; read that first.
 *
 * By default the ranks agree on each operation before the GPUs get it. A program in which all ranks make the same calls
 * in the same order, as torch.distributed demands it, needs no agreement. Once a process set has a lane, its operations
 * on GPU memory without names (NULL) go over the lane. The call itself gives the operation to the GPU, by a call of
 * NCCL on the caller's buffers. The call waits for no other thread and for no rank, except for the first operation of a
 * kind, for which NCCL connects the ranks. Handles are the same as for other operations.
 *
 * A lane carries out allreduces, broadcasts, allgathers of equal parts into the caller's memory, and reducescatters of
 * equal parts into the caller's memory, where NCCL has the type and the operator. For other operations on GPU memory
 * without names, the ranks agree as without a lane, in the order of the calls. The next call of the lane then waits
 * until all ranks have submitted these operations. Sends and receives have their own order.
 *
 * The ranks' calls are numbered. If the ranks differ in a call, its result is undefined, or the GPUs wait for each
 * other. Ronda finds this while a GPU waits, and fails the job with RONDA_ERROR_PEER_FAILED. The error text has the
 * number of the call, and what two ranks have called.
 *
 * Each lane has its own NCCL communicator and its own stream. A GPU may run the operations of two lanes, or of a lane
 * and of other operations, in any order. So a program may use two lanes, or a lane and other operations, at the same
 * time only as with NCCL itself. Either its streams wait for the one before it uses the other, or the GPU has room for
 * both. */
#ifndef RONDA_LANES_H_
#define RONDA_LANES_H_

#include "../ronda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the lane of a process set, unless it is open. All ranks of the set call the function at the same point of their
 * operations in the set, and get the same answer. `*open` becomes 1 if the lane is open. It becomes 0 if the ranks'
 * GPUs do not communicate over NCCL (RONDA_DEVICE_BACKEND), or if a rank cannot use its GPU. Then the set's first rank
 * logs the reason, and the ranks agree on all operations as without a lane. `buffer`, which may be NULL, is memory of
 * this rank's GPU. Blocks until all ranks of the set have called the function. Errors: the errors of an operation;
 * RONDA_ERROR_INVALID_ARGUMENT (this rank is not in the set). */
ronda_status ronda_lane_open(ronda_process_set process_set, const void* buffer, int* open);

/* Closes the lane, if it is open. All ranks of the set call the function, at the same point of their operations in the
 * set. It waits until the GPU has carried out the lane's calls, and then waits a few seconds for the other ranks.
 * ronda_shutdown() closes all lanes. */
ronda_status ronda_lane_close(ronda_process_set process_set);

/* As ronda_lane_close(), but waits for nothing: a thread of Ronda closes the lane. For finalizers, which may run at any
 * point of the program. */
ronda_status ronda_lane_retire(ronda_process_set process_set);

/* Sets `*reduces` to 1 if the set has an open lane that carries allreduces and reducescatters of this type, with this
 * operator and this factor of the input (1: none); else to 0. From the answer, a rank whose own arguments are wrong
 * knows whether it must call ronda_lane_refuse() or ronda_refuse().
 * Errors: RONDA_ERROR_INVALID_ARGUMENT. */
ronda_status ronda_lane_reduces(ronda_process_set process_set, ronda_dtype dtype, ronda_reduce_op op, double factor,
                                int* reduces);

/* This rank will not make its next call of the open lane. If another rank makes that call, the job fails there, with
 * the first 60 bytes of `message`, which is one line. On other hosts the call may instead fail at its deadline, without
 * the message. If another thread is in a call of the lane, ronda_lane_refuse() waits until the GPU has that call. It
 * waits for other ranks only if that call must connect the ranks first.
 * Errors: RONDA_ERROR_INVALID_ARGUMENT (the set has no open lane). */
ronda_status ronda_lane_refuse(ronda_process_set process_set, const char* message);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RONDA_LANES_H_ */
