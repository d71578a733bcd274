#ifndef RONDA_RUNTIME_LAUNCH_JOB_PLANNER_H_
#define RONDA_RUNTIME_LAUNCH_JOB_PLANNER_H_

#include "absl/status/statusor.h"
#include "runtime/launch/job_plan.h"
#include "runtime/launch/launch_options.h"

namespace ronda {

// Decides who starts the ranks, and with what: this launcher itself on its own host, mpirun, or agents over ssh. mpirun
// is asked for its version if it is to do that.
//
// Errors: INVALID_ARGUMENT, UNIMPLEMENTED, NOT_FOUND and FAILED_PRECONDITION for what the user is to change.
absl::StatusOr<JobPlan> MakeJobPlan(const LaunchOptions& options, const LaunchFacts& facts);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_JOB_PLANNER_H_
