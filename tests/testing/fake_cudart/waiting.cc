// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_cudart/waiting.h"

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>

#include "tests/testing/fake_cudart/fake_device.h"

namespace ronda::testing {
namespace {

struct Pinned {
  std::mutex mu;
  std::map<uintptr_t, size_t> bytes;  // by address
};

Pinned& AllPinned() {
  static auto* const pinned = new Pinned;
  return *pinned;
}

}  // namespace

int WaitForStream(void* stream) {
  const auto done = std::make_shared<std::promise<void>>();
  const int error = FakeDevices::Get().Enqueue(stream, [done] { done->set_value(); });
  if (error == 0) done->get_future().wait();
  return error;
}

void HostMemory::Add(const void* memory, size_t bytes) {
  Pinned& pinned = AllPinned();
  const std::lock_guard<std::mutex> lock(pinned.mu);
  pinned.bytes[reinterpret_cast<uintptr_t>(memory)] = bytes;
}

void HostMemory::Remove(const void* memory) {
  Pinned& pinned = AllPinned();
  const std::lock_guard<std::mutex> lock(pinned.mu);
  pinned.bytes.erase(reinterpret_cast<uintptr_t>(memory));
}

bool HostMemory::IsPinned(const void* address) {
  Pinned& pinned = AllPinned();
  const auto number = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard<std::mutex> lock(pinned.mu);
  const auto next = pinned.bytes.upper_bound(number);
  if (next == pinned.bytes.begin()) return false;
  const auto& [begin, bytes] = *std::prev(next);
  return number - begin < bytes;
}

}  // namespace ronda::testing
