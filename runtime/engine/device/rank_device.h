#ifndef RONDA_RUNTIME_ENGINE_DEVICE_RANK_DEVICE_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_RANK_DEVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/device_transport.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/device/ready_point.h"
#include "runtime/engine/submission.h"

namespace ronda {

// The device of this rank: that of the first tensor in the memory of one; it stays the same.
//
// Thread-safe.
class RankDevice {
 public:
  // `local_rank` says which device a rank takes that has no such tensor when the others have. `support` may be nullptr.
  RankDevice(std::shared_ptr<DeviceSupport> support, int local_rank)
      : support_(std::move(support)), local_rank_(local_rank) {}

  using Ready = std::shared_ptr<const ReadyPoint>;

  // Checks where the buffers are, and notes on the submissions' streams how far they have come: one point a submission,
  // or a nullptr for tensors of the host. Empty if all are of the host, which costs nothing.
  //
  // Errors: INVALID_ARGUMENT (memory of the host, or of another device than before; a stream whose work is being
  // captured into a graph), FAILED_PRECONDITION (no device), INTERNAL (the driver's). All name the tensor.
  absl::StatusOr<std::vector<Ready>> Admit(absl::Span<const Submission> submissions);

  // Has the device set memory of its own to zero, after what `stream` has been given so far.
  // Errors: as of Admit, without a tensor's name.
  absl::Status FillZero(void* buffer, size_t bytes, StreamHandle stream);

  // The device. If there has been no tensor yet, now chosen by the local rank.
  // Errors: why there is none.
  absl::StatusOr<std::shared_ptr<Device>> Get();

 private:
  // The device of this number is to be this rank's.
  absl::StatusOr<std::shared_ptr<Device>> Take(const ronda_cuda_plugin& plugin, int ordinal);
  absl::StatusOr<std::shared_ptr<Device>> CheckBuffers(const Submission& submission);
  // The device, of whose memory `buffer` has to be.
  absl::StatusOr<std::shared_ptr<Device>> CheckBuffer(const void* buffer);

  const std::shared_ptr<DeviceSupport> support_;
  const int local_rank_;
  std::atomic<uint64_t> noted_{0};  // points
  Mutex mu_;
  std::shared_ptr<Device> device_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_RANK_DEVICE_H_
