/* SPDX-License-Identifier: Apache-2.0 */

/* Prepared groups: the allreduces of a step that repeats. This header is part of ronda.h; read ronda.h first.
 *
 * Ronda checks and copies the arguments of a group only once. In each step the program announces every member as soon
 * as its input is complete, from any thread and in any order. One call waits for all members:
 *
 *   ronda_prepare_group(args, 100, "gradients", &group);
 *
 *   ronda_group_ready(group, i);   in each step, as soon as gradient i is there; returns at once
 *   ronda_group_wait(group);       the gradients are reduced, and the next step may begin
 *
 *   ronda_group_release(group);
 *
 * Members stay independent tensors, so Ronda can reduce some of them while the program still computes others. In
 * contrast, ronda_grouped_allreduce() runs its tensors together. Other ranks may submit the same tensors without a
 * prepared group.
 *
 * Neighbours in the array are submitted together: up to 32 members with at most 1 MiB in all or, in GPU memory, up to
 * 256 members with at most 25 MiB in all. The call that announces the last of them submits them. All other calls of
 * ronda_group_ready() only perform a few atomic operations, without locks or system calls. For speed, list the members
 * in the order in which they become ready, or in the reverse order, or let the group learn the order in its first step
 * (ronda_group_learn_order). */
#ifndef RONDA_GROUPS_H_
#define RONDA_GROUPS_H_

#include <stddef.h>
#include <stdint.h>

#include "../ronda.h"
#include "operations.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ronda_prepared_group* ronda_group; /* valid until ronda_group_release() */

/* Prepares `count` allreduces, `args[0]` to `args[count - 1]`, all with different names. `name` is used in error
 * messages. Ronda copies the arguments, but not the tensor elements. The members' buffers belong to the caller, and
 * stay the same in every step unless ronda_group_ready_at() changes one. A member whose `input` and `output` are both
 * NULL gets its buffer from ronda_group_ready_at(). With RONDA_MEMORY_CUDA, a member may be announced once the work
 * that fills its input has been enqueued on its stream. The group belongs to the calling thread's rank, and can be used
 * until that rank's job ends. */
ronda_status ronda_prepare_group(const ronda_allreduce_args* args, size_t count, const char* name, ronda_group* group);

/* Lets the group learn the order of its members. Until a step has announced all members, each member is submitted by
 * the call that announces it, or together with its tensor group. In later steps, members that were announced one after
 * the other in that step are neighbours. Call this function between steps. */
ronda_status ronda_group_learn_order(ronda_group group);

/* Combines `count` members into a tensor group with this name, like ronda_grouped_allreduce(): the tensor group runs as
 * a whole or not at all. The other ranks must have the same tensor group. `members` are indices into the array passed
 * to ronda_prepare_group(); these members must belong to one process set. A member can be in at most one tensor group.
 * Call this function between steps. */
ronda_status ronda_group_combine(ronda_group group, const size_t* members, size_t count, const char* name);

/* Sets *current to 1 if the group was prepared for the current job of the calling thread's rank, else to 0. If *current
 * is 0, prepare the group again. */
ronda_status ronda_group_is_current(ronda_group group, int* current);

/* Announces that the input of member `index` is complete. From this call until ronda_group_wait(), the input belongs to
 * Ronda. Returns RONDA_ERROR_INVALID_ARGUMENT if the member has already been announced in this step. If the submission
 * fails, the error may be about a neighbour of the member; ronda_group_wait() returns the error again. */
ronda_status ronda_group_ready(ronda_group group, size_t index);

/* Like ronda_group_ready(), for a member whose buffer has moved to `data`. The member is reduced in place there, in
 * this step and until a later call moves it again. Dtype, shape, memory and stream stay the same. Also returns
 * RONDA_ERROR_INVALID_ARGUMENT if `data` is NULL and the member has elements. */
ronda_status ronda_group_ready_at(ronda_group group, size_t index, void* data);

/* Like ronda_group_ready_at(), for a member in GPU memory that may have been filled on a different stream. The work
 * that fills the buffer must have been enqueued on `stream` (a cudaStream_t; NULL: the default stream). `stream`
 * becomes the member's stream for this and later steps. Also returns RONDA_ERROR_INVALID_ARGUMENT if `stream` is not
 * NULL and the member is in host memory. */
ronda_status ronda_group_ready_on_stream(ronda_group group, size_t index, void* data, void* stream);

/* Blocks until all members are reduced, and begins the next step. Call ronda_group_wait() after all ronda_group_ready()
 * calls of the step have returned. After all members have ended, returns the first error in array order. If a member
 * has not been announced, changes nothing and returns RONDA_ERROR_INVALID_ARGUMENT with the member's name in the text;
 * announce the member and wait again. */
ronda_status ronda_group_wait(ronda_group group);

/* Like ronda_group_wait(), but waits for at most `timeout_s` seconds (negative: no limit). If the step has ended, sets
 * *done to 1 and returns the step's result. Otherwise sets *done to 0, changes nothing and returns RONDA_OK; wait
 * again. */
ronda_status ronda_group_wait_for(ronda_group group, double timeout_s, int* done);

/* Like ronda_group_wait(), for members in GPU memory: `stream` (a cudaStream_t) waits instead of the host, as if by
 * ronda_synchronize_on_stream() for each member. A member may be announced again once the work that recomputes it has
 * been enqueued on its stream. */
ronda_status ronda_group_wait_on_stream(ronda_group group, void* stream);

/* Like ronda_group_wait_on_stream(), but the calling thread waits for at most `timeout_s` seconds, as in
 * ronda_group_wait_for(). */
ronda_status ronda_group_wait_on_stream_for(ronda_group group, void* stream, double timeout_s, int* done);

/* Like ronda_group_wait_on_stream(), but each member's own stream waits for the member. The host waits for members in
 * host memory. If the device fails after this call, ronda_group_finish() returns the error, or the next
 * ronda_group_wait_on_own_streams() returns it before the errors of its own step. */
ronda_status ronda_group_wait_on_own_streams(ronda_group group);

/* Blocks until the device has reduced the members of the last step that ronda_group_wait_on_own_streams() ended.
 * Returns the first error in array order. */
ronda_status ronda_group_finish(ronda_group group);

/* Ends a step in which some members have not been announced. Submits the announced members that still wait for a
 * neighbour. `handles` must have room for one handle per member. Each entry becomes the handle of the member's
 * allreduce, or 0 if the member was not announced. The caller must wait for each handle and release it. Each tensor
 * group must have been announced either completely or not at all before the call. A new step begins, in which a member
 * may be announced once its handle is complete. After an error nothing is in flight. */
ronda_status ronda_group_detach(ronda_group group, ronda_handle* handles);

/* Sets *found to 1 if the result of any member has an infinite or NaN element on any rank, else to 0. The results are
 * those of the step that the last ronda_group_wait() ended. The results of members without detect_overflow are not
 * searched. */
ronda_status ronda_group_found_inf(ronda_group group, int* found);

/* Like ronda_group_found_inf(), but writes the index of the first such member, or -1 if there is none. */
ronda_status ronda_group_overflowed(ronda_group group, int64_t* index);

/* Releases the group. Call this function between steps. ronda_group_release() first waits for members that are still in
 * flight. */
ronda_status ronda_group_release(ronda_group group);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RONDA_GROUPS_H_ */
