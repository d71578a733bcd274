// SPDX-License-Identifier: Apache-2.0

// The program of a rank in a chaos test.
#ifndef RONDA_TESTS_CHAOS_CHAOS_RANK_H_
#define RONDA_TESTS_CHAOS_CHAOS_RANK_H_

namespace ronda::chaos {

inline constexpr int kRanks = 4;

// The environment variable that holds the round's seed.
inline constexpr char kSeedVariable[] = "CHAOS_ROUND_SEED";
// The beginning of the line in which a rank reports the first failure that it has seen.
inline constexpr char kFailureLine[] = "FIRST FAILURE: ";
// The exit code of a rank that the plan makes exit (Injury::Kind::kExit).
inline constexpr int kExitCode = 7;

// Runs this process's part of the round. Expects the right results, the right failure if the round must fail, and that
// all resources have been released.
void RunRound();

}  // namespace ronda::chaos

#endif  // RONDA_TESTS_CHAOS_CHAOS_RANK_H_
