// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/logging.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

// The log level is a mutable global variable because it applies to the whole process.
std::atomic<LogLevel> g_level{LogLevel::kWarning};

void WriteLine(absl::string_view line) {
  // If writing to standard error fails, there is nowhere to report it.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

void Log(LogLevel level, int rank, absl::string_view text) {
  if (level < g_level.load(std::memory_order_relaxed)) return;
  constexpr char kLetters[] = "DIWE";
  const std::string prefix = rank >= 0 ? absl::StrCat("ronda[", rank, "] ") : "ronda ";
  const char letter[] = {kLetters[static_cast<int>(level)], '\0'};
  WriteLine(absl::StrCat(prefix, letter, " ", text, "\n"));
}

namespace internal {

void CheckFailed(const char* condition, const char* file, int line) {
  WriteLine(absl::StrCat("ronda bug: ", file, ":", line, ": ", condition, " does not hold\n"));
  std::abort();
}

}  // namespace internal
}  // namespace ronda
