#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_VOTE_VALUES_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_VOTE_VALUES_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "runtime/cuda/device.h"

namespace ronda {

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

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_VOTE_VALUES_H_
