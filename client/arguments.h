// What C callers pass, turned into submissions. Pure: no function here looks at tensor data or at a runtime.
//
// Every error is INVALID_ARGUMENT, names the operation, the tensor and the argument, and says what to do. What a
// submission means (shapes, buffers, ranks, process sets, splits) is left for Runtime::Submit to check.
#ifndef RONDA_CLIENT_ARGUMENTS_H_
#define RONDA_CLIENT_ARGUMENTS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/argument_checks.h"
#include "client/ronda.h"
#include "runtime/engine/submission.h"

namespace ronda {

// `args` may be null, which is an error. What is in `*submission` is lost but for its memory, which is used again.
absl::Status ToSubmission(const ronda_allreduce_args* args, const Caller& caller, Submission* submission);
absl::Status ToSubmission(const ronda_reduce_args* args, const Caller& caller, Submission* submission);
absl::Status ToSubmission(const ronda_reducescatter_args* args, const Caller& caller, Submission* submission);
absl::Status ToSubmission(const ronda_broadcast_args* args, const Caller& caller, Submission* submission);
absl::Status ToSubmission(const ronda_allgather_args* args, const Caller& caller, Submission* submission);
absl::Status ToSubmission(const ronda_gather_args* args, const Caller& caller, Submission* submission);
absl::Status ToSubmission(const ronda_scatter_args* args, const Caller& caller, Submission* submission);
absl::Status ToSubmission(const ronda_alltoall_args* args, const Caller& caller, Submission* submission);

// The name is that of the channel between the two ranks; the session numbers what goes through it.
absl::Status ToSubmission(const ronda_send_args* args, const Caller& caller, Submission* submission);
absl::Status ToSubmission(const ronda_recv_args* args, const Caller& caller, Submission* submission);

// An allgather of bytes, `function` being the C function. `root` keeps the caller's.
absl::Status ToSubmission(const ronda_object_args* args, const Caller& caller, Submission* submission);

// Allgathers of one group. That of the values says as its reduction what is asked for, for the ranks to agree on.
struct SparseSubmissions {
  Submission indices;
  Submission values;
};
absl::StatusOr<SparseSubmissions> ToSubmissions(const ronda_sparse_allreduce_args* args, const Caller& caller);

// `count` structs of the size that the first of them tells, as a group: the first of `*submissions`, which grows if
// need be, and whose memory is used again.
// REQUIRES: count > 0.
absl::StatusOr<absl::Span<const Submission>> ToGroup(const ronda_allreduce_args* args, size_t count, const char* group,
                                                     const Caller& caller, std::vector<Submission>* submissions);
absl::StatusOr<absl::Span<const Submission>> ToGroup(const ronda_allgather_args* args, size_t count, const char* group,
                                                     const Caller& caller, std::vector<Submission>* submissions);
absl::StatusOr<absl::Span<const Submission>> ToGroup(const ronda_reducescatter_args* args, size_t count,
                                                     const char* group, const Caller& caller,
                                                     std::vector<Submission>* submissions);

// A barrier or a join: their name is given, like that of send and receive. `timeout_s` as ronda_monitored_barrier().
absl::StatusOr<Submission> BarrierSubmission(ronda_process_set set, double timeout_s, const Caller& caller);
// `absent` may hold no enumerator, and is not loaded as one.
absl::StatusOr<Submission> JoinSubmission(ronda_process_set set, const ronda_absent& absent);

// The ends of a set, and its begin.
absl::StatusOr<Submission> AddProcessSetSubmission(const int* ranks, int count);
Submission AddProcessSetSubmission(std::vector<RankId> ranks);
Submission RemoveProcessSetSubmission(ronda_process_set id);

}  // namespace ronda

#endif  // RONDA_CLIENT_ARGUMENTS_H_
