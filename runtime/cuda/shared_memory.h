// SPDX-License-Identifier: Apache-2.0

// Device memory that several ranks of a host share, in one process or several.
#ifndef RONDA_RUNTIME_CUDA_SHARED_MEMORY_H_
#define RONDA_RUNTIME_CUDA_SHARED_MEMORY_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/unique_fd.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Returns the granularity of shared memory sizes, in bytes.
// Errors: INTERNAL with the driver's text if the device cannot share memory, or its streams cannot operate on words.
absl::StatusOr<size_t> SharingUnit(Device& device);

// Allocates device memory that other processes can map, and returns its file. The memory exists as long as any process
// has the file open or mapped, even after this process dies. `bytes` must be a multiple of SharingUnit().
// Errors: RESOURCE_EXHAUSTED with the size and `purpose`.
absl::StatusOr<UniqueFd> AllocateShared(Device& device, size_t bytes, absl::string_view purpose);

// The memory of several files from AllocateShared(), mapped for one device at consecutive addresses.
//
// Immutable, thus thread-safe. The device must outlive the mapping, and must have finished its work on the memory
// before the destructor runs. If the device has been abandoned, the destructor leaves the memory mapped.
class SharedMapping {
 public:
  // Maps the files, of `bytes` bytes each, in order. The files may be closed afterwards.
  // Errors: INTERNAL with the driver's text, for example if the device cannot access another device's memory.
  static absl::StatusOr<std::unique_ptr<SharedMapping>> Map(Device* device, absl::Span<const UniqueFd> files,
                                                            size_t bytes);
  ~SharedMapping();
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  std::byte* data() const { return data_; }

 private:
  SharedMapping(Device* device, std::byte* data, int count, size_t bytes)
      : device_(device), data_(data), count_(count), bytes_(bytes) {}

  Device* const device_;
  std::byte* const data_;
  const int count_;
  const size_t bytes_;  // of each file
};

// Whole pages of host memory that devices can address.
//
// Immutable, thus thread-safe. The device and the memory must outlive it, and the device must have finished its work on
// the memory before the destructor runs. If the device has been abandoned, the memory stays registered.
class RegisteredMemory {
 public:
  // Errors: INTERNAL with the driver's text.
  static absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(Device* device, void* memory, size_t bytes);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  // Returns the memory's address for devices.
  std::byte* on_device() const { return on_device_; }

 private:
  RegisteredMemory(Device* device, void* memory, std::byte* on_device)
      : device_(device), memory_(memory), on_device_(on_device) {}

  Device* const device_;
  void* const memory_;
  std::byte* const on_device_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CUDA_SHARED_MEMORY_H_
