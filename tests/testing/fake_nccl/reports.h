// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_REPORTS_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_REPORTS_H_

#include <atomic>
#include <string>

#include "absl/time/time.h"

namespace ronda::testing {

// Misuse for which NCCL has no error: there NCCL hangs, or its results are wrong. The fake logs it, keeps it for the
// test, and hangs. If a test does not end that hang in time, the fake stops the test.

// Thread-safe.
void Report(const std::string& text);
// Removes the oldest report; empty: there is none.
std::string PopReport();

// Reports, and returns when `gives_up` is set. Stops the process if that takes too long.
void HangUntil(const std::atomic<bool>& gives_up, const std::string& report);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_REPORTS_H_
