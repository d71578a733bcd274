// SPDX-License-Identifier: Apache-2.0

// Collective operations on named tensors:
//   reductions.hpp       allreduce, reduce, reducescatter
//   exchanges.hpp        broadcast, allgather, gather, scatter, alltoall, send and receive
//   objects.hpp          byte strings of any length, sparse tensors
//   synchronization.hpp  barriers, joins
//   process_set.hpp      the ranks that take part
//   options.hpp          options of operations
//   handle.hpp           operations in flight
//   group.hpp            the allreduces of a step that repeats
//
// Every rank of the process set (by default, every rank of the job) submits the same tensors with the same arguments,
// in any order. Submissions of different ranks are matched by tensor name. Functions named *_async return at once, and
// the buffers belong to the operation until its handle is complete. Functions without the suffix _async wait for the
// operation. Ranks, including roots, are always numbered as in the whole job.
//
// Errors of a submission, thrown or returned at once:
//   RONDA_ERROR_NOT_INITIALIZED, RONDA_ERROR_INVALID_ARGUMENT, RONDA_ERROR_DUPLICATE_NAME (the name is in flight), or
//   the job's failure.
// Errors of an operation, from its handle or from the functions that wait:
//   RONDA_ERROR_MISMATCH      ranks disagree about shape, dtype, operation or root, or a rank that is needed has
//                             joined; the job goes on
//   RONDA_ERROR_DEADLINE      a rank has not submitted the tensor in time
//   RONDA_ERROR_PEER_FAILED   a rank has died or left
//   RONDA_ERROR_INVALID_ARGUMENT  the caller's memory for the result (see Into) is too small
//   RONDA_ERROR_OUT_OF_MEMORY, RONDA_ERROR_INTERNAL
// After an error the contents of the outputs are undefined.
#ifndef RONDA_CLIENT_RONDA_COLLECTIVES_HPP_
#define RONDA_CLIENT_RONDA_COLLECTIVES_HPP_

#include "exchanges.hpp"
#include "group.hpp"
#include "handle.hpp"
#include "objects.hpp"
#include "options.hpp"
#include "process_set.hpp"
#include "reductions.hpp"
#include "synchronization.hpp"

#endif  // RONDA_CLIENT_RONDA_COLLECTIVES_HPP_
