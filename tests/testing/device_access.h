#ifndef RONDA_TESTS_TESTING_DEVICE_ACCESS_H_
#define RONDA_TESTS_TESTING_DEVICE_ACCESS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "runtime/cuda/device.h"

namespace ronda::testing {

// Reads and writes a device's memory, whatever the device is, in the order of a stream. What goes wrong fails the test.
//
// Thread-compatible. The stream must outlive it.
class DeviceAccess {
 public:
  DeviceAccess(std::shared_ptr<Device> device, StreamHandle stream) : device_(std::move(device)), stream_(stream) {}

  // Memory that it allocates must not outlive the device.
  DeviceMemory Allocate(size_t bytes);

  void Write(void* memory, absl::string_view content);
  std::string Read(const void* memory, size_t bytes);

  // Waits until the stream has done everything it was given.
  void Finish();

 private:
  void Copy(void* dst, const void* src, size_t bytes);
  void MakeRoom(size_t bytes);

  const std::shared_ptr<Device> device_;
  const StreamHandle stream_;
  DeviceMemory pinned_;  // what is copied goes through it
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_DEVICE_ACCESS_H_
