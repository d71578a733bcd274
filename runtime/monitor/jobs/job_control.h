// What the user of a job can tell it to do, beside its ranks' timelines (rank_control.h).
#ifndef RONDA_RUNTIME_MONITOR_JOBS_JOB_CONTROL_H_
#define RONDA_RUNTIME_MONITOR_JOBS_JOB_CONTROL_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/monitor/jobs/job_origin.h"
#include "runtime/monitor/jobs/rank_reader.h"

namespace ronda {

// A job, and what the user may call it by.
struct KnownJob {
  std::string job;
  JobOrigin origin;
  std::vector<pid_t> ranks;
};

// The first digits of an id that rondarun has made, which tell it from others.
std::string ShortId(const std::string& job);

// "resnet50 (3fa9c1d2)", or the short id alone.
std::string NameOfJob(const std::string& job, const JobOrigin& origin);

// The one of `jobs` that has the name `word`, or else the process of that number as its rondarun or as a rank, or else
// an id that begins so. An empty word means the only one.
// Errors: NOT_FOUND; INVALID_ARGUMENT that names them if there are several.
absl::StatusOr<std::string> ChooseJob(absl::string_view word, const std::vector<KnownJob>& jobs);

// The secret (RONDA_JOB_SECRET) with which the job's ranks were started; empty if they had none.
std::string SecretOf(absl::Span<const std::unique_ptr<RankReader>> ranks);

// Tells the rondarun that has started the ranks to end the job, as SIGTERM does. Returns its process.
// Errors: FAILED_PRECONDITION if it is not their launcher, or runs on another host; the system's.
absl::StatusOr<pid_t> EndJob(absl::Span<const std::unique_ptr<RankReader>> ranks);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_JOB_CONTROL_H_
