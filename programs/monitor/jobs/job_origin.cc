// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/job_origin.h"

#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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

bool IsProgramName(absl::string_view path) {
  const absl::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  return name == "rondarun" || name == "horovodrun";                // make install links the second name
}

// Returns whether the process runs rondarun, by the name with which it was started, or by the name of its program.
bool IsRondarun(pid_t process, const std::vector<std::string>& words) {
  if (!words.empty() && IsProgramName(words[0])) return true;
  std::error_code error;
  const std::string program = std::filesystem::read_symlink(absl::StrCat("/proc/", process, "/exe"), error).string();
  return IsProgramName(absl::StripSuffix(program, " (deleted)"));  // after an update of the installation
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

pid_t LauncherOf(pid_t rank) {
  pid_t agent = 0;
  for (std::optional<ProcessStat> stat = ReadProcessStat(rank); stat && stat->parent > 1;
       stat = ReadProcessStat(stat->parent)) {
    const std::vector<std::string> words = WordsOf(stat->parent, "cmdline");
    if (!IsRondarun(stat->parent, words)) continue;
    if (!IsAgent(words)) return stat->parent;
    if (agent == 0) agent = stat->parent;
  }
  return agent;
}

bool IsAgent(const std::vector<std::string>& words) { return words.size() > 1 && words[1] == "--agent"; }

std::string NameOfAgentsJob(const std::vector<std::string>& words) {
  return words.size() > 3 && words[2] == "--name" ? words[3] : "";
}

JobOrigin OriginOf(pid_t rank) {
  JobOrigin origin = {.command = Printable(ShellQuote(WordsOf(rank, "cmdline"))), .launcher = LauncherOf(rank)};
  if (const auto stat = ReadProcessStat(origin.launcher == 0 ? rank : origin.launcher)) {
    origin.started = TimeOf(stat->start_time);
  }
  if (origin.launcher == 0) return origin;
  const std::vector<std::string> launcher = WordsOf(origin.launcher, "cmdline");
  if (IsAgent(launcher)) {
    origin.name = NameOfAgentsJob(launcher);
    return origin;
  }
  if (launcher.empty()) return origin;  // it has ended meanwhile
  const JobWords words = JobWordsOf(launcher, origin.launcher);
  origin.name = words.name;
  if (!words.command.empty()) origin.command = Printable(ShellQuote(words.command));
  return origin;
}

}  // namespace ronda
