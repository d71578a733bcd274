// SPDX-License-Identifier: Apache-2.0

// These functions check a communicator in a job of processes, on one rank. Every rank must make the same calls of these
// functions.
#ifndef RONDA_TESTS_CONFORMANCE_ONE_RANK_H_
#define RONDA_TESTS_CONFORMANCE_ONE_RANK_H_

#include <cstdint>

#include "runtime/collectives/communicator.h"
#include "runtime/collectives/host_map.h"

namespace ronda::testing {

// Compares reductions with the kernels' results, bit for bit. The reductions have zero to many elements, several wire
// formats, and results for all or only some members. `hosts` has the hosts that are reduced first when all members
// receive the whole result. If `hosts` is empty, the reduction has one level.
void CheckReductions(uint64_t seed, const HostMap& hosts, Communicator& communicator);

// Runs operations in random order, until the first failure.
void CheckRandomWalk(uint64_t seed, Communicator& communicator);

// Runs reductions with and without a veto of a random rank.
void CheckVotes(uint64_t seed, Communicator& communicator);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_ONE_RANK_H_
