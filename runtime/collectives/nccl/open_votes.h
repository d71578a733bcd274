#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_OPEN_VOTES_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_OPEN_VOTES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/collectives/communicator.h"
#include "runtime/cuda/device.h"

namespace ronda {

// A vote whose outcome the device writes to a word of the host's memory.
class DeviceVote : public OpenVote {
 public:
  // Keeps what the memory of `decision` is in.
  DeviceVote(std::shared_ptr<const void> owner, uint32_t* decision) : owner_(std::move(owner)), decision_(decision) {}

  Outcome outcome() const override;

  // Where the device writes 1 or 2 (kernels/cuda/calls.h).
  uint32_t* decision() const { return decision_; }

  // It becomes open again. REQUIRES: its outcome is known, and nobody looks at it.
  void Reopen();

 private:
  const std::shared_ptr<const void> owner_;
  uint32_t* const decision_;
};

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
  absl::StatusOr<std::shared_ptr<DeviceVote>> New();

 private:
  // Memory for the words of several votes, and the device that it is of.
  struct Words {
    std::shared_ptr<Device> device;
    DeviceMemory memory;
    size_t used_bytes = 0;
  };

  absl::StatusOr<std::shared_ptr<DeviceVote>> Add();

  const std::shared_ptr<Device> device_;
  std::vector<std::shared_ptr<DeviceVote>> votes_;
  size_t next_ = 0;               // the one that was handed out longest ago
  std::shared_ptr<Words> words_;  // of the newest
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_OPEN_VOTES_H_
