// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/process_times.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {
namespace {

// Returns the first 128 bytes of a file, or "" if the file cannot be read. There is one such file per thread. Opening a
// standard library stream would take longer than reading the file.
std::string BeginningOf(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t bytes = file.valid() ? read(file.get(), text, sizeof(text)) : 0;
  return std::string(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
}

}  // namespace

std::optional<ProcessTimes> ParseSchedstat(absl::string_view text) {
  const std::vector<absl::string_view> numbers = absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t running = 0, waiting = 0;
  if (numbers.size() < 2 || !absl::SimpleAtoi(numbers[0], &running) || !absl::SimpleAtoi(numbers[1], &waiting)) {
    return std::nullopt;
  }
  return ProcessTimes{.running = absl::Nanoseconds(running), .waiting = absl::Nanoseconds(waiting)};
}

std::optional<ProcessTimes> ReadProcessTimes(pid_t pid) {
  const std::optional<ProcessStat> stat = ReadProcessStat(pid);
  if (!stat) return std::nullopt;
  ProcessTimes sum = {.state = stat->state};
  const std::string folder = absl::StrCat("/proc/", pid, "/task");
  DIR* const threads = opendir(folder.c_str());
  if (threads == nullptr) return sum;
  while (const dirent* const thread = readdir(threads)) {
    const std::optional<ProcessTimes> of_thread =
        ParseSchedstat(BeginningOf(absl::StrCat(folder, "/", thread->d_name, "/schedstat")));
    if (!of_thread) continue;
    sum.running += of_thread->running;
    sum.waiting += of_thread->waiting;
  }
  closedir(threads);
  return sum;
}

}  // namespace ronda
