#ifndef RONDA_RUNTIME_ENGINE_BUCKET_RUN_H_
#define RONDA_RUNTIME_ENGINE_BUCKET_RUN_H_

#include <cstddef>
#include <memory>
#include <optional>

#include "absl/types/span.h"
#include "runtime/collectives/communicator.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/negotiation/messages.h"

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
  absl::Span<OperationResult> results{};           // what to leave with the handles, by response; empty likewise

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

  // The place of `rank` among the participants.
  // REQUIRES: it is one of them; the negotiation has failed operations whose root has joined.
  int PositionOf(RankId rank) const { return *bucket.participants->PositionOf(rank); }
};

// What one unit of the first dimension has: elements, and their bytes.
// REQUIRES: the shape has a first dimension.
size_t RowElements(const TensorRequest& request);
size_t RowBytes(const TensorRequest& request);

// The number of `rows` that the member at `position` of `members` gets when they are split as evenly as possible: the
// first rows % members get one more.
struct RowRange {
  int64_t begin = 0;
  int64_t count = 0;
};
RowRange EvenSplit(int64_t rows, int members, int position);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_BUCKET_RUN_H_
