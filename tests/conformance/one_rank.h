// SPDX-License-Identifier: Apache-2.0

// One rank's checks of a communicator in a job of processes. Every rank makes the same calls.
#ifndef RONDA_TESTS_CONFORMANCE_ONE_RANK_H_
#define RONDA_TESTS_CONFORMANCE_ONE_RANK_H_

#include <cstdint>

#include "runtime/collectives/communicator.h"
#include "runtime/collectives/host_map.h"

namespace ronda::testing {

// Compares reductions with the kernels' bits: zero to many elements, several wire formats, results for all members and
// for some. `hosts` has the hosts that are reduced first when all members receive all; empty: one level.
void CheckReductions(uint64_t seed, const HostMap& hosts, Communicator& communicator);

// Runs operations in random order, until the first failure.
void CheckRandomWalk(uint64_t seed, Communicator& communicator);

// Runs reductions with and without a veto of a random rank.
void CheckVotes(uint64_t seed, Communicator& communicator);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_ONE_RANK_H_
