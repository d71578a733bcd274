// SPDX-License-Identifier: Apache-2.0

// The main() of this folder's tests.
#include "tests/hosts/hosts_suite.h"

int main(int argc, char** argv) {
  std::vector<ronda::testing::RankProgram> all;
  for (const auto& programs : {ronda::testing::AcrossHostsPrograms(), ronda::testing::ElasticHostsPrograms(),
                               ronda::testing::HostsFailurePrograms(), ronda::testing::SshJobPrograms(),
                               ronda::testing::MonitorHostsPrograms()}) {
    all.insert(all.end(), programs.begin(), programs.end());
  }
  return ronda::testing::RankProgramMain(argc, argv, all);
}
