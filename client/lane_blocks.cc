// SPDX-License-Identifier: Apache-2.0

#include "client/lane_blocks.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "runtime/base/status_macros.h"

namespace ronda {

absl::StatusOr<void*> LaneBlocks::Allocate(const std::shared_ptr<LaneMemory>& memory, size_t bytes,
                                           StreamHandle stream) {
  RONDA_ASSIGN_OR_RETURN(void* const block, memory->Allocate(bytes, stream));
  absl::Cleanup free = [&] { memory->Free(block, stream).IgnoreError(); };  // if there is no memory for the entry
  const MutexLock lock(&mu_);
  blocks_.emplace(block, memory);
  std::move(free).Cancel();
  return block;
}

absl::Status LaneBlocks::Free(void* block, StreamHandle stream) {
  Blocks::node_type node;
  {
    const MutexLock lock(&mu_);
    node = blocks_.extract(block);
  }
  if (node.empty()) {
    return absl::InvalidArgumentError("no block of a lane's memory begins at this address, or it has been freed");
  }
  const absl::Status status = node.mapped()->Free(block, stream);
  if (status.ok()) return status;
  const MutexLock lock(&mu_);
  blocks_.insert(std::move(node));
  return status;
}

}  // namespace ronda
