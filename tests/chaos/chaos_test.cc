// SPDX-License-Identifier: Apache-2.0

// Runs rounds of random operations on four ranks, some of which may be killed, stopped or late. Checks that in each
// round no rank hangs, no result is wrong, all survivors report the same first failure, and all resources are released.
//
// CHAOS_ROUNDS is the number of rounds (default: 50). To repeat a round of an earlier run, set CHAOS_SEED to the seed
// that the run printed for this round, and CHAOS_ROUNDS to 1.
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chaos/chaos_rank.h"
#include "tests/chaos/round_plan.h"
#include "tests/testing/process_world.h"

namespace ronda::chaos {
namespace {

using ::testing::IsEmpty;
using testing::JobResult;
using testing::ProcessResult;

// A round takes less than a second, but the machine may be busy, or the sanitizer slow.
constexpr absl::Duration kTimeout = absl::Seconds(60);

uint64_t NumberFromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

uint64_t SeedOf(int round) {
  static const uint64_t first = NumberFromEnvironment("CHAOS_SEED", std::random_device()());
  return first + static_cast<uint64_t>(round);
}

class ChaosTest : public ::testing::TestWithParam<int> {
 protected:
  ChaosTest() : seed_(SeedOf(GetParam())), plan_(PlanRound(seed_, kRanks)) {
    std::cout << "CHAOS_SEED=" << seed_ << ": " << Describe(plan_) << std::endl;
  }

  bool IsVictim(int rank) const {
    const Injury& injury = plan_.injury;
    return injury.kind != Injury::Kind::kStop &&
           std::find(injury.victims.begin(), injury.victims.end(), rank) != injury.victims.end();
  }

  void ExpectEnd(int rank, const ProcessResult& process) const {
    const std::string said = absl::StrCat("rank ", rank, " said:\n", process.output);
    if (!IsVictim(rank)) {
      EXPECT_EQ(process.exit_code, 0) << "signal " << process.signal << ", " << said;
    } else if (plan_.injury.kind == Injury::Kind::kKill) {
      EXPECT_EQ(process.signal, SIGKILL) << said;
    } else {
      EXPECT_EQ(process.exit_code, kExitCode) << said;
    }
  }

  // Expects that all survivors report the same failure, which names a victim.
  void ExpectOneFailure(const JobResult& result) const {
    std::set<std::string> failures;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (IsVictim(rank)) continue;
      for (const std::string& line : std::vector<std::string>(absl::StrSplit(result.ranks[rank].output, '\n'))) {
        if (absl::StartsWith(line, kFailureLine)) failures.insert(line);
      }
    }
    const bool fails = plan_.injury.kind == Injury::Kind::kKill || plan_.injury.kind == Injury::Kind::kExit;
    ASSERT_EQ(failures.size(), fails ? 1 : 0) << ::testing::PrintToString(failures);
    if (!fails) return;
    EXPECT_TRUE(std::any_of(plan_.injury.victims.begin(), plan_.injury.victims.end(), [&](int victim) {
      return absl::StrContains(*failures.begin(), absl::StrCat("rank ", victim, " (host "));
    })) << *failures.begin();
  }

  const uint64_t seed_;
  const RoundPlan plan_;
};

INSTANTIATE_TEST_SUITE_P(Rounds, ChaosTest,
                         ::testing::Range(0, static_cast<int>(NumberFromEnvironment("CHAOS_ROUNDS", 50))));

TEST_P(ChaosTest, EndsInBoundedTimeAsPlanned) {
  // Child processes that outlive their rank become children of this process, so that the check below finds them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  testing::ProcessJob job;
  job.env = {{kSeedVariable, absl::StrCat(seed_)}};
  job.timeout = kTimeout;
  const JobResult result = testing::RunRankProgram("Round", kRanks, job);
  for (int rank = 0; rank < kRanks; ++rank) ExpectEnd(rank, result.ranks[rank]);
  ExpectOneFailure(result);
  EXPECT_THAT(result.left_in_shared_memory, IsEmpty());
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace ronda::chaos

int main(int argc, char** argv) {
  return ronda::testing::RankProgramMain(argc, argv, {{"Round", ronda::chaos::RunRound}});
}
