// SPDX-License-Identifier: Apache-2.0

// A rank of a chaos test.
#ifndef RONDA_TESTS_CHAOS_CHAOS_RANK_H_
#define RONDA_TESTS_CHAOS_CHAOS_RANK_H_

namespace ronda::chaos {

inline constexpr int kRanks = 4;

// The environment variable from which ranks read the round's seed.
inline constexpr char kSeedVariable[] = "CHAOS_ROUND_SEED";
// The beginning of the line in which a rank reports the first failure that it saw.
inline constexpr char kFailureLine[] = "FIRST FAILURE: ";
// The exit code of a rank that exits because of Injury::Kind::kExit.
inline constexpr int kExitCode = 7;

// Carries out this process' part of the round. Checks the results, and that all resources have been released. If the
// round must fail, checks the failure. Every difference is a gtest failure.
void RunRound();

}  // namespace ronda::chaos

#endif  // RONDA_TESTS_CHAOS_CHAOS_RANK_H_
