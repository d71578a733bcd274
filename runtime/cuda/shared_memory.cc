// SPDX-License-Identifier: Apache-2.0

#include "runtime/cuda/shared_memory.h"

#include <fcntl.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/bytes_text.h"
#include "runtime/base/status_macros.h"

namespace ronda {

absl::StatusOr<size_t> SharingUnit(Device& device) {
  size_t bytes = 0;
  RONDA_RETURN_IF_ERROR(device.Call("sharing memory with other ranks",
                                    [&](const ronda_cuda_plugin& cuda) { return cuda.sharing_unit(&bytes); }));
  return bytes;
}

absl::StatusOr<UniqueFd> AllocateShared(Device& device, size_t bytes, absl::string_view purpose) {
  int file = -1;
  const absl::Status status =
      device.Call("allocating", [&](const ronda_cuda_plugin& cuda) { return cuda.allocate_shared(bytes, &file); });
  if (status.ok()) {
    fcntl(file, F_SETFD, FD_CLOEXEC);
    return UniqueFd(file);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(status.message(), ": ", BytesText(bytes), " of device memory for ", purpose));
}

absl::StatusOr<std::unique_ptr<SharedMapping>> SharedMapping::Map(Device* device, absl::Span<const UniqueFd> files,
                                                                  size_t bytes) {
  std::vector<int> numbers;
  numbers.reserve(files.size());
  for (const UniqueFd& file : files) numbers.push_back(file.get());
  const auto count = static_cast<int>(numbers.size());
  void* memory = nullptr;
  RONDA_RETURN_IF_ERROR(device->Call("mapping the memory of other ranks", [&](const ronda_cuda_plugin& cuda) {
    return cuda.map_shared(numbers.data(), count, bytes, &memory);
  }));
  return std::unique_ptr<SharedMapping>(new SharedMapping(device, static_cast<std::byte*>(memory), count, bytes));
}

SharedMapping::~SharedMapping() {
  device_->GiveBack("unmapping the memory of other ranks",
                    [this](const ronda_cuda_plugin& cuda) { return cuda.unmap_shared(data_, count_, bytes_); });
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredMemory::Register(Device* device, void* memory,
                                                                             size_t bytes) {
  void* on_device = nullptr;
  RONDA_RETURN_IF_ERROR(device->Call("registering memory of the host", [&](const ronda_cuda_plugin& cuda) {
    return cuda.register_host(memory, bytes, &on_device);
  }));
  return std::unique_ptr<RegisteredMemory>(new RegisteredMemory(device, memory, static_cast<std::byte*>(on_device)));
}

RegisteredMemory::~RegisteredMemory() {
  device_->GiveBack("ending a registration of memory",
                    [this](const ronda_cuda_plugin& cuda) { return cuda.unregister_host(memory_); });
}

}  // namespace ronda
