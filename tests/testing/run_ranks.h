// SPDX-License-Identifier: Apache-2.0

// Runs jobs of N ranks inside one test. Every rank is a thread.
#ifndef RONDA_TESTS_TESTING_RUN_RANKS_H_
#define RONDA_TESTS_TESTING_RUN_RANKS_H_

#include <functional>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/collectives/inprocess/in_process_communicator.h"
#include "runtime/collectives/transport.h"

namespace ronda::testing {

using RankBody = std::function<void(RankId rank, Transport transport)>;

// Returns one InProcessWorld transport per rank.
std::vector<Transport> ConnectInProcess(InProcessWorld::Options options);

// Runs `body` for each of `transports`, each on its own thread, and waits for all of them.
void RunRanks(std::vector<Transport> transports, const RankBody& body);

// Does the same, but the caller keeps `transports`.
void RunRanksOn(std::vector<Transport>& transports, const std::function<void(RankId rank, Transport& transport)>& body);

// Does the same, for `size` ranks that it connects through InProcessWorld.
void RunRanks(int size, const RankBody& body);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_RUN_RANKS_H_
