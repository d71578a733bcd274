// SPDX-License-Identifier: Apache-2.0

// The rank programs of this folder's tests. A test runs them in child processes of the same binary.
#ifndef RONDA_TESTS_MULTIPROCESS_RANK_PROGRAMS_H_
#define RONDA_TESTS_MULTIPROCESS_RANK_PROGRAMS_H_

#include <vector>

#include "tests/testing/process_world.h"

namespace ronda {

std::vector<testing::RankProgram> AutotunePrograms();
std::vector<testing::RankProgram> FailurePrograms();
std::vector<testing::RankProgram> LauncherBackendPrograms();
std::vector<testing::RankProgram> SummaryPrograms();
std::vector<testing::RankProgram> TimelinePrograms();

}  // namespace ronda

#endif  // RONDA_TESTS_MULTIPROCESS_RANK_PROGRAMS_H_
