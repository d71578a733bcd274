// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_REPORTS_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_REPORTS_H_

#include <atomic>
#include <string>

#include "absl/time/time.h"

namespace ronda::testing {

// Reports of misuse for which NCCL returns no error, but hangs or computes wrong results. Report() logs the report and
// keeps it for the test.

// Thread-safe.
void Report(const std::string& text);
// Removes and returns the oldest report, or returns "" if there is none.
std::string PopReport();

// Reports, and then waits until `gives_up` is set. Stops the process after a minute.
void HangUntil(const std::atomic<bool>& gives_up, const std::string& report);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_REPORTS_H_
