// SPDX-License-Identifier: Apache-2.0

// What failing_calls.cc is told to do, beside failing a call with an error number.
#ifndef RONDA_TESTS_MULTIPROCESS_FAILING_CALLS_H_
#define RONDA_TESTS_MULTIPROCESS_FAILING_CALLS_H_

namespace ronda {

// In the place of the error number.
inline constexpr int kKillProcess = 0;  // SIGKILL
inline constexpr int kLosePower = -1;   // the same, and with it goes what the process has not synced

}  // namespace ronda

#endif  // RONDA_TESTS_MULTIPROCESS_FAILING_CALLS_H_
