// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_AGREED_PLACES_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_AGREED_PLACES_H_

#include <cstddef>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "runtime/collectives/communicator.h"
#include "runtime/step/vote.h"

namespace ronda {

// Remembers at which offsets buckets lie in the memory that all ranks have registered together (LaneMemory).
//
// NCCL needs the same offset on all ranks. A bucket's vote has room for only one bit about this: whether the bucket is
// still at the offset on which the ranks have agreed last. If some ranks say no, and all say that the bucket is in the
// memory, the ranks compare their offsets. So an agreed offset is the same number on all ranks, and an approved bucket
// is at this offset on all ranks.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class AgreedPlaces {
 public:
  // Returns this rank's vote about a bucket that is at `offset` on this rank: kAdjacent if the ranks have agreed on
  // this offset, else kMoved. `bucket` is the name of its first tensor.
  BucketLayout LayoutAt(const std::string& bucket, size_t offset) const;

  // Compares the offsets of all ranks. Returns kAdjacent if they are equal, else kAny. Rank 0 logs the first
  // difference. All ranks must call it, after a vote that ended with kMoved. Errors: those of `host`.
  absl::StatusOr<BucketLayout> Compare(Communicator& host, const CallInfo& info, const std::string& bucket,
                                       size_t offset);

 private:
  std::unordered_map<std::string, size_t> offsets_;  // by bucket; the same on all ranks
  bool has_logged_ = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_AGREED_PLACES_H_
