// SPDX-License-Identifier: Apache-2.0

// The user's commands to a job, except for its ranks' timelines (rank_control.h).
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

// The jobs of these ranks, by name.
std::vector<KnownJob> KnownJobs(absl::Span<const std::unique_ptr<RankReader>> ranks);

// Returns the first digits of an id that rondarun has made, which distinguish it from others.
std::string ShortId(const std::string& job);

// "resnet50 (3fa9c1d2)", or the short id alone.
std::string NameOfJob(const std::string& job, const JobOrigin& origin);

// Returns the job that has the name `word`. If there is none, returns the job whose rondarun, or one of whose ranks, is
// the process with the number `word`. If there is none either, returns the job whose id begins with `word`. An empty
// word means the only job.
// Errors: NOT_FOUND; INVALID_ARGUMENT that names the jobs if several match.
absl::StatusOr<std::string> ChooseJob(absl::string_view word, const std::vector<KnownJob>& jobs);

// Selects the ranks of jobs that ChooseJob may choose for `word`; an empty word means all jobs.
RankFilter OfJobsNamed(std::string word);

// Returns the secret (RONDA_JOB_SECRET) that the job's ranks got at their start; empty if they got none.
std::string SecretOf(absl::Span<const std::unique_ptr<RankReader>> ranks);

// Asks the rondarun that has started the ranks to end the job, by SIGTERM. Returns its process.
// Errors: FAILED_PRECONDITION if that process is not their launcher, or the launcher runs on another host; the
// system's.
absl::StatusOr<pid_t> EndJob(absl::Span<const std::unique_ptr<RankReader>> ranks);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_JOB_CONTROL_H_
