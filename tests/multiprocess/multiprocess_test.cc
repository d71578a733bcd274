// SPDX-License-Identifier: Apache-2.0

// The main() of this folder's tests.
#include "tests/multiprocess/rank_programs.h"

int main(int argc, char** argv) {
  std::vector<ronda::testing::RankProgram> all;
  for (const auto& programs : {ronda::AutotunePrograms(), ronda::FailurePrograms(), ronda::LauncherBackendPrograms(),
                               ronda::SummaryPrograms(), ronda::TimelinePrograms()}) {
    all.insert(all.end(), programs.begin(), programs.end());
  }
  return ronda::testing::RankProgramMain(argc, argv, all);
}
