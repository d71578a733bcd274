// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_nccl/reports.h"

#include <deque>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/mutex.h"

namespace ronda::testing {
namespace {

// The longest time that the fake hangs. The tests' deadlines are shorter, and should end the hang.
constexpr absl::Duration kLongestHang = absl::Minutes(1);
constexpr absl::Duration kPollInterval = absl::Milliseconds(1);

struct Reports {
  Mutex mu;
  std::deque<std::string> texts ABSL_GUARDED_BY(mu);
};

Reports& TheReports() {
  static auto* const reports = new Reports();
  return *reports;
}

}  // namespace

void Report(const std::string& text) {
  Log(LogLevel::kError, -1, absl::StrCat("fake NCCL: ", text));
  const MutexLock lock(&TheReports().mu);
  TheReports().texts.push_back(text);
}

std::string PopReport() {
  const MutexLock lock(&TheReports().mu);
  if (TheReports().texts.empty()) return "";
  std::string text = std::move(TheReports().texts.front());
  TheReports().texts.pop_front();
  return text;
}

void HangUntil(const std::atomic<bool>& gives_up, const std::string& report) {
  Report(report);
  const absl::Duration begin = MonotonicTime();
  while (!gives_up.load()) {
    const bool is_over_in_time = MonotonicTime() - begin < kLongestHang;
    RONDA_CHECK(is_over_in_time);
    absl::SleepFor(kPollInterval);
  }
}

}  // namespace ronda::testing
