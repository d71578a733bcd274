// SPDX-License-Identifier: Apache-2.0

// Declares the rank programs of those tests in this folder whose ranks are processes. The binary worlds_test contains
// all of these programs, and starts itself once for each rank.
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

// Return jobs whose ranks meet over TCP. With AHostARank(), each rank sees itself on a separate host, so control
// messages go over TCP too.
ProcessJob OverTcp(const std::vector<std::pair<std::string, std::string>>& variables = {});
ProcessJob AHostARank();

// If this rank belongs to a job of AHostARank(), moves the rank to a separate (simulated) host. Rank programs call this
// function before init().
void MoveToAHostOfItsOwnIfAsked();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CLIENT_WORLD_PROGRAMS_H_
