// rondactl: looks at the jobs that this user runs on this host. See `rondactl --help`.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "runtime/monitor/jobs/job_sampler.h"
#include "runtime/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/jobs/rank_reader.h"
#include "runtime/monitor/jobs/reports.h"
#include "runtime/monitor/rondactl/top.h"

namespace ronda {
namespace {

constexpr char kHelp[] =
    "Usage: rondactl COMMAND [JOB] [--once]\n"
    "Looks at a job that you run on this host. JOB is the beginning of its name, and may be left out if there is one.\n"
    "\n"
    "  jobs    names the jobs\n"
    "  ranks   a line a rank: steps, lateness, time in collectives, bandwidth; looks for a second\n"
    "  top     the same each second, those that cost the others most at the top; q leaves, --once: one table\n"
    "  why     who waits for whom, since when, and why; of a job that goes on, who is late; looks for a second\n"
    "  stop    tells the job's rondarun to end it, as SIGTERM does\n";

constexpr absl::Duration kWatched = absl::Seconds(1);
constexpr int kUsageError = 2;

using Ranks = std::vector<std::unique_ptr<RankReader>>;

// The ranks of the jobs of this user, by job.
std::map<std::string, Ranks> FindJobs() {
  std::map<std::string, Ranks> jobs;
  FoundRanks found = FindRanks();
  for (const std::string& problem : found.problems) fprintf(stderr, "rondactl: %s\n", problem.c_str());
  for (std::unique_ptr<RankReader>& rank : found.ranks) jobs[rank->identity().job].push_back(std::move(rank));
  return jobs;
}

absl::StatusOr<Ranks> FindJob(absl::string_view beginning) {
  std::map<std::string, Ranks> jobs = FindJobs();
  std::erase_if(jobs, [&](const auto& job) { return !absl::StartsWith(job.first, beginning); });
  if (jobs.size() == 1) return std::move(jobs.begin()->second);
  if (jobs.empty()) {
    return absl::NotFoundError(
        beginning.empty() ? "you run no job on this host"
                          : absl::StrCat("you run no job on this host whose name begins with '", beginning, "'"));
  }
  std::vector<std::string> names;
  for (const auto& [name, ranks] : jobs) names.push_back(name);
  return absl::InvalidArgumentError(
      absl::StrCat("there are ", names.size(), " jobs: say which one of ", absl::StrJoin(names, ", ")));
}

int PrintJobs() {
  for (const auto& [name, ranks] : FindJobs()) {
    printf("%s: %zu of %d ranks on this host\n", name.c_str(), ranks.size(), ranks.front()->identity().topology.size);
  }
  return 0;
}

// Looks at the ranks for a second. Those that end meanwhile keep their last words.
JobSnapshot Watch(Ranks ranks) {
  JobSampler sampler(std::move(ranks));
  const FlightTime begin = FlightNow();
  for (FlightTime now = begin;; now = FlightNow()) {
    sampler.Sample(now);
    if (now - begin >= kWatched) return sampler.Snapshot();
    absl::SleepFor(JobSampler::kPeriod);
  }
}

// The words of a process' command line; none if it cannot be read.
std::vector<std::string> CommandOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"));
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

absl::Status Stop(const Ranks& ranks) {
  std::set<pid_t> parents;
  for (const std::unique_ptr<RankReader>& rank : ranks) {
    if (const auto stat = ReadProcessStat(rank->identity().process.pid)) parents.insert(stat->parent);
  }
  if (parents.size() != 1)
    return absl::FailedPreconditionError("the ranks have no parent in common: end them yourself");
  const pid_t launcher = *parents.begin();
  const std::vector<std::string> command = CommandOf(launcher);
  const bool is_rondarun = !command.empty() && (command[0] == "rondarun" || absl::EndsWith(command[0], "/rondarun"));
  if (!is_rondarun) {
    return absl::FailedPreconditionError(absl::StrCat("the job's launcher is not rondarun but process ", launcher, ", ",
                                                      absl::StrJoin(command, " "), ": end that one yourself"));
  }
  if (command.size() > 1 && command[1] == "--agent") {
    return absl::FailedPreconditionError("the job's rondarun is on another host: call rondactl stop there");
  }
  if (kill(launcher, SIGTERM) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot signal process ", launcher));
  printf("rondarun, process %d, has been told to end the job\n", static_cast<int>(launcher));
  return absl::OkStatus();
}

absl::Status Run(absl::string_view command, absl::string_view job, TopTables tables) {
  RONDA_ASSIGN_OR_RETURN(Ranks ranks, FindJob(job));
  if (command == "stop") return Stop(ranks);
  if (command == "top") return ShowTop(ranks.front()->identity().job, tables);
  const JobSnapshot snapshot = Watch(std::move(ranks));
  fputs((command == "ranks" ? RanksTable(snapshot) : WhyText(snapshot)).c_str(), stdout);
  return absl::OkStatus();
}

int Main(std::vector<std::string> words) {
  const std::set<std::string> kCommands = {"jobs", "ranks", "top", "why", "stop"};
  if (words.size() == 1 && words[0] == "--help") return fputs(kHelp, stdout) < 0 ? 1 : 0;
  if (words.size() == 1 && words[0] == "--version") return printf("rondactl %s\n", kVersion) < 0 ? 1 : 0;
  const std::string given = absl::StrJoin(words, " ");
  const bool is_once = !words.empty() && words[0] == "top" && std::erase(words, "--once") > 0;
  if (words.empty() || words.size() > 2 || !kCommands.contains(words[0])) {
    fprintf(stderr, "rondactl: %s\n%s",
            words.empty() ? "no command" : absl::StrCat("'", given, "' is no command").c_str(), kHelp);
    return kUsageError;
  }
  if (words[0] == "jobs") return PrintJobs();
  const absl::Status status =
      Run(words[0], words.size() > 1 ? words[1] : "", is_once ? TopTables::kOne : TopTables::kMany);
  if (status.ok()) return 0;
  fprintf(stderr, "rondactl: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) { return ronda::Main(std::vector<std::string>(argv + 1, argv + argc)); }
