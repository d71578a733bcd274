// SPDX-License-Identifier: Apache-2.0

// One rank's checks of a communicator in a job of processes. Every rank makes the same calls.
#ifndef RONDA_TESTS_CONFORMANCE_ONE_RANK_H_
#define RONDA_TESTS_CONFORMANCE_ONE_RANK_H_

#include <cstdint>

#include "runtime/collectives/communicator.h"
#include "runtime/collectives/host_map.h"

namespace ronda::testing {

// Reductions of zero to many elements, in several wire formats, for all members and for some, compared with the
// kernels' bits. `hosts`: the hosts that are reduced first when all members receive all; none: one level.
void CheckReductions(uint64_t seed, const HostMap& hosts, Communicator& communicator);

// Operations in random order, until the first failure.
void CheckRandomWalk(uint64_t seed, Communicator& communicator);

// Reductions with a veto of a random rank, or without one.
void CheckVotes(uint64_t seed, Communicator& communicator);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_ONE_RANK_H_
