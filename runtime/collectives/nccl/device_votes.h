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

// Hands out votes, and takes those again that everybody has let go of: once as many are in use as ever were, nothing is
// allocated. Votes are to be let go of in about the order in which they were handed out: one that is kept keeps all
// from being taken again.
//
// Thread-compatible. The votes may outlive it.
class OpenVotes {
 public:
  explicit OpenVotes(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  // A vote that is open.
  // Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<OpenVote>> New();

 private:
  // Memory for the words of several votes, and the device that it is of.
  struct Words {
    std::shared_ptr<Device> device;
    DeviceMemory memory;
    size_t used_bytes = 0;
  };

  absl::StatusOr<std::shared_ptr<OpenVote>> Add();

  const std::shared_ptr<Device> device_;
  std::vector<std::shared_ptr<OpenVote>> votes_;
  size_t next_ = 0;               // the one that was handed out longest ago
  std::shared_ptr<Words> words_;  // of the newest
};

// Zero and one as elements of every type, in the device's memory.
//
// Immutable, thus thread-safe. The device must outlive it.
class VoteValues {
 public:
  // They are there for what `stream` is given from then on.
  // Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<VoteValues> Create(Device* device, StreamHandle stream);

  const void* Zero() const { return memory_.data(); }
  const void* One(DType dtype) const { return memory_.data() + (1 + static_cast<size_t>(dtype)) * kBytes; }

 private:
  static constexpr size_t kBytes = 8;

  VoteValues(DeviceMemory source, DeviceMemory memory) : source_(std::move(source)), memory_(std::move(memory)) {}

  DeviceMemory source_;  // pinned, from which the stream copies at some time
  DeviceMemory memory_;  // zero, and then one of each type
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_DEVICE_VOTES_H_
