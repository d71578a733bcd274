#ifndef RONDA_RUNTIME_ENGINE_SUBMISSION_CHECK_H_
#define RONDA_RUNTIME_ENGINE_SUBMISSION_CHECK_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/engine/process_sets.h"
#include "runtime/engine/submission.h"

namespace ronda {

// Who submits, and to which job.
struct Submitter {
  RankId rank = 0;
  int world_size = 1;
  const ProcessSets* process_sets = nullptr;  // not owned
};

// Whether `submission` makes sense by itself; whether it agrees with the other ranks' is the negotiation's business.
// Errors: INVALID_ARGUMENT that names the tensor, what is wrong and what to do.
absl::Status CheckSubmission(const Submission& submission, const Submitter& submitter);

// CheckSubmission of each; and groups of tensors must be complete, for they run as a whole.
absl::Status CheckSubmissions(absl::Span<const Submission> submissions, const Submitter& submitter);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_SUBMISSION_CHECK_H_
