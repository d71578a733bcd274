// SPDX-License-Identifier: Apache-2.0

// Operations in random order, of random size, in random groups and with random votes, back to back, the same on every
// rank.
#ifndef RONDA_TESTS_CONFORMANCE_RANDOM_WALK_H_
#define RONDA_TESTS_CONFORMANCE_RANDOM_WALK_H_

#include <cstdint>
#include <optional>
#include <random>

#include "absl/strings/string_view.h"
#include "runtime/base/group.h"
#include "runtime/collectives/communicator.h"

namespace ronda::testing {

// One rank's steps through the sequence of operations. All ranks draw the same numbers from the seed, so they make the
// same sequence. Each step checks its results.
class RandomWalk {
 public:
  RandomWalk(uint64_t seed, RankId rank, Communicator& communicator)
      : random_(seed), rank_(rank), communicator_(communicator) {}

  void Step();

 private:
  void DrawGroup();
  // Draws a vote, if the job's ranks have to vote. In every second vote one rank vetoes.
  void DrawBallot();
  CallInfo Info(absl::string_view label) const;
  // Returns the information for a call that may have a vote.
  CallInfo InfoWithBallot(absl::string_view label);
  // Returns whether the call was vetoed. Expects the result that the drawn votes require.
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
  bool names_group_ = true;  // false: the group is all ranks, and is left out
  int self_ = -1;            // position in the group; -1: outside
  std::optional<Ballot> ballot_;
  bool somebody_leaves_ = false;
  size_t count_ = 0;
  int32_t value_ = 0;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_RANDOM_WALK_H_
