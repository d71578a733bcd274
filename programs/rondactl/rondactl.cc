// SPDX-License-Identifier: Apache-2.0

// rondactl: inspects the jobs that this user runs on this host. See `rondactl --help`.
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
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
#include "programs/monitor/jobs/job_control.h"
#include "programs/monitor/jobs/job_sampler.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "programs/monitor/jobs/rank_control.h"
#include "programs/monitor/jobs/rank_reader.h"
#include "programs/monitor/jobs/reports.h"
#include "programs/rondactl/top.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"

namespace ronda {
namespace {

constexpr char kHelp[] =
    "Usage: rondactl COMMAND [JOB] [OPTION]\n"
    "Looks at a job that you run on this host. JOB is its name (rondarun --name), the number of its rondarun or of\n"
    "a rank's process, or the beginning of its id. It may be left out if there is one job. On a terminal ranks, top\n"
    "and why then take the newest of several.\n"
    "\n"
    "  jobs        a line a job: id, name, ranks, rondarun's process, age, steps per second, command\n"
    "  ranks       a line a rank: steps, lateness, time in collectives, bandwidth; looks for a second\n"
    "  top         the same each second, those that cost the others most at the top; q leaves, --once: one table\n"
    "  why         who waits for whom, since when, and why; of a job that goes on, who is late; looks for a second\n"
    "  trace on    has each rank begin a timeline; --file FILE: there, with the rank inserted (default: trace.json)\n"
    "  trace off   has each rank end its timeline\n"
    "  stop        tells the job's rondarun to end it, as SIGTERM does\n";

constexpr absl::Duration kWatched = absl::Seconds(1);
constexpr absl::Duration kTimeout = absl::Seconds(2);
constexpr int kUsageError = 2;

using Ranks = std::vector<std::unique_ptr<RankReader>>;

// Returns the ranks of this user's jobs on this host.
Ranks FindAllRanks() {
  FoundRanks found = FindRanks();
  for (const std::string& problem : found.problems) fprintf(stderr, "rondactl: %s\n", problem.c_str());
  return std::move(found.ranks);
}

// Returns the newest job. If `jobs` contains several jobs, prints which of them is the newest. REQUIRES: `jobs` is not
// empty.
std::string NewestJob(const std::vector<KnownJob>& jobs) {
  const KnownJob& newest = *std::max_element(jobs.begin(), jobs.end(), [](const KnownJob& a, const KnownJob& b) {
    return a.origin.started < b.origin.started;
  });
  if (jobs.size() > 1) {
    fprintf(stderr, "rondactl: %s is the newest of %zu jobs; rondactl jobs lists them\n",
            NameOfJob(newest.job, newest.origin).c_str(), jobs.size());
  }
  return newest.job;
}

// Returns the ranks of the job that `word` identifies. An empty `word` selects the only job or, with kNewest, the
// newest job.
enum class OfSeveral { kNone, kNewest };
absl::StatusOr<Ranks> FindJob(absl::string_view word, OfSeveral of_several) {
  Ranks ranks = FindAllRanks();
  const std::vector<KnownJob> known = KnownJobs(ranks);
  const bool takes_newest = word.empty() && !known.empty() && of_several == OfSeveral::kNewest;
  RONDA_ASSIGN_OR_RETURN(const std::string name,
                         takes_newest ? absl::StatusOr<std::string>(NewestJob(known)) : ChooseJob(word, known));
  std::erase_if(ranks, [&](const auto& rank) { return rank->identity().job != name; });
  return ranks;
}

// Watches the ranks of jobs for one second. If a rank ends meanwhile, the snapshot has its last data.
std::vector<JobSnapshot> Watch(std::vector<Ranks> jobs) {
  std::vector<std::unique_ptr<JobSampler>> samplers;
  for (Ranks& ranks : jobs) samplers.push_back(std::make_unique<JobSampler>(std::move(ranks)));
  const FlightTime begin = FlightNow();
  for (FlightTime now = begin;; now = FlightNow()) {
    for (const auto& sampler : samplers) sampler->Sample(now);
    if (now - begin >= kWatched) break;
    absl::SleepFor(JobSampler::kPeriod);
  }
  std::vector<JobSnapshot> snapshots;
  for (const auto& sampler : samplers) snapshots.push_back(sampler->Snapshot());
  return snapshots;
}

int PrintJobs() {
  std::map<std::string, Ranks> by_name;
  for (std::unique_ptr<RankReader>& rank : FindAllRanks()) by_name[rank->identity().job].push_back(std::move(rank));
  if (by_name.empty()) return 0;
  std::vector<Ranks> jobs;
  for (auto& [name, ranks] : by_name) jobs.push_back(std::move(ranks));
  return fputs(JobsTable(Watch(std::move(jobs))).c_str(), stdout) < 0 ? 1 : 0;
}

absl::Status Stop(const Ranks& ranks) {
  RONDA_ASSIGN_OR_RETURN(const pid_t launcher, EndJob(ranks));
  printf("rondarun, process %d, has been told to end the job\n", static_cast<int>(launcher));
  return absl::OkStatus();
}

// Sends a timeline request to the ranks. A rank sees the request when it next has something to do.
absl::Status Trace(const Ranks& ranks, const TimelineRequest& request) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<RankAnswer> answers, AskRanks(ranks, request, kTimeout));
  const bool is_start = request.kind == TimelineRequest::Kind::kStart;
  std::vector<std::string> failures;
  for (const RankAnswer& answer : answers) {
    if (!answer.file.has_value()) {
      printf("rank %d %s its timeline with its next tensor: it does nothing now\n", answer.rank,
             is_start ? "begins" : "ends");
    } else if (!answer.file->ok()) {
      failures.push_back(absl::StrCat("rank ", answer.rank, ": ", answer.file->status().message()));
    } else if (is_start) {
      printf("rank %d writes %s\n", answer.rank, (*answer.file)->c_str());
    } else {
      printf("rank %d writes no timeline any more\n", answer.rank);
    }
  }
  return failures.empty() ? absl::OkStatus() : absl::UnknownError(absl::StrJoin(failures, "; "));
}

