// SPDX-License-Identifier: Apache-2.0

// Carries out the user's commands to a job, except commands about its ranks' timelines (rank_control.h).
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

// A job, and the names that the user may use for it.
struct KnownJob {
  std::string job;
  JobOrigin origin;
  std::vector<pid_t> ranks;
};

// Returns the jobs of these ranks, in the order of their names.
std::vector<KnownJob> KnownJobs(absl::Span<const std::unique_ptr<RankReader>> ranks);

// Returns the first digits of a job's id that rondarun has made. The first digits of an id are enough to distinguish
// the user's jobs.
std::string ShortId(const std::string& job);

// Returns the job's name and short id, such as "resnet50 (3fa9c1d2)", or the short id alone if the job has no name.
std::string NameOfJob(const std::string& job, const JobOrigin& origin);

// Returns the job that `word` names. `word` may be the job's name. If no job has this name, `word` is the process
// number of the job's rondarun or of one of its ranks. If no job has such a process, `word` is the beginning of the
// job's id. An empty `word` means the only job.
// Errors: NOT_FOUND if there is no such job; INVALID_ARGUMENT, with the names of the jobs, if several match.
absl::StatusOr<std::string> ChooseJob(absl::string_view word, const std::vector<KnownJob>& jobs);

// Selects the ranks of jobs that ChooseJob may choose for `word`; an empty word means all jobs.
RankFilter OfJobsNamed(std::string word);

// Returns the secret (RONDA_JOB_SECRET) that the job's ranks got at their start; empty if they got none.
std::string SecretOf(absl::Span<const std::unique_ptr<RankReader>> ranks);

// Sends SIGTERM to the rondarun that has started the ranks, so that this rondarun ends the job. Returns the pid of this
// rondarun.
// Errors: FAILED_PRECONDITION if the rondarun is not the ranks' launcher, or if the launcher runs on another host; the
// errors of the operating system.
absl::StatusOr<pid_t> EndJob(absl::Span<const std::unique_ptr<RankReader>> ranks);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_JOB_CONTROL_H_
