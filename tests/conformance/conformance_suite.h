// SPDX-License-Identifier: Apache-2.0

// The fixture of the conformance tests: one suite for every communicator, with several numbers of ranks.
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

// Instantiates a suite on all backends with all numbers of ranks.
#define RONDA_CONFORMANCE_SUITE(suite)                                                                       \
  INSTANTIATE_TEST_SUITE_P(Backends, suite,                                                                  \
                           ::testing::ValuesIn(::ronda::testing::EveryBackendAndDevice({1, 2, 3, 4, 5, 8})), \
                           ::ronda::testing::NameOfBackendRanks)

class ConformanceTest : public BackendTest {
 protected:
  // Returns a CallInfo with a deadline, so that a call that hangs ends the test with a message.
  static CallInfo Info(absl::string_view label, const Group* group = nullptr) {
    return {.label = label, .group = group, .limits = {.deadline = absl::Seconds(50)}};
  }

  // Returns the hosts whose members are reduced first when results are delivered as `receives` says. If the map is
  // empty, the reduction has one level.
  HostMap LevelsOf(Receives receives, const Group* group = nullptr) const;

  // Returns "" if `output` is the result that the backend must deliver: the exact bits or, if the backend adds up in
  // another order, a value near the result in fp64.
  std::string CheckResult(const ReduceCase& c, const std::vector<std::string>& inputs, const std::string& output) const;

  // Returns groups of all shapes: all ranks, the first rank alone, the last rank alone, every second rank, all but the
  // first.
  std::vector<Group> Groups() const;

  // Runs the cases one after the other, on the ranks of the group, or on all ranks if `group` is nullptr. Compares the
  // outputs of all members bit for bit with the kernels' results, and with the oracle in fp64.
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

// Returns the call of a case, without its segments.
ReduceCall CallOf(const ReduceCase& c, const CallInfo& info);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_CONFORMANCE_SUITE_H_
