// SPDX-License-Identifier: Apache-2.0

// The rank programs of the tests in this folder whose ranks are processes. One binary, worlds_test.cc, has all of these
// programs, and starts itself once per rank.
#ifndef RONDA_TESTS_CLIENT_WORLD_PROGRAMS_H_
#define RONDA_TESTS_CLIENT_WORLD_PROGRAMS_H_

#include <string>
#include <utility>
#include <vector>

#include "tests/testing/process_world.h"

namespace ronda::testing {

const std::vector<RankProgram>& CollectivesPrograms();
const std::vector<RankProgram>& ElasticGpuPrograms();
const std::vector<RankProgram>& ElasticPrograms();
const std::vector<RankProgram>& FailurePrograms();
const std::vector<RankProgram>& ForkPrograms();
const std::vector<RankProgram>& GpuFailurePrograms();
const std::vector<RankProgram>& JobPrograms();
const std::vector<RankProgram>& MismatchPrograms();
const std::vector<RankProgram>& OperationsPrograms();
const std::vector<RankProgram>& OptimizerPrograms();
const std::vector<RankProgram>& ReformPrograms();
const std::vector<RankProgram>& RestartPrograms();
const std::vector<RankProgram>& StartupPrograms();
const std::vector<RankProgram>& StopPrograms();

// Jobs whose ranks meet over TCP. With AHostARank(), each rank sees itself on a separate host, so control messages use
// gRPC.
ProcessJob OverTcp(const std::vector<std::pair<std::string, std::string>>& variables = {});
ProcessJob AHostARank();

// If AHostARank() has started this rank, moves it to a host of its own. Rank programs call this before init().
void MoveToAHostOfItsOwnIfAsked();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CLIENT_WORLD_PROGRAMS_H_
