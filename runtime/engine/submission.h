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
#include "runtime/negotiation/membership.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// A client's request: one collective operation on one tensor.
struct Submission {
  TensorRequest request;        // the name is not empty, and unique in its process set among the tensors in flight
  const void* input = nullptr;  // not for broadcast, which uses `output` alone, nor for a rank that only receives
  // allreduce (may equal input), reduce (on the root), broadcast, receive. Of operations by rows the result goes here
  // if there is room for it, and belongs to the handle if this is null; it must not overlap the input.
  void* output = nullptr;
  size_t output_bytes = 0;  // operations by rows: the room at `output`

  // alltoall: rows of the first dimension for each member of the process set, in its order; scatter: the same, on the
  // root. Empty: equal parts (scatter: as equal as possible).
  std::vector<int64_t> splits;

  // A tensor in the memory of a GPU (request.memory): the stream that has been given the work which writes `input` and
  // ends using `output`; nullptr is the default stream. The operation comes after that work on the device.
  void* stream = nullptr;

  // A tensor that the caller has not named (IsUnnamed): its number, from 1, among this rank's unnamed tensors in the
  // process set. If its name is in flight, it is submitted as soon as that is complete. 0: it has a name.
  uint64_t unnamed_call = 0;

  // Whether the error of rounding to the wire's format is added to the next contribution of the same name.
  enum class ErrorFeedback : uint8_t { kOff, kOn } error_feedback = ErrorFeedback::kOff;
};

// The process sets that trainer threads see: as far as this rank has carried out the agreed changes.
//
// Thread-safe.
class ProcessSets {
 public:
  explicit ProcessSets(int world_size) : table_(world_size), global_(table_.Find(kGlobalProcessSet)) {}

  // Errors: INVALID_ARGUMENT that tells a set that was removed from one that never was.
  absl::StatusOr<std::shared_ptr<const Group>> Find(ProcessSetId id) const;

  // All ranks: set 0, which is always there.
  const Group& global() const { return *global_; }

  // The set whose ranks remove set `id` together: set 0, or the set itself if its members have created it.
  ProcessSetId RemoversOf(ProcessSetId id) const;

  // Of the sets that there are, ascending.
  std::vector<ProcessSetId> Ids() const;

  // Takes note of a response that adds or removes a set. Only the progress thread (progress_engine.h).
  absl::Status Apply(const Response& response);

 private:
  mutable Mutex mu_;
  ProcessSetTable table_ ABSL_GUARDED_BY(mu_);
  const std::shared_ptr<const Group> global_;  // which is never removed
};

// `status` as an error of the tensor of this name; OK stays OK. Without the name if there is no memory for the text.
absl::Status AboutTensor(const std::string& name, const absl::Status& status);

// `status` of an operation with the number of its call, if it has no name that the caller could know it by.
absl::Status AboutCall(const Submission& submission, const absl::Status& status);

// The rank that submits, and its job.
struct Submitter {
  RankId rank = 0;
  int world_size = 1;
  const ProcessSets* process_sets = nullptr;  // not owned
};

// Whether `submission` makes sense by itself; whether it agrees with the other ranks' is the negotiation's business.
// Errors: INVALID_ARGUMENT that names the tensor, the mistake and the remedy.
absl::Status CheckSubmission(const Submission& submission, const Submitter& submitter);

// CheckSubmission of each; and groups of tensors must be complete, for they run as a whole.
absl::Status CheckSubmissions(absl::Span<const Submission> submissions, const Submitter& submitter);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_SUBMISSION_H_
