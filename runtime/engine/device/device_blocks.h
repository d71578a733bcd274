#ifndef RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_BLOCKS_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_BLOCKS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/mutex.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/result_data.h"

namespace ronda {

// Memory that a device can address, in blocks that are used again: allocating may wait for the device.
//
// Whoever takes a block writes it by work on the rank's one stream; so what that stream still does with a block that is
// given back comes before. What other streams do with it must be done by then.
//
// Thread-safe. Keeps the device.
class DeviceBlocks : public ResultPool, public std::enable_shared_from_this<DeviceBlocks> {
 public:
  static std::shared_ptr<DeviceBlocks> Create(std::shared_ptr<Device> device, ronda_cuda_memory kind) {
    return std::shared_ptr<DeviceBlocks>(new DeviceBlocks(std::move(device), kind));
  }

  // Errors: RESOURCE_EXHAUSTED that says what for.
  absl::StatusOr<ResultData> Take(size_t bytes, absl::string_view purpose);

  void Release(std::byte* data, size_t bytes) override;

 private:
  DeviceBlocks(std::shared_ptr<Device> device, ronda_cuda_memory kind) : device_(std::move(device)), kind_(kind) {}

  ResultData HandOutLocked(DeviceMemory block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // These may wait for the device, which others who give blocks back must not have to.
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes, absl::string_view purpose) ABSL_LOCKS_EXCLUDED(mu_);
  // False: there are none.
  bool FreeIdle() ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<Device> device_;
  const ronda_cuda_memory kind_;
  Mutex mu_;
  std::map<size_t, std::vector<DeviceMemory>> idle_ ABSL_GUARDED_BY(mu_);  // by size
  std::unordered_map<const std::byte*, DeviceMemory> taken_ ABSL_GUARDED_BY(mu_);
  size_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t taken_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t most_taken_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_BLOCKS_H_
