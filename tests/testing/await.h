// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_AWAIT_H_
#define RONDA_TESTS_TESTING_AWAIT_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"

namespace ronda::testing {

// Polls until `condition` holds, and returns true. Returns false after `timeout`, which happens only if there is a bug.
template <typename Condition>
bool Await(const Condition& condition, absl::Duration timeout = absl::Seconds(30)) {
  const absl::Time deadline = SteadyNow() + timeout;
  while (!condition()) {
    if (SteadyNow() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_AWAIT_H_
