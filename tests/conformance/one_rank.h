// SPDX-License-Identifier: Apache-2.0

// These functions check a communicator on one rank of a job of processes. Every rank must make the same calls to them.
#ifndef RONDA_TESTS_CONFORMANCE_ONE_RANK_H_
#define RONDA_TESTS_CONFORMANCE_ONE_RANK_H_

#include <cstdint>

#include "runtime/collectives/communicator.h"
#include "runtime/collectives/host_map.h"

namespace ronda::testing {

// Compares reductions with the kernels' results, bit for bit: reductions of zero to many elements, in several wire
// formats, with results for all or only some members. If all members receive the whole result, the ranks of each host
// in `hosts` are reduced first. `hosts` is empty if the reduction has one level.
void CheckReductions(uint64_t seed, const HostMap& hosts, Communicator& communicator);

// Runs operations in random order, until the first failure.
void CheckRandomWalk(uint64_t seed, Communicator& communicator);

// Runs reductions that a random rank vetoes, and reductions that no rank vetoes.
void CheckVotes(uint64_t seed, Communicator& communicator);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_ONE_RANK_H_
