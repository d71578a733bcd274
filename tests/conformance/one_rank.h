// What one rank of a job checks of its communicator where each rank is a process. Every rank makes the same calls.
#ifndef RONDA_TESTS_CONFORMANCE_ONE_RANK_H_
#define RONDA_TESTS_CONFORMANCE_ONE_RANK_H_

#include <cstdint>

#include "runtime/collectives/communicator.h"
#include "runtime/collectives/host_map.h"

namespace ronda::testing {

// Reductions from no elements to many, in several wire formats, for all and for some: to the bits of the kernels.
// `hosts`: which ranks are reduced first, where all receive all; none: all at once.
void CheckReductions(uint64_t seed, const HostMap& hosts, Communicator& communicator);

// Operations in random order, until the first that fails.
void CheckRandomWalk(uint64_t seed, Communicator& communicator);

// Reductions that a rank drawn at random vetoes, or none.
void CheckVotes(uint64_t seed, Communicator& communicator);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_ONE_RANK_H_
