// SPDX-License-Identifier: Apache-2.0

// Runs operations without pauses, in random order, of random sizes, in random groups and with random votes.
#ifndef RONDA_TESTS_CONFORMANCE_RANDOM_WALK_H_
#define RONDA_TESTS_CONFORMANCE_RANDOM_WALK_H_

#include <cstdint>
#include <optional>
#include <random>

#include "absl/strings/string_view.h"
#include "runtime/base/group.h"
#include "runtime/collectives/communicator.h"

namespace ronda::testing {

// Runs a random sequence of operations on one rank. The sequence depends only on the seed, so it is the same on every
// rank. Each step runs one operation and checks its results.
class RandomWalk {
 public:
  RandomWalk(uint64_t seed, RankId rank, Communicator& communicator)
      : random_(seed), rank_(rank), communicator_(communicator) {}

  void Step();

 private:
  void DrawGroup();
  // Draws whether the ranks vote on the next call, and this rank's vote. One rank vetoes in half of the votes.
  void DrawBallot();
  CallInfo Info(absl::string_view label) const;
  // Returns the CallInfo for a call that can carry a vote.
  CallInfo InfoWithBallot(absl::string_view label);
  // Returns whether the last call was vetoed, and expects the outcome that follows from the drawn votes.
  bool IsVetoedAsDrawn() const;
  void Reduce();
  void Barrier();
  void Broadcast();
  void Allgather();
  void Alltoall();

  std::mt19937_64 random_;
  const RankId rank_;
  Communicator& communicator_;
  std::optional<Group> group_;
  bool names_group_ = true;  // false: the group is all ranks, and calls do not name it
  int self_ = -1;            // position in the group; -1: outside
  std::optional<Ballot> ballot_;
  bool somebody_leaves_ = false;
  size_t count_ = 0;
  int32_t value_ = 0;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_RANDOM_WALK_H_
