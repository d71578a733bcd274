/* Prepared groups, the allreduces of a step that repeats: part of ronda.h, which see.
 *
 * A group is checked and copied once. In each step every member is announced when its input is complete, from any
 * thread and in any order, and one call waits for all of them:
 *
 *   ronda_prepare_group(args, 100, "gradients", &group);
 *
 *   ronda_group_ready(group, i);   in each step, as soon as gradient i is there; returns at once
 *   ronda_group_wait(group);       the gradients are reduced, and the next step may begin
 *
 *   ronda_group_release(group);
 *
 * The members stay independent tensors, which travel while others are still computed; ronda_grouped_allreduce() carries
 * its tensors out together instead. The other ranks need not have the group: they may submit the same tensors in any
 * other way.
 *
 * Neighbours in the array are submitted together, up to 32 of them with up to 1 MiB in all, by the call that announces
 * the last one. All other calls are a few atomic operations: they take no lock and make no system call. So list the
 * members in the order in which they become ready, or in the reverse order. */
#ifndef RONDA_GROUPS_H_
#define RONDA_GROUPS_H_

#include <stddef.h>

#include "../ronda.h"
#include "operations.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ronda_prepared_group* ronda_group; /* valid until ronda_group_release() */

/* Prepares `count` allreduces, `args[0]` to `args[count - 1]`, of different names. `name` is for error texts.
 * Everything but the elements is copied; the buffers stay the caller's, and the same in every step but for those that
 * ronda_group_ready_at() moves. With RONDA_MEMORY_CUDA a member's stream has been given the work that fills its input
 * before the member is announced. The group belongs to the rank for which the calling thread acts, and is of use until
 * that rank's job ends. */
ronda_status ronda_prepare_group(const ronda_allreduce_args* args, size_t count, const char* name, ronda_group* group);

/* The input of member `index` is complete, and belongs to Ronda until ronda_group_wait().
 * RONDA_ERROR_INVALID_ARGUMENT if it has been announced in this step. An error of the submission may concern
 * neighbours, too; ronda_group_wait() returns it again. */
ronda_status ronda_group_ready(ronda_group group, size_t index);

/* The same of a member whose buffer has moved: it is reduced in place at `data`, in this step and until a call gives it
 * another place. Of the member's dtype, shape, memory and stream. RONDA_ERROR_INVALID_ARGUMENT also if `data` is NULL,
 * but the member has elements. */
ronda_status ronda_group_ready_at(ronda_group group, size_t index, void* data);

/* The same of a member on GPU memory that another stream may have filled: `stream` (a cudaStream_t; NULL: the default
 * stream) has been given that work, and is the member's stream from now on. RONDA_ERROR_INVALID_ARGUMENT also for a
 * stream of a member in host memory. */
ronda_status ronda_group_ready_on_stream(ronda_group group, size_t index, void* data, void* stream);

/* Blocks until all members are reduced, and begins the next step: the first error, in the order of the array, after
 * all members have ended. Called when the step's calls of ronda_group_ready() have returned. If a member has not
 * been announced, that is RONDA_ERROR_INVALID_ARGUMENT with its name, and nothing has changed: announce it and wait
 * again. */
ronda_status ronda_group_wait(ronda_group group);

/* The same for `timeout_s` seconds at most (negative: without end). *done becomes 1 if the step has ended, with that
 * result; else 0, the call returns RONDA_OK, and nothing has changed: wait again. */
ronda_status ronda_group_wait_for(ronda_group group, double timeout_s, int* done);

/* The same for members on GPU memory, as ronda_synchronize_on_stream() of each: `stream` (a cudaStream_t) waits, not
 * the host. The members may be announced again once their streams have been given the work that computes them anew. */
ronda_status ronda_group_wait_on_stream(ronda_group group, void* stream);

/* The same, where the calling thread waits for `timeout_s` seconds at most, as in ronda_group_wait_for(). */
ronda_status ronda_group_wait_on_stream_for(ronda_group group, void* stream, double timeout_s, int* done);

/* Ends the step early, with the members that have been announced: those that wait for a neighbour are submitted.
 * `handles` has room for one a member, and gets what ronda_allreduce_async() would have returned, or 0 for a member
 * that has not been announced. The caller waits for each, and gives it back. A new step begins, in which a member may
 * be announced once its handle has ended. After an error nothing is in flight. Serves a step in which some members come
 * late or not at all. */
ronda_status ronda_group_detach(ronda_group group, ronda_handle* handles);

/* Whether the result of any member in the step that the last ronda_group_wait() has ended has an element that is
 * infinite or not a number, on any rank. Of members with detect_overflow. */
ronda_status ronda_group_found_inf(ronda_group group, int* found);

/* Ends the group, between steps. Members that have been submitted are waited for first. */
ronda_status ronda_group_release(ronda_group group);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RONDA_GROUPS_H_ */
