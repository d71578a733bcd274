// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_SUBMISSION_H_
#define RONDA_RUNTIME_ENGINE_SUBMISSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/group.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/participants.h"

namespace ronda {

// A client's request to carry out one collective operation on one tensor.
struct Submission {
  TensorRequest request;        // the name is not empty; in its process set no other tensor in flight has it
  const void* input = nullptr;  // unused by broadcast (see `output`) and by a rank that only receives
  // The buffer for the result of allreduce, reduce (on the root), broadcast and receive. In an allreduce, the output
  // may be the input. In operations by rows, the output may be nullptr. The memory of the result then belongs to the
  // handle. If the output of an operation by rows is given, it must not overlap the input (except over a lane, see
  // CallerLane::Carries). The result is written to it if it is large enough.
  void* output = nullptr;
  size_t output_bytes = 0;  // operations by rows: the size of the buffer at `output`

  // For alltoall, and on the root for scatter: how many rows of the first dimension each member of the process set
  // gets, in the order of the members. If empty, the members get equal parts (in a scatter, parts that are as equal as
  // possible).
  std::vector<int64_t> splits;

  // For a tensor in the memory of a GPU (request.memory): the stream with the work that writes `input`, and with the
  // last work that uses `output`. nullptr means the default stream. On the device, the operation runs after this work.
  void* stream = nullptr;

  // 0 if the caller has named the tensor. Otherwise, the tensor's number among this rank's unnamed tensors in the
  // process set, counted from 1 (IsUnnamed). If the name of such a tensor is in flight already, the tensor is submitted
  // when the earlier one is complete.
  uint64_t unnamed_call = 0;

  // Whether the error of rounding to the wire format is added to this rank's next contribution to the same tensor.
  enum class ErrorFeedback : uint8_t { kOff, kOn } error_feedback = ErrorFeedback::kOff;
};

// The process sets as trainer threads see them, with the changes that this rank has carried out so far.
//
// Thread-safe.
class ProcessSets {
 public:
  explicit ProcessSets(int world_size) : table_(world_size), global_(table_.Find(kGlobalProcessSet)) {}

  // Returns the ranks of a set. Errors: INVALID_ARGUMENT, with a text that says whether the set was removed or never
  // existed.
  absl::StatusOr<std::shared_ptr<const Group>> Find(ProcessSetId id) const;

  // Returns set 0, which contains all ranks and always exists.
  const Group& global() const { return *global_; }

  // Returns the set whose ranks remove set `id` together: `id` itself if the members of the set created it, otherwise
  // 0.
  ProcessSetId RemoversOf(ProcessSetId id) const;

  // Returns the ids of the existing sets in ascending order.
  std::vector<ProcessSetId> Ids() const;

  // Applies a response that adds or removes a set. Only the progress thread may call Apply (progress_engine.h).
  absl::Status Apply(const Response& response);

 private:
  mutable Mutex mu_;
  ProcessSetTable table_ ABSL_GUARDED_BY(mu_);
  const std::shared_ptr<const Group> global_;  // never removed
};

// Returns `status` as an error about the tensor `name`, or OK if `status` is OK. Leaves out the name if there is no
// memory for the longer text.
absl::Status AboutTensor(const std::string& name, const absl::Status& status);

// Returns `status` as an error about the call that made `submission`. If the caller has not named the operation, adds
// the number of its call.
absl::Status AboutCall(const Submission& submission, const absl::Status& status);

// The rank that makes a submission, and facts about its job.
struct Submitter {
  RankId rank = 0;
  int world_size = 1;
  const ProcessSets* process_sets = nullptr;  // not owned
};

// Checks whether `submission` is valid by itself. Later the negotiation checks whether the ranks' submissions match.
// Errors: INVALID_ARGUMENT, naming the tensor, the mistake and the remedy.
absl::Status CheckSubmission(const Submission& submission, const Submitter& submitter);

// Calls CheckSubmission for each submission. Also checks that each group of tensors is complete, because a group runs
// as a whole.
absl::Status CheckSubmissions(absl::Span<const Submission> submissions, const Submitter& submitter);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_SUBMISSION_H_
