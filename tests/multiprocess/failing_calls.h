// SPDX-License-Identifier: Apache-2.0

// Special values for the error number in FAILING_CALL (failing_calls.cc), with which the planned call does not fail but
// has another effect.
#ifndef RONDA_TESTS_MULTIPROCESS_FAILING_CALLS_H_
#define RONDA_TESTS_MULTIPROCESS_FAILING_CALLS_H_

namespace ronda {

inline constexpr int kKillProcess = 0;  // SIGKILL
inline constexpr int kLosePower = -1;   // SIGKILL, and data that the process has not synced is lost

}  // namespace ronda

#endif  // RONDA_TESTS_MULTIPROCESS_FAILING_CALLS_H_
