// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_ADASUM_OPS_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_ADASUM_OPS_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "runtime/collectives/adasum.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/device/device_blocks.h"

namespace ronda {

// Carries out the Adasum operations with kernels on one stream of a device. No call waits for the stream.
//
// The scratch memory grows to the largest size that was ever needed, and is kept. So a training step whose tensors are
// no larger than before allocates nothing.
//
// Thread-compatible. The stream must outlive this object, and must have ended its work before this object is destroyed.
class DeviceAdasumOps : public AdasumOps {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    std::shared_ptr<DeviceBlocks> blocks;  // of the device's memory
    StreamMarks* marks = nullptr;          // of the stream; not owned; nullptr: no marks
  };

  explicit DeviceAdasumOps(Options options) : options_(std::move(options)) {}

  absl::StatusOr<std::byte*> Allocate(const Need& need) override;
  void Release() override {}
  absl::Status Pack(const kernels::cuda::PackCall& call) override;
  absl::Status Unpack(const kernels::cuda::UnpackCall& call) override;
  absl::Status Dots(const kernels::cuda::DotsCall& call) override;
  absl::Status Combine(const kernels::cuda::CombineCall& call) override;

 private:
  // Calls `function`, which enqueues a kernel on the stream.
  template <typename Function>
  absl::Status Launch(StreamPhase phase, absl::string_view what, const Function& function);

  // Makes sure that `block` has at least `bytes`. All uses of `block` and of its replacement are on one stream, so they
  // do not overlap.
  absl::Status Grow(ResultData& block, size_t bytes, absl::string_view purpose);

  const Options options_;
  ResultData memory_;
  ResultData scratch_;  // of dot products, which use it one after the other
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_ADASUM_OPS_H_
