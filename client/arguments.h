// What C callers pass, checked and turned into the runtime's types. Pure: no function here looks at tensor data or at
// the default runtime.
//
// Every error is INVALID_ARGUMENT, names the operation, the tensor and the argument, and says what to do.
#ifndef RONDA_CLIENT_ARGUMENTS_H_
#define RONDA_CLIENT_ARGUMENTS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/ronda.h"
#include "runtime/base/config.h"
#include "runtime/engine/submission.h"

namespace ronda {

// `args` may be null, which is an error. `world_size` is the job's number of ranks.
absl::StatusOr<Submission> ToSubmission(const ronda_allreduce_args* args);
absl::StatusOr<Submission> ToSubmission(const ronda_broadcast_args* args, int world_size);
absl::StatusOr<Submission> ToSubmission(const ronda_allgather_args* args);

// Overrides in `tunables` what `options` sets; a null `options` sets nothing.
absl::Status ApplyOptions(const ronda_options* options, Tunables* tunables);

}  // namespace ronda

#endif  // RONDA_CLIENT_ARGUMENTS_H_
