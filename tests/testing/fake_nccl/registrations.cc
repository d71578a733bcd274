// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_nccl/registrations.h"

#include <cstdint>

#include "runtime/base/logging.h"
#include "tests/testing/fake_nccl/reports.h"

namespace ronda::testing {
namespace {

constexpr size_t kWindowAlignment = 4096;  // NCCL_WIN_REQUIRED_ALIGNMENT

}  // namespace

void Registrations::AddBlock(void* memory, size_t bytes) {
  const MutexLock lock(&mu_);
  blocks_[static_cast<char*>(memory)] = bytes;
  ++allocations_;
}

void Registrations::RemoveBlock(void* memory) {
  const MutexLock lock(&mu_);
  for (const auto& [registration, live] : live_) RONDA_CHECK(live.begin != memory);
  RONDA_CHECK(blocks_.erase(static_cast<char*>(memory)) == 1);
}

NcclResult Registrations::CheckWindow(NcclHandle comm, const void* memory, size_t bytes) {
  const auto* const begin = static_cast<const char*>(memory);
  const MutexLock lock(&mu_);
  for (const auto& [registration, live] : live_) {
    if (live.kind != Kind::kWindow || live.comm != comm) continue;
    if (begin >= live.begin + live.bytes || live.begin >= begin + bytes) continue;
    Report("memory is registered twice as a window of one communicator");
    return NcclResult::kInvalidUsage;
  }
  for (const auto& [start, size] : blocks_) {
    if (begin < start || begin + bytes > start + size) continue;
    return static_cast<size_t>(begin - start) % kWindowAlignment == 0 ? NcclResult::kSuccess
                                                                      : NcclResult::kInvalidArgument;
  }
  return NcclResult::kUnhandledCudaError;  // the driver has no allocation handle for other memory
}

void* Registrations::Add(Kind kind, NcclHandle comm, void* memory, size_t bytes) {
  const MutexLock lock(&mu_);
  if (kind == Kind::kWindow) ++windows_;
  const uint64_t window = kind == Kind::kWindow ? ++windows_of_[comm] : 0;
  void* const registration = reinterpret_cast<void*>(static_cast<uintptr_t>(++registrations_));  // any unique address
  live_[registration] = {
      .kind = kind, .comm = comm, .begin = static_cast<char*>(memory), .bytes = bytes, .window = window};
  return registration;
}

bool Registrations::Remove(Kind kind, NcclHandle comm, void* registration) {
  const MutexLock lock(&mu_);
  const auto found = live_.find(registration);
  if (found == live_.end() || found->second.comm != comm || found->second.kind != kind) return false;
  live_.erase(found);
  return true;
}

void Registrations::RemoveAll(NcclHandle comm) {
  const MutexLock lock(&mu_);
  windows_of_.erase(comm);
  std::erase_if(live_, [comm](const auto& live) { return live.second.comm == comm; });
}

NcclPath::Buffer Registrations::Find(NcclHandle comm, const void* data) {
  const auto* const at = static_cast<const char*>(data);
  const MutexLock lock(&mu_);
  NcclPath::Buffer found;
  for (const auto& [registration, memory] : live_) {
    if (memory.comm != comm || at < memory.begin || at >= memory.begin + memory.bytes) continue;
    if (found.kind == Kind::kWindow) break;  // a window is registered too, and has precedence
    found = {.kind = memory.kind, .window = memory.window, .offset = static_cast<uint64_t>(at - memory.begin)};
  }
  return found;
}

int Registrations::allocations() {
  const MutexLock lock(&mu_);
  return allocations_;
}
int Registrations::registrations() {
  const MutexLock lock(&mu_);
  return registrations_;
}
int Registrations::windows() {
  const MutexLock lock(&mu_);
  return windows_;
}

}  // namespace ronda::testing
