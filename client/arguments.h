// Turns the arguments of C callers into submissions. Pure: no function here looks at tensor data or at a runtime.
//
// Every error is INVALID_ARGUMENT, names the operation, the tensor and the argument, and gives advice. Runtime::Submit
// checks the meaning of a submission: shapes, buffers, ranks, process sets, splits.
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

// Args are those of one operation: ronda_allreduce_args, ronda_send_args and so on. `args` may be null, which is an
// error. The content of `*submission` is lost; its memory is reused.
//
// The name of a send or a receive is that of the channel between the two ranks; the session numbers the tensors that go
// through it. ronda_object_args become an allgather of bytes whose root is the caller's.
template <typename Args>
absl::Status ToSubmission(const Args* args, const Caller& caller, Submission* submission);

// Allgathers of one group. The request of the values holds the caller's reduction, so that the ranks agree on it.
struct SparseSubmissions {
  Submission indices;
  Submission values;
};
absl::StatusOr<SparseSubmissions> ToSubmissions(const ronda_sparse_allreduce_args* args, const Caller& caller);

// Makes a group of `count` structs, each of the size that the first one tells. The result are the first `count` of
// `*submissions`, which grows if need be, and whose memory is reused. Args: ronda_allreduce_args, ronda_allgather_args,
// ronda_reducescatter_args.
// REQUIRES: count > 0.
template <typename Args>
absl::StatusOr<absl::Span<const Submission>> ToGroup(const Args* args, size_t count, const char* group,
                                                     const Caller& caller, std::vector<Submission>* submissions);

// The same without making them a group: `*submissions` becomes theirs, and at least as long. `group` is for messages.
absl::Status ToMembers(const ronda_allreduce_args* args, size_t count, const char* group, const Caller& caller,
                       std::vector<Submission>* submissions);

// A barrier or a join: their name is given, like that of send and receive. `timeout_s` as ronda_monitored_barrier().
absl::StatusOr<Submission> BarrierSubmission(ronda_process_set set, double timeout_s, const Caller& caller);
// `absent` may hold no enumerator, and is not loaded as one.
absl::StatusOr<Submission> JoinSubmission(ronda_process_set set, const ronda_absent& absent);

// The begin of a set: by all ranks of the job, or by its members, for whom the ranks and `tag` (which may be null) make
// up the name.
absl::StatusOr<Submission> AddProcessSetSubmission(const int* ranks, int count);
Submission AddProcessSetSubmission(std::vector<RankId> ranks);
absl::StatusOr<Submission> CreateProcessSetSubmission(const int* ranks, int count, const char* tag);

// The end of a set, by the ranks of the set `by` (Runtime::RemoversOf).
Submission RemoveProcessSetSubmission(ronda_process_set id, ProcessSetId by);

}  // namespace ronda

#endif  // RONDA_CLIENT_ARGUMENTS_H_
