// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/kernels/cuda/runner.h"

namespace ronda::kernels::cuda {
namespace {

constexpr uint8_t kGuard = 0xA5;
constexpr size_t kGuardBytes = 64;
constexpr size_t kExtraBytes = 4 * kGuardBytes;

bool AreGuards(const uint8_t* begin, const uint8_t* end) {
  return std::all_of(begin, end, [](uint8_t byte) { return byte == kGuard; });
}

}  // namespace

SharedBytes::SharedBytes(size_t size, size_t misalignment)
    : size_(size), memory_(static_cast<uint8_t*>(AllocateShared(size + kExtraBytes))) {
  const size_t past = reinterpret_cast<uintptr_t>(memory_) % kGuardBytes;
  offset_ = kGuardBytes + (kGuardBytes - past) % kGuardBytes + misalignment;
  std::memset(memory_, kGuard, size + kExtraBytes);
}

SharedBytes::~SharedBytes() {
  if (memory_ != nullptr) ReleaseShared(memory_);
}

SharedBytes::SharedBytes(SharedBytes&& other) noexcept
    : size_(other.size_), offset_(other.offset_), memory_(std::exchange(other.memory_, nullptr)) {}

bool SharedBytes::GuardsIntact() const {
  return AreGuards(memory_, data()) && AreGuards(data() + size_, memory_ + size_ + kExtraBytes);
}

}  // namespace ronda::kernels::cuda
