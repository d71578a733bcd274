// SPDX-License-Identifier: Apache-2.0

// A rank of a chaos test.
#ifndef RONDA_TESTS_CHAOS_CHAOS_RANK_H_
#define RONDA_TESTS_CHAOS_CHAOS_RANK_H_

namespace ronda::chaos {

inline constexpr int kRanks = 4;

// The round's seed, in the environment of its ranks.
inline constexpr char kSeedVariable[] = "CHAOS_ROUND_SEED";
// The beginning of the line in which a rank reports the first failure that it saw.
inline constexpr char kFailureLine[] = "FIRST FAILURE: ";
// The exit code of the victim of Injury::Kind::kExit.
inline constexpr int kExitCode = 7;

// Carries out this process' part of the round. Checks the results, the failure if the round must fail, and that all
// resources have been released. Every difference is a gtest failure.
void RunRound();

}  // namespace ronda::chaos

#endif  // RONDA_TESTS_CHAOS_CHAOS_RANK_H_
