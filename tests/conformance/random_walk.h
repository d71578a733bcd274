// Operations in random order, of random size and in random groups, back to back, the same on every rank.
#ifndef RONDA_TESTS_CONFORMANCE_RANDOM_WALK_H_
#define RONDA_TESTS_CONFORMANCE_RANDOM_WALK_H_

#include <cstdint>
#include <optional>
#include <random>

#include "absl/strings/string_view.h"
#include "runtime/base/group.h"
#include "runtime/collectives/communicator.h"

namespace ronda::testing {

// One rank's way through the sequence, which follows from the seed: all ranks draw the same numbers. Each step checks
// what comes out.
class RandomWalk {
 public:
  RandomWalk(uint64_t seed, RankId rank, Communicator& communicator)
      : random_(seed), rank_(rank), communicator_(communicator) {}

  void Step();

 private:
  void DrawGroup();
  CallInfo Info(absl::string_view label) const;
  void Reduce();
  void Broadcast();
  void Allgather();
  void Alltoall();

  std::mt19937_64 random_;
  const RankId rank_;
  Communicator& communicator_;
  std::optional<Group> group_;
  int self_ = -1;  // position in the group; -1: outside
  size_t count_ = 0;
  int32_t value_ = 0;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_RANDOM_WALK_H_