struct Words {
  std::string command;
  std::string job;
  std::string file = "trace.json";
  TopTables tables = TopTables::kMany;
};

// Removes `option` and the word after it, and returns that word.
std::optional<std::string> PopOption(absl::string_view option, std::vector<std::string>* words) {
  const auto found = std::find(words->begin(), words->end(), option);
  if (found == words->end() || found + 1 == words->end()) return std::nullopt;
  std::string value = *(found + 1);
  words->erase(found, found + 2);
  return value;
}

absl::StatusOr<Words> ReadWords(std::vector<std::string> words) {
  const std::set<std::string> kCommands = {"jobs", "ranks", "top", "why", "trace on", "trace off", "stop"};
  if (words.empty()) return absl::InvalidArgumentError("no command");
  const std::string given = absl::StrJoin(words, " ");
  if (words[0] == "trace" && words.size() > 1) {
    words[0] += " " + words[1];
    words.erase(words.begin() + 1);
  }
  Words read = {.command = words[0]};
  if (read.command == "top" && std::erase(words, "--once") > 0) read.tables = TopTables::kOne;
  if (read.command == "trace on") read.file = PopOption("--file", &words).value_or(read.file);
  const bool is_command = kCommands.contains(read.command) && words.size() <= 2;
  if (!is_command || (words.size() == 2 && absl::StartsWith(words[1], "-"))) {
    return absl::InvalidArgumentError(absl::StrCat("'", given, "' is no command"));
  }
  if (words.size() == 2) read.job = words[1];
  return read;
}

absl::Status Run(const Words& words) {
  const std::set<std::string> kLooks = {"ranks", "top", "why"};
  const bool takes_newest = isatty(STDOUT_FILENO) == 1 && kLooks.contains(words.command);
  RONDA_ASSIGN_OR_RETURN(Ranks ranks, FindJob(words.job, takes_newest ? OfSeveral::kNewest : OfSeveral::kNone));
  if (words.command == "stop") return Stop(ranks);
  if (words.command == "top") return ShowTop(ranks.front()->identity().job, words.tables);
  if (words.command == "trace off") return Trace(ranks, {.kind = TimelineRequest::Kind::kStop});
  if (words.command == "trace on") {
    return Trace(ranks, {.kind = TimelineRequest::Kind::kStart, .path = std::filesystem::absolute(words.file)});
  }
  std::vector<Ranks> one;
  one.push_back(std::move(ranks));
  const JobSnapshot snapshot = Watch(std::move(one)).front();
  const std::string text = words.command == "ranks" ? RanksTable(snapshot) : WhyText(snapshot);
  fputs(absl::StrCat(HeadOf(snapshot), text).c_str(), stdout);
  return absl::OkStatus();
}

int Main(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "--help") return fputs(kHelp, stdout) < 0 ? 1 : 0;
  if (words.size() == 1 && words[0] == "--version") return printf("rondactl %s\n", kVersion) < 0 ? 1 : 0;
  const absl::StatusOr<Words> read = ReadWords(words);
  if (!read.ok()) {
    fprintf(stderr, "rondactl: %s\n%s", std::string(read.status().message()).c_str(), kHelp);
    return kUsageError;
  }
  if (read->command == "jobs") return PrintJobs();
  const absl::Status status = Run(*read);
  if (status.ok()) return 0;
  fprintf(stderr, "rondactl: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) { return ronda::Main(std::vector<std::string>(argv + 1, argv + argc)); }
