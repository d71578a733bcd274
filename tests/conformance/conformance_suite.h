// SPDX-License-Identifier: Apache-2.0

// The fixture of the conformance tests, which run on every communicator, with several numbers of ranks.
#ifndef RONDA_TESTS_CONFORMANCE_CONFORMANCE_SUITE_H_
#define RONDA_TESTS_CONFORMANCE_CONFORMANCE_SUITE_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/group.h"
#include "runtime/collectives/communicator.h"
#include "tests/conformance/reduce_case.h"
#include "tests/testing/backends.h"

namespace ronda::testing {

// Instantiates a suite on all backends, with several numbers of ranks.
#define RONDA_CONFORMANCE_SUITE(suite)                                                                       \
  INSTANTIATE_TEST_SUITE_P(Backends, suite,                                                                  \
                           ::testing::ValuesIn(::ronda::testing::EveryBackendAndDevice({1, 2, 3, 4, 5, 8})), \
                           ::ronda::testing::NameOfBackendRanks)

class ConformanceTest : public BackendTest {
 protected:
  // Returns a CallInfo with a deadline, so that a call that hangs fails the test with a message.
  static CallInfo Info(absl::string_view label, const Group* group = nullptr) {
    return {.label = label, .group = group, .limits = {.deadline = absl::Seconds(50)}};
  }

  // Returns the hosts that a reduction with `receives` reduces first. The map is empty if the reduction has one level.
  HostMap LevelsOf(Receives receives, const Group* group = nullptr) const;

  // Returns "" if `output` is right, and otherwise an error. It must have the expected bits or, if the backend adds in
  // a different order, be close to the fp64 result.
  std::string CheckResult(const ReduceCase& c, const std::vector<std::string>& inputs, const std::string& output) const;

  // Returns groups of different shapes: all ranks, the first alone, the last alone, every second rank, all but the
  // first.
  std::vector<Group> Groups() const;

  // Runs the cases one after the other, on the ranks of the group, or on all ranks if `group` is nullptr. Compares the
  // kernels' results with the fp64 oracle, and the outputs of all members with the kernels' results: bit for bit,
  // unless NCCL adds in a different order or rounds more often.
  void CheckReduces(const std::vector<ReduceCase>& cases, const Group* group = nullptr);

 private:
  struct Prepared {
    std::vector<std::string> inputs;  // of the members
    std::string whole;                // the result
  };
  Prepared Prepare(const ReduceCase& c, const Group* group) const;
  void RunAsMember(const ReduceCase& c, const Prepared& prepared, int position, int members, const Group* group,
                   Communicator& communicator) const;
  static void RunAsOutsider(const ReduceCase& c, const Group* group, Communicator& communicator);
};

// Returns the call for a case, without its segments.
ReduceCall CallOf(const ReduceCase& c, const CallInfo& info);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_CONFORMANCE_SUITE_H_
