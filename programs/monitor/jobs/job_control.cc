// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/job_control.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {
namespace {

// Each function returns whether `word` identifies the job: by name, by the pid of one of its processes, or by a prefix
// of its id. The first function that finds a job decides.
constexpr bool (*kWaysToName[])(absl::string_view word, const KnownJob& job) = {
    [](absl::string_view word, const KnownJob& job) { return !word.empty() && job.origin.name == word; },
    [](absl::string_view word, const KnownJob& job) {
      pid_t pid = 0;
      if (!absl::SimpleAtoi(word, &pid) || pid <= 0) return false;
      return job.origin.launcher == pid || std::find(job.ranks.begin(), job.ranks.end(), pid) != job.ranks.end();
    },
    [](absl::string_view word, const KnownJob& job) { return absl::StartsWith(job.job, word); }};

// Returns the jobs that `word` identifies, according to the first function of kWaysToName that finds any.
std::vector<KnownJob> JobsNamed(absl::string_view word, const std::vector<KnownJob>& jobs) {
  for (const auto way : kWaysToName) {
    const auto is_meant = [&](const KnownJob& job) { return way(word, job); };
    std::vector<KnownJob> found;
    std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(found), is_meant);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace

std::vector<KnownJob> KnownJobs(absl::Span<const std::unique_ptr<RankReader>> ranks) {
  std::map<std::string, KnownJob> jobs;
  for (const std::unique_ptr<RankReader>& rank : ranks) {
    const RankIdentity& identity = rank->identity();
    const auto [job, is_new] = jobs.try_emplace(identity.job, KnownJob{.job = identity.job});
    if (is_new) job->second.origin = OriginOf(identity.process.pid);
    job->second.ranks.push_back(identity.process.pid);
  }
  std::vector<KnownJob> known;
  for (auto& [name, job] : jobs) known.push_back(std::move(job));
  return known;
}

std::string ShortId(const std::string& job) {
  constexpr size_t kDigits = 32;
  constexpr size_t kShown = 8;
  const size_t digits = std::min(job.find_first_not_of("0123456789abcdef"), job.size());
  return digits == kDigits ? job.substr(0, kShown) + job.substr(kDigits) : job;
}

std::string NameOfJob(const std::string& job, const JobOrigin& origin) {
  return origin.name.empty() ? ShortId(job) : absl::StrCat(origin.name, " (", ShortId(job), ")");
}

absl::StatusOr<std::string> ChooseJob(absl::string_view word, const std::vector<KnownJob>& jobs) {
  const std::vector<KnownJob> found = JobsNamed(word, jobs);
  if (found.size() == 1) return found.front().job;
  if (!found.empty()) {
    const std::string names = absl::StrJoin(found, ", ", [](std::string* out, const KnownJob& job) {
      absl::StrAppend(out, NameOfJob(job.job, job.origin));
    });
    return absl::InvalidArgumentError(absl::StrCat("there are ", found.size(), " jobs: say which one of ", names));
  }
  return absl::NotFoundError(word.empty() ? "you run no job on this host"
                                          : absl::StrCat("you run no job on this host that has the name or pid '", word,
                                                         "' or an id that begins with it"));
}

RankFilter OfJobsNamed(std::string word) {
  return [word = std::move(word)](const RankIdentity& rank) {
    if (absl::StartsWith(rank.job, word)) return true;  // without a look at /proc
    const KnownJob job = {.job = rank.job, .origin = OriginOf(rank.process.pid), .ranks = {rank.process.pid}};
    return !JobsNamed(word, {job}).empty();
  };
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
  std::set<pid_t> launchers;
  for (const std::unique_ptr<RankReader>& rank : ranks) {
    const auto stat = ReadProcessStat(rank->identity().process.pid);
    if (!stat) continue;  // it has ended
    parents.insert(stat->parent);
    launchers.insert(LauncherOf(rank->identity().process.pid));
  }
  if (launchers.size() == 1 && *launchers.begin() == 0 && parents.size() == 1) {
    const pid_t parent = *parents.begin();
    return absl::FailedPreconditionError(absl::StrCat("the job's launcher is not rondarun but process ", parent, ", ",
                                                      absl::StrJoin(WordsOf(parent, "cmdline"), " "),
                                                      ": end that one yourself"));
  }
  if (launchers.size() != 1 || *launchers.begin() == 0) {
    return absl::FailedPreconditionError("the ranks have no rondarun in common: end them yourself");
  }
  const pid_t launcher = *launchers.begin();
  if (IsAgent(WordsOf(launcher, "cmdline"))) {
    return absl::FailedPreconditionError("the job's rondarun is on another host: end the job there");
  }
  if (kill(launcher, SIGTERM) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot signal process ", launcher));
  return launcher;
}

}  // namespace ronda
