#include "runtime/monitor/jobs/process_times.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {

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
  std::error_code error;
  std::filesystem::directory_iterator threads(absl::StrCat("/proc/", pid, "/task"), error), end;
  for (; !error && threads != end; threads.increment(error)) {
    std::ostringstream text;
    text << std::ifstream(threads->path() / "schedstat").rdbuf();
    const std::optional<ProcessTimes> of_thread = ParseSchedstat(text.str());
    if (!of_thread) continue;
    sum.running += of_thread->running;
    sum.waiting += of_thread->waiting;
  }
  return sum;
}

}  // namespace ronda
