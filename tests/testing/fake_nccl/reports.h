// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_REPORTS_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_REPORTS_H_

#include <atomic>
#include <string>

#include "absl/time/time.h"

namespace ronda::testing {

// Reports of misuse for which NCCL has no error. NCCL hangs after such a misuse, or its results are wrong. The fake
// logs the report, keeps it for the test, and hangs. If the test does not end the hang in time, the fake stops the
// test.

// Thread-safe.
void Report(const std::string& text);
// Removes and returns the oldest report, or returns "" if there is none.
std::string PopReport();

// Makes the report, and waits until `gives_up` is set. If this takes too long, stops the process.
void HangUntil(const std::atomic<bool>& gives_up, const std::string& report);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_REPORTS_H_
