// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_OPERATIONS_H_
#define RONDA_RUNTIME_ENGINE_OPERATIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/engine/data_plane.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/tensor_request.h"

namespace ronda {

// A bucket that is being carried out, as one rank sees it. A rank that takes no part (it is not in the process set, or
// has joined) makes the same calls to the communicator, without buffers.
//
// Owns nothing.
struct BucketRun {
  const AgreedBucket& bucket;
  CallInfo info;
  std::optional<int> position;                     // among the participants; nullopt: this rank takes no part
  absl::Span<const TensorEntry* const> entries{};  // this rank's, by response; empty if it takes no part
  absl::Span<OperationResult> results{};           // for the handles, by response; empty if it takes no part

  bool takes_part() const { return position.has_value(); }
  size_t size() const { return bucket.responses.size(); }
  const TensorRequest& request(size_t i) const { return bucket.responses[i]->request; }

  // REQUIRES: takes_part().
  const Submission& submission(size_t i) const { return entries[i]->submission; }

  int participants() const { return bucket.participants->size(); }

  // How many ranks an average counts.
  int averaged_over() const {
    const bool counts_joined = bucket.absent == TensorRequest::Absent::kCountedAsZeros;
    return counts_joined ? bucket.members->size() : participants();
  }

  // The position of `rank` among the participants.
  // REQUIRES: `rank` is a participant. The negotiation has failed operations whose root has joined.
  int PositionOf(RankId rank) const { return *bucket.participants->PositionOf(rank); }
};

// The number of elements of a row (one unit of the first dimension), and the number of their bytes.
// REQUIRES: the shape has a first dimension.
size_t RowElements(const TensorRequest& request);
size_t RowBytes(const TensorRequest& request);

// The rows that the member at `position` of `members` gets when `rows` are split as evenly as possible: the first rows
// % members members get one more.
struct RowRange {
  int64_t begin = 0;
  int64_t count = 0;
};
RowRange EvenSplit(int64_t rows, int members, int position);

// Keeps a residual for each tensor that requests it: the sum of what was lost so far when this rank's contributions
// were rounded to the wire's format. The next contribution adds it. (The rounding of the reduced value is not
// corrected: its error is equal on all ranks, and no rank owns it.)
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class ErrorFeedback {
 public:
  // Allocates zeroed memory for the residual of a tensor, in the tensor's memory.
  using Allocate = std::function<absl::StatusOr<ResultData>(absl::string_view tensor, size_t bytes)>;

  explicit ErrorFeedback(Allocate allocate) : allocate_(std::move(allocate)) {}

  // The residual of a tensor of `count` elements. It is zero at first, and after each change of the count. Valid until
  // the next call for this tensor, or Drop.
  // Errors: the errors of Allocate.
  absl::StatusOr<float*> Residual(TensorKeyView key, size_t count);

  // Forgets all tensors of a process set.
  void Drop(ProcessSetId process_set);

 private:
  struct Entry {
    ResultData values;
    size_t count = 0;
  };

  const Allocate allocate_;
  TensorKeyMap<Entry> entries_;
};

// Carries out buckets of allreduce, reduce and reducescatter: one Reduce, or one Adasum, for any number of tensors.
//
// If overflow is to be detected, all participants learn of a non-finite element in any rank's part of the result. An
// allreduce leaves the same bits on all ranks, so each rank examines its own result. For the other operations, the
// participants learn it from a second, tiny reduction.
//
// Thread-compatible: used by the progress thread (progress_engine.h). The plane is not owned.
class Reductions {
 public:
  explicit Reductions(DataPlane* plane)
      : plane_(plane),
        feedback_([plane](absl::string_view tensor, size_t bytes) { return plane->AllocateZeros(tensor, bytes); }) {}

  // Errors: the communicator's errors; RESOURCE_EXHAUSTED if there is no memory for a result.
  absl::Status Run(const BucketRun& run);

  // The process set was removed: forgets the residuals of its tensors.
  void Drop(ProcessSetId process_set) { feedback_.Drop(process_set); }

 private:
  // A root's result that must not be written to the output yet, because the output is where the input is, and not all
  // of the input has been read.
  struct Staged {
    ResultData data;
    void* output;
    size_t bytes;
  };

  absl::Status PrepareSegments(const BucketRun& run);
  absl::Status PrepareOwnSegment(const BucketRun& run, size_t i, Segment* segment);
  absl::Status PreparePart(const BucketRun& run, size_t i, Segment* segment);
  absl::Status Reduce(const BucketRun& run);
  absl::Status DetectOverflow(const BucketRun& run);
  absl::Status VoteOnOverflow(const BucketRun& run, uint8_t* flags);

  DataPlane* const plane_;
  ErrorFeedback feedback_;
  std::vector<Segment> segments_;  // kept for its memory, like the next two
  std::vector<Staged> staged_;     // empty between calls
  std::vector<TensorView> parts_;  // by response: this rank's part of the result
};

// Carries out the operations that move tensors without computing: broadcast, allgather, gather, scatter, alltoall,
// send/recv and barrier, with one call to the communicator per tensor.
//
// In an alltoall or scatter only the senders know how the rows are split, but the communicator needs the split on every
// rank of the job. So the splits travel first, over the whole job.
//
// Thread-compatible: used by the progress thread (progress_engine.h). The plane and `host`, the communicator for the
// host's memory, are not owned.
class Exchanges {
 public:
  // Arrays that an operation needs while it runs.
  struct Scratch {
    std::vector<int64_t> rows;    // by participant
    std::vector<int64_t> splits;  // [sender * participants + receiver], in rows
    std::vector<size_t> bytes;
    std::vector<size_t> parts;  // bytes that this rank receives, by participant
  };

  Exchanges(DataPlane* plane, Communicator* host) : plane_(plane), host_(host) {}

  // Errors: the communicator's errors; RESOURCE_EXHAUSTED if there is no memory for a result.
  absl::Status Run(const BucketRun& run);

 private:
  DataPlane* const plane_;
  Communicator* const host_;
  Scratch scratch_;  // kept for its memory
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_OPERATIONS_H_
