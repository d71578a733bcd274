// SPDX-License-Identifier: Apache-2.0

// Writes log messages to standard error. Each message is one line, such as "ronda[3] W text", and one write() call.
#ifndef RONDA_RUNTIME_BASE_LOGGING_H_
#define RONDA_RUNTIME_BASE_LOGGING_H_

#include "absl/strings/string_view.h"

namespace ronda {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

// Messages below `level` are dropped; the default is kWarning. Thread-safe.
void SetLogLevel(LogLevel level);

// Writes `text` on behalf of `rank` (-1 if the rank is not known yet). Thread-safe.
void Log(LogLevel level, int rank, absl::string_view text);

}  // namespace ronda

// Aborts with the file and line if `condition`, an invariant of Ronda's own code, is false. Never use it to check user
// input or data from a peer.
#define RONDA_CHECK(condition)                                                        \
  do {                                                                                \
    if (!(condition)) ::ronda::internal::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)

namespace ronda::internal {
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
}  // namespace ronda::internal

#endif  // RONDA_RUNTIME_BASE_LOGGING_H_
