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
 * The members stay independent tensors, so Ronda can reduce some of them while the program still computes others. In
 * contrast, ronda_grouped_allreduce() runs its tensors together. Other ranks may submit the same tensors without a
 * prepared group.
 *
 * Members that are neighbours in the array are submitted together: up to 32 members with up to 1 MiB in all, or in GPU
 * memory up to 256 members with up to 25 MiB. The call that announces the last of these members submits them. All other
 * calls of ronda_group_ready() only do a few atomic operations, without a lock or a system call. For speed, list the
 * members in the order in which they become ready, or in the reverse order, or let the group learn the order from its
 * first step (ronda_group_learn_order). */
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

/* Prepares `count` allreduces, `args[0]` to `args[count - 1]`, of different names. `name` is for error texts. Ronda
 * copies the arguments, but not the tensors' elements. The members' buffers belong to the caller, and are the same in
 * every step, unless ronda_group_ready_at() changes the buffer of a member. A member whose `input` and `output` are
 * both NULL gets its buffer from ronda_group_ready_at(). With RONDA_MEMORY_CUDA the caller may announce a member once
 * the member's stream has been given the work that fills the input. The group belongs to the rank for which the calling
 * thread acts, and can be used until that rank's job ends. */
ronda_status ronda_prepare_group(const ronda_allreduce_args* args, size_t count, const char* name, ronda_group* group);

/* Lets the group learn the order of its members. In the next step each member is submitted by the call that announces
 * it, or with its tensor group. In later steps, members that were announced one after the other are neighbours. Call
 * this function between steps. */
ronda_status ronda_group_learn_order(ronda_group group);

/* Makes `count` members a tensor group with this name, as by ronda_grouped_allreduce(): either all of these members run
 * together, or none of them runs. The other ranks must have the same tensor group. `members` are indices into the array
 * of ronda_prepare_group(), all of one process set. A member is in one tensor group at most. Call this function between
 * steps. */
ronda_status ronda_group_combine(ronda_group group, const size_t* members, size_t count, const char* name);

/* Sets *current to 1 if the group was prepared for the current job of the calling thread's rank, else to 0. If *current
 * is 0, prepare the group again. */
ronda_status ronda_group_is_current(ronda_group group, int* current);

/* Announces that the input of member `index` is complete. From this call until ronda_group_wait(), the input belongs to
 * Ronda. Returns RONDA_ERROR_INVALID_ARGUMENT if the member has already been announced in this step. If the submission
 * fails, the error may also concern the member's neighbours, and ronda_group_wait() returns the error again. */
ronda_status ronda_group_ready(ronda_group group, size_t index);

/* As ronda_group_ready(), for a member whose buffer has moved. The member is reduced in place at `data`, in this step
 * and until a later call moves it again. Dtype, shape, memory and stream do not change. ronda_group_ready_at() also
 * returns RONDA_ERROR_INVALID_ARGUMENT if `data` is NULL and the member has elements. */
ronda_status ronda_group_ready_at(ronda_group group, size_t index, void* data);

/* As ronda_group_ready_at(), for a member in GPU memory that another stream may have filled. `stream` (a cudaStream_t;
 * NULL: the default stream) has been given the work that fills the buffer. `stream` becomes the member's stream for
 * this and later steps. ronda_group_ready_on_stream() also returns RONDA_ERROR_INVALID_ARGUMENT if the member is in
 * host memory. */
ronda_status ronda_group_ready_on_stream(ronda_group group, size_t index, void* data, void* stream);

/* Blocks until all members are reduced, and begins the next step. Call ronda_group_wait() after the step's calls of
 * ronda_group_ready() have returned. Returns the first error, in the order of the array, after all members have ended.
 * If a member has not been announced, the call changes nothing and returns RONDA_ERROR_INVALID_ARGUMENT, with the
 * member's name in the text. In this case announce the member and wait again. */
ronda_status ronda_group_wait(ronda_group group);

/* As ronda_group_wait(), for at most `timeout_s` seconds (negative: without end). If the step has ended, *done becomes
 * 1, and the call returns the step's result. If the step has not ended, *done becomes 0, and the call returns RONDA_OK
 * and changes nothing. In this case wait again. */
ronda_status ronda_group_wait_for(ronda_group group, double timeout_s, int* done);

/* As ronda_group_wait(), for members in GPU memory: `stream` (a cudaStream_t) waits instead of the host, as by
 * ronda_synchronize_on_stream() for each member. The members may be announced again once their streams have been given
 * the work that computes the members again. */
ronda_status ronda_group_wait_on_stream(ronda_group group, void* stream);

/* As ronda_group_wait_on_stream(), but the calling thread waits for at most `timeout_s` seconds, as in
 * ronda_group_wait_for(). */
ronda_status ronda_group_wait_on_stream_for(ronda_group group, void* stream, double timeout_s, int* done);

/* As ronda_group_wait_on_stream(), but each member's own stream waits for the member. The host waits for members in
 * host memory. If the device fails after this call, ronda_group_finish() returns the device's error, or the next call
 * of ronda_group_wait_on_own_streams() returns this error before the errors of its own step. */
ronda_status ronda_group_wait_on_own_streams(ronda_group group);

/* Blocks until the device has reduced the members of the last step that ronda_group_wait_on_own_streams() has ended.
 * Returns the first error, in the order of the array. */
ronda_status ronda_group_finish(ronda_group group);

/* Ends a step in which some members are announced late or never. Submits the members that have been announced and that
 * wait for a neighbour. `handles` has room for one handle per member. Each entry becomes the handle of the member's
 * allreduce, or 0 if the member has not been announced. The caller must wait for each handle and release it. Before the
 * call, either all members or no members of a tensor group must have been announced. A new step begins, in which a
 * member may be announced once its handle has ended. After an error nothing is in flight. */
ronda_status ronda_group_detach(ronda_group group, ronda_handle* handles);

/* Sets *found to 1 if the result of any member, on any rank, has an element that is infinite or not a number, else to
 * 0. The results are those of the step that the last ronda_group_wait() has ended. The results of members without
 * detect_overflow are not searched. */
ronda_status ronda_group_found_inf(ronda_group group, int* found);

/* As ronda_group_found_inf(): writes the index of the first such member, or -1 if no result has such an element. */
ronda_status ronda_group_overflowed(ronda_group group, int64_t* index);

/* Releases the group. Call this function between steps. ronda_group_release() first waits for members that have been
 * submitted. */
ronda_status ronda_group_release(ronda_group group);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RONDA_GROUPS_H_ */
