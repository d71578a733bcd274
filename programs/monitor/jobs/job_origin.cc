// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/job_origin.h"

#include <time.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "programs/options/arguments.h"
#include "programs/options/shell_words.h"
#include "runtime/base/files.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {
namespace {

// Converts a time since boot to the clock of flight recorders, which stops while the host is suspended.
FlightTime TimeOf(uint64_t clock_ticks_since_boot) {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const absl::Duration started =
      absl::Seconds(static_cast<double>(clock_ticks_since_boot) / static_cast<double>(sysconf(_SC_CLK_TCK)));
  return FlightNow() - (absl::DurationFromTimespec(now) - started);
}

// Returns the pid of the rondarun that is an ancestor of `process`, or 0 if there is none.
pid_t LauncherOf(pid_t process) {
  for (std::optional<ProcessStat> stat = ReadProcessStat(process); stat && stat->parent > 1;
       stat = ReadProcessStat(stat->parent)) {
    if (IsRondarun(WordsOf(stat->parent, "cmdline"))) return stat->parent;
  }
  return 0;
}

// Returns what the command line of the rondarun `launcher`, which must not be an agent, says about the job. Relative
// file paths are relative to the working directory of `launcher`.
JobWords JobWordsOf(std::vector<std::string> words, pid_t launcher) {
  words.erase(words.begin());
  return FindJobWords(words, [launcher](const std::string& path) {
    return ReadFile(absl::StartsWith(path, "/") ? path : absl::StrCat("/proc/", launcher, "/cwd/", path));
  });
}

std::string Printable(std::string text) {
  for (char& c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = '?';
  }
  return text;
}

}  // namespace

std::vector<std::string> WordsOf(pid_t pid, const char* file_name) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/", file_name));
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

bool IsRondarun(const std::vector<std::string>& words) {
  return !words.empty() && (words[0] == "rondarun" || absl::EndsWith(words[0], "/rondarun"));
}

bool IsAgent(const std::vector<std::string>& words) {
  return IsRondarun(words) && words.size() > 1 && words[1] == "--agent";
}

JobOrigin OriginOf(pid_t rank) {
  JobOrigin origin = {.command = Printable(ShellQuote(WordsOf(rank, "cmdline"))), .launcher = LauncherOf(rank)};
  if (const auto stat = ReadProcessStat(origin.launcher == 0 ? rank : origin.launcher)) {
    origin.started = TimeOf(stat->start_time);
  }
  if (origin.launcher == 0) return origin;
  const std::vector<std::string> launcher = WordsOf(origin.launcher, "cmdline");
  if (IsAgent(launcher)) {
    if (launcher.size() > 3 && launcher[2] == "--name") origin.name = launcher[3];
    return origin;
  }
  if (launcher.empty()) return origin;  // it has ended meanwhile
  const JobWords words = JobWordsOf(launcher, origin.launcher);
  origin.name = words.name;
  if (!words.command.empty()) origin.command = Printable(ShellQuote(words.command));
  return origin;
}

}  // namespace ronda
