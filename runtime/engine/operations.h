// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_OPERATIONS_H_
#define RONDA_RUNTIME_ENGINE_OPERATIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
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

// A bucket that is being carried out, as one rank sees it. A rank takes no part in the bucket if it is not in the
// process set, or if it has joined. It then makes the same calls to the communicator, but without buffers.
//
// A BucketRun owns nothing.
struct BucketRun {
  const AgreedBucket& bucket;
  CallInfo info;
  std::optional<int> position;                     // among the participants; nullopt: this rank takes no part
  absl::Span<const TensorEntry* const> entries{};  // this rank's, by response; empty if it takes no part
  absl::Span<OperationResult> results{};           // for the handles, by response; empty if it takes no part
  BucketLayout layout = BucketLayout::kAny;        // as the ranks have agreed

  bool takes_part() const { return position.has_value(); }
  size_t size() const { return bucket.responses.size(); }
  const TensorRequest& request(size_t i) const { return bucket.responses[i]->request; }

  // REQUIRES: takes_part().
  const Submission& submission(size_t i) const { return entries[i]->submission; }

  int participants() const { return bucket.participants->size(); }

  // The number of ranks over which an average is taken.
  int averaged_over() const {
    const bool counts_joined = bucket.absent == TensorRequest::Absent::kCountedAsZeros;
    return counts_joined ? bucket.members->size() : participants();
  }

  // Returns the position of `rank` among the participants.
  // REQUIRES: `rank` is a participant. A root is always a participant here, because the negotiation refuses operations
  // whose root has joined.
  int PositionOf(RankId rank) const { return *bucket.participants->PositionOf(rank); }
};

// RowElements returns the number of elements of a row, which is one index of the first dimension. RowBytes returns the
// row's size in bytes.
// REQUIRES: the shape has a first dimension.
size_t RowElements(const TensorRequest& request);
size_t RowBytes(const TensorRequest& request);

// Which rows the member at `position` gets if `rows` rows are split as evenly as possible among `members` members. The
// first (rows % members) members get one row more than the others.
struct RowRange {
  int64_t begin = 0;
  int64_t count = 0;
};
RowRange EvenSplit(int64_t rows, int members, int position);

// Keeps a residual for each tensor that requests error feedback: the sum of the rounding errors so far, made when this
// rank's contributions were rounded to the wire format. The residual is added to the rank's next contribution. (The
// rounding error of the reduced value is not corrected: it is the same on all ranks, and belongs to no single rank.)
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class ErrorFeedback {
 public:
  // Allocates zeroed memory for the residual of a tensor, of the same kind as the tensor's memory.
  using Allocate = std::function<absl::StatusOr<ResultData>(absl::string_view tensor, size_t bytes)>;

  explicit ErrorFeedback(Allocate allocate) : allocate_(std::move(allocate)) {}

  // Returns the residual of a tensor with `count` elements. The residual is zero at first, and becomes zero again
  // whenever `count` changes. The pointer is valid until the next call for this tensor, or until Drop.
  // Errors: the errors of Allocate.
  absl::StatusOr<float*> Residual(TensorKeyView key, size_t count);

  // Deletes the residuals of all tensors of a process set.
  void Drop(ProcessSetId process_set);

 private:
  struct Entry {
    ResultData values;
    size_t count = 0;
  };

  const Allocate allocate_;
  TensorKeyMap<Entry> entries_;
};

// Carries out buckets of allreduce, reduce and reducescatter. One call of Reduce or Adasum covers all tensors of a
// bucket.
//
// If overflow detection is requested, all participants learn whether any rank's part of the result has an infinite or
// NaN element. After an allreduce, each rank examines its own result, because all ranks have the same bits. After a
// reduce or reducescatter, the participants exchange their flags in a second, very small reduction.
//
// Thread-compatible: used by the progress thread (progress_engine.h). Does not own the DataPlane.
class Reductions {
 public:
  explicit Reductions(DataPlane* plane)
      : plane_(plane),
        feedback_([plane](absl::string_view tensor, size_t bytes) { return plane->AllocateZeros(tensor, bytes); }) {}

  // Errors: the communicator's errors; RESOURCE_EXHAUSTED if there is no memory for a result.
  absl::Status Run(const BucketRun& run);

  // Deletes the residuals of a process set's tensors, because the process set was removed.
  void Drop(ProcessSetId process_set) { feedback_.Drop(process_set); }

 private:
  // A root's result that must not be written to the output yet, because the output is also the input buffer, and not
  // all of the input has been read.
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
// In an alltoall or scatter, only the senders know how the rows are split, but the communicator needs the split on
// every rank of the job. So the senders first send the splits to all ranks.
//
// Thread-compatible: used by the progress thread (progress_engine.h). Exchanges owns neither the DataPlane nor `host`,
// the communicator for host memory.
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
