#include "runtime/monitor/jobs/job_control.h"

#include <signal.h>

#include <cerrno>
#include <fstream>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {
namespace {

// Of a process: the words of its command line ("cmdline"), or its variables ("environ"); none if they cannot be read.
std::vector<std::string> WordsOf(pid_t pid, const char* file_name) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/", file_name));
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

absl::StatusOr<std::string> ChooseJob(absl::string_view beginning, const std::vector<std::string>& jobs) {
  std::vector<std::string> found;
  for (const std::string& job : jobs) {
    if (absl::StartsWith(job, beginning)) found.push_back(job);
  }
  if (found.size() == 1) return found.front();
  if (!found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", found.size(), " jobs: say which one of ", absl::StrJoin(found, ", ")));
  }
  return absl::NotFoundError(
      beginning.empty() ? "you run no job on this host"
                        : absl::StrCat("you run no job on this host whose name begins with '", beginning, "'"));
}

std::string SecretOf(absl::Span<const std::unique_ptr<RankReader>> ranks) {
  for (const std::unique_ptr<RankReader>& rank : ranks) {
    for (const std::string& variable : WordsOf(rank->identity().process.pid, "environ")) {
      absl::string_view secret = variable;
      if (absl::ConsumePrefix(&secret, "RONDA_JOB_SECRET=") && !secret.empty()) return std::string(secret);
    }
  }
  return "";
}

absl::StatusOr<pid_t> EndJob(absl::Span<const std::unique_ptr<RankReader>> ranks) {
  std::set<pid_t> parents;
  for (const std::unique_ptr<RankReader>& rank : ranks) {
    if (const auto stat = ReadProcessStat(rank->identity().process.pid)) parents.insert(stat->parent);
  }
  if (parents.size() != 1)
    return absl::FailedPreconditionError("the ranks have no parent in common: end them yourself");
  const pid_t launcher = *parents.begin();
  const std::vector<std::string> command = WordsOf(launcher, "cmdline");
  const bool is_rondarun = !command.empty() && (command[0] == "rondarun" || absl::EndsWith(command[0], "/rondarun"));
  if (!is_rondarun) {
    return absl::FailedPreconditionError(absl::StrCat("the job's launcher is not rondarun but process ", launcher, ", ",
                                                      absl::StrJoin(command, " "), ": end that one yourself"));
  }
  if (command.size() > 1 && command[1] == "--agent") {
    return absl::FailedPreconditionError("the job's rondarun is on another host: end the job there");
  }
  if (kill(launcher, SIGTERM) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot signal process ", launcher));
  return launcher;
}

}  // namespace ronda
