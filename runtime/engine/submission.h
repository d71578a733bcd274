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

// A client's request: one collective operation on one tensor.
struct Submission {
  TensorRequest request;        // the name is not empty; in its process set no other tensor in flight has it
  const void* input = nullptr;  // unused by broadcast (see `output`) and by a rank that only receives
  // allreduce (may equal input), reduce (on the root), broadcast, receive. For operations by rows: if this is null, the
  // result belongs to the handle; otherwise it goes here if it fits, and must not overlap the input.
  void* output = nullptr;
  size_t output_bytes = 0;  // operations by rows: the size of the buffer at `output`

  // alltoall: how many rows of the first dimension each member of the process set gets, in the order of the members;
  // scatter: the same, on the root. Empty: equal parts (scatter: as equal as possible).
  std::vector<int64_t> splits;

  // For a tensor in the memory of a GPU (request.memory): the stream with the work that writes `input` and the last
  // work that uses `output`; nullptr is the default stream. On the device the operation runs after that work.
  void* stream = nullptr;

  // For a tensor without a name from the caller (IsUnnamed): its number, from 1, among this rank's unnamed tensors in
  // the process set. If its name is in flight, it is submitted as soon as the earlier tensor is complete. 0: it has a
  // name.
  uint64_t unnamed_call = 0;

  // Whether the error of rounding to the wire's format is added to the next contribution with the same name.
  enum class ErrorFeedback : uint8_t { kOff, kOn } error_feedback = ErrorFeedback::kOff;
};

// The process sets that trainer threads see: the agreed changes that this rank has carried out so far.
//
// Thread-safe.
class ProcessSets {
 public:
  explicit ProcessSets(int world_size) : table_(world_size), global_(table_.Find(kGlobalProcessSet)) {}

  // Errors: INVALID_ARGUMENT, which says whether the set was removed or never existed.
  absl::StatusOr<std::shared_ptr<const Group>> Find(ProcessSetId id) const;

  // All ranks: set 0, which always exists.
  const Group& global() const { return *global_; }

  // Returns the set whose ranks remove set `id` together. This is set `id` itself if its members created it, else set
  // 0.
  ProcessSetId RemoversOf(ProcessSetId id) const;

  // The ids of the existing sets, ascending.
  std::vector<ProcessSetId> Ids() const;

  // Applies a response that adds or removes a set. For the progress thread only (progress_engine.h).
  absl::Status Apply(const Response& response);

 private:
  mutable Mutex mu_;
  ProcessSetTable table_ ABSL_GUARDED_BY(mu_);
  const std::shared_ptr<const Group> global_;  // never removed
};

// `status` as an error of the tensor with this name; OK stays OK. Omits the name if there is no memory for the text.
absl::Status AboutTensor(const std::string& name, const absl::Status& status);

// `status` with the number of the operation's call, if the operation has no name that the caller knows.
absl::Status AboutCall(const Submission& submission, const absl::Status& status);

// The rank that submits, and its job.
struct Submitter {
  RankId rank = 0;
  int world_size = 1;
  const ProcessSets* process_sets = nullptr;  // not owned
};

// Checks whether `submission` makes sense by itself. The negotiation checks whether it agrees with the submissions of
// the other ranks.
// Errors: INVALID_ARGUMENT that names the tensor, the mistake and the remedy.
absl::Status CheckSubmission(const Submission& submission, const Submitter& submitter);

// Calls CheckSubmission for each. Also checks that groups of tensors are complete, because they run as a whole.
absl::Status CheckSubmissions(absl::Span<const Submission> submissions, const Submitter& submitter);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_SUBMISSION_H_
