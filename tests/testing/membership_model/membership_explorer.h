// SPDX-License-Identifier: Apache-2.0

// Visits all states of a MembershipWorld (membership_world.h).
#ifndef RONDA_TESTS_TESTING_MEMBERSHIP_MODEL_MEMBERSHIP_EXPLORER_H_
#define RONDA_TESTS_TESTING_MEMBERSHIP_MODEL_MEMBERSHIP_EXPLORER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "tests/testing/membership_model/membership_world.h"

namespace ronda {

struct MembershipCensus {
  size_t states = 0;
  size_t successes = 0;
  size_t failures = 0;
  int64_t most_epochs = 0;
  std::string problem;  // the first problem, with its history; empty: none
};

// Visits the states, and stops at the first problem.
class MembershipExplorer {
 public:
  explicit MembershipExplorer(MembershipWorld::Scope scope);

  MembershipCensus Explore();

 private:
  struct Visit {
    MembershipWorld world;
    int64_t step;  // the step that has led to this world
  };
  struct Step {
    int64_t before;  // -1: none
    MembershipWorld::Move move;
  };

  void GoOn(const Visit& visit);
  void Report(const char* problem, const Visit& visit);

  const MembershipWorld::Scope scope_;
  std::vector<Visit> open_;
  std::vector<Step> steps_;
  absl::flat_hash_set<uint64_t> seen_;
  MembershipCensus census_;
};

}  // namespace ronda

#endif  // RONDA_TESTS_TESTING_MEMBERSHIP_MODEL_MEMBERSHIP_EXPLORER_H_
