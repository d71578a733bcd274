// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_DEVICE_VOTES_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_DEVICE_VOTES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "runtime/collectives/communicator.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Hands out votes and reuses those that have been released: it allocates only while more votes are in use than ever
// before. Votes should be released roughly in the order in which they were handed out, because one that is kept blocks
// the reuse of all later ones.
//
// Thread-compatible. The votes may outlive it.
class OpenVotes {
 public:
  explicit OpenVotes(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  // Returns an open vote. Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<OpenVote>> New();

 private:
  // Memory for the words of several votes, with its device.
  struct Words {
    std::shared_ptr<Device> device;
    DeviceMemory memory;
    size_t used_bytes = 0;
  };

  absl::StatusOr<std::shared_ptr<OpenVote>> Add();

  const std::shared_ptr<Device> device_;
  std::vector<std::shared_ptr<OpenVote>> votes_;
  size_t next_ = 0;               // the vote that was handed out first
  std::shared_ptr<Words> words_;  // the newest memory
};

// Zero and one as elements of every type, in the device's memory.
//
// Immutable, thus thread-safe. The device must outlive it.
class VoteValues {
 public:
  // The values are ready for all later work of `stream`. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<VoteValues> Create(Device* device, StreamHandle stream);

  const void* Zero() const { return memory_.data(); }
  const void* One(DType dtype) const { return memory_.data() + (1 + static_cast<size_t>(dtype)) * kBytes; }

 private:
  static constexpr size_t kBytes = 8;

  VoteValues(DeviceMemory source, DeviceMemory memory) : source_(std::move(source)), memory_(std::move(memory)) {}

  DeviceMemory source_;  // pinned; the stream copies from it at some time
  DeviceMemory memory_;  // zero, then the one of each type
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_DEVICE_VOTES_H_
