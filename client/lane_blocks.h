// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_CLIENT_LANE_BLOCKS_H_
#define RONDA_CLIENT_LANE_BLOCKS_H_

#include <cstddef>
#include <memory>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/device/lane_memory.h"

namespace ronda {

// The blocks of lanes' memory that C callers use, by address. The memory of a block lives as long as the block, even if
// the lane has been closed or the job has ended.
//
// Thread-safe.
class LaneBlocks {
 public:
  // Errors: as LaneMemory::Allocate.
  absl::StatusOr<void*> Allocate(const std::shared_ptr<LaneMemory>& memory, size_t bytes, StreamHandle stream);

  // Errors: as LaneMemory::Free.
  absl::Status Free(void* block, StreamHandle stream);

 private:
  using Blocks = std::unordered_map<const void*, std::shared_ptr<LaneMemory>>;

  Mutex mu_;
  Blocks blocks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_CLIENT_LANE_BLOCKS_H_
