// SPDX-License-Identifier: Apache-2.0

// Memory that several ranks of a host use on their devices, in one process or in several.
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

// Returns the unit of the sizes of shared memory, in bytes.
// Errors: INTERNAL with the driver's text if the device cannot share memory, or its streams cannot work on words.
absl::StatusOr<size_t> SharingUnit(Device& device);

// Allocates memory of the device that other processes may map, and returns its file. The memory exists as long as a
// process has this file or has mapped it, even after the death of this process. `bytes` is a multiple of
// SharingUnit().
// Errors: RESOURCE_EXHAUSTED with the size and `purpose`.
absl::StatusOr<UniqueFd> AllocateShared(Device& device, size_t bytes, absl::string_view purpose);

// The memory of several files of AllocateShared, mapped for one device at consecutive addresses.
//
// Immutable, thus thread-safe. The device must outlive the mapping. Before the destructor, the device must have
// finished its work on the memory; if the device has been abandoned, the destructor leaves the memory mapped.
class SharedMapping {
 public:
  // Maps the files in their order, each with `bytes` bytes. The files may be closed afterwards.
  // Errors: INTERNAL with the driver's text, for example if the device cannot access the memory of another one.
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

// Whole pages of the host's memory that devices can address.
//
// Immutable, thus thread-safe. The device and the memory must outlive it. Before the destructor, the device must have
// finished its work on the memory; if the device has been abandoned, the memory stays registered.
class RegisteredMemory {
 public:
  // Errors: INTERNAL with the driver's text.
  static absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(Device* device, void* memory, size_t bytes);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  // Returns the address that devices use.
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
