// SPDX-License-Identifier: Apache-2.0

// Executes user commands on a job, except for timeline commands to ranks (rank_control.h).
#ifndef RONDA_PROGRAMS_MONITOR_JOBS_JOB_CONTROL_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_JOB_CONTROL_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "programs/monitor/jobs/job_origin.h"
#include "programs/monitor/jobs/rank_reader.h"

namespace ronda {

// A job, and the names that the user can use for it.
struct KnownJob {
  std::string job;
  JobOrigin origin;
  std::vector<pid_t> ranks;
};

// Returns the jobs of these ranks, sorted by job id.
std::vector<KnownJob> KnownJobs(absl::Span<const std::unique_ptr<RankReader>> ranks);

// Shortens a job id. If rondarun generated the id, only its first digits are kept, which are enough to tell the user's
// jobs apart. Any other id is returned unchanged.
std::string ShortId(const std::string& job);

// Returns the name and short id of the job, such as "resnet50 (3fa9c1d2)", or only the short id if the job has no name.
std::string NameOfJob(const std::string& job, const JobOrigin& origin);

// Returns the job that `word` identifies. `word` is the name of the job, or else the pid of the job's rondarun or of
// one of its ranks, or else a prefix of the job's id. An empty `word` selects the only job. Errors: NOT_FOUND if there
// is no such job; INVALID_ARGUMENT, with the names of the jobs, if several match.
absl::StatusOr<std::string> ChooseJob(absl::string_view word, const std::vector<KnownJob>& jobs);

// Selects the ranks of those jobs that ChooseJob may choose for `word`; an empty word selects all jobs.
RankFilter OfJobsNamed(std::string word);

// Returns the secret (RONDA_JOB_SECRET) that the job's ranks received when they started, or "" if they received none.
std::string SecretOf(absl::Span<const std::unique_ptr<RankReader>> ranks);

// Sends SIGTERM to the rondarun that started the ranks, which then ends the job. Returns the pid of that rondarun.
// Errors: FAILED_PRECONDITION if the launcher is not rondarun, or runs on another host; those of the operating system.
absl::StatusOr<pid_t> EndJob(absl::Span<const std::unique_ptr<RankReader>> ranks);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_JOB_CONTROL_H_
