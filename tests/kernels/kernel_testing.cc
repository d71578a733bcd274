// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/kernel_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "hwy/highway.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::kernels {
namespace {

constexpr uint8_t kGuard = 0xA5;
constexpr size_t kGuardBytes = 64;

bool IsNan(const void* buffer, DType dtype, size_t index) {
  return IsFloatingPoint(dtype) && std::isnan(testing::ReadElement(buffer, dtype, index));
}

std::string Hex(const uint8_t* bytes, size_t size) {
  std::string text;
  for (size_t i = size; i > 0; --i) absl::StrAppend(&text, absl::Hex(bytes[i - 1], absl::kZeroPad2));
  return text;
}

}  // namespace

std::vector<int64_t> SimdTargets() { return hwy::SupportedAndGeneratedTargets(); }

ForcedTarget::ForcedTarget(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

ForcedTarget::~ForcedTarget() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

Buffer::Buffer(DType dtype, size_t count, size_t misalignment) : size_(count * SizeOf(dtype)) {
  bytes_.assign(size_ + 3 * kGuardBytes, kGuard);
  const auto address = reinterpret_cast<uintptr_t>(bytes_.data()) + kGuardBytes;
  offset_ = kGuardBytes + (kGuardBytes - address % kGuardBytes) % kGuardBytes + misalignment;
}

bool Buffer::GuardsIntact() const {
  const auto is_guard = [](uint8_t byte) { return byte == kGuard; };
  const auto begin = bytes_.begin() + static_cast<ptrdiff_t>(offset_);
  return std::all_of(bytes_.begin(), begin, is_guard) &&
         std::all_of(begin + static_cast<ptrdiff_t>(size_), bytes_.end(), is_guard);
}

void FillRandom(Random& random, Numbers numbers, DType dtype, size_t count, void* buffer) {
  auto* bytes = static_cast<uint8_t*>(buffer);
  const size_t size = SizeOf(dtype);
  std::uniform_real_distribution<double> ordinary(-2.0, 2.0);
  for (size_t i = 0; i < count; ++i) {
    if (numbers == Numbers::kOrdinary && IsFloatingPoint(dtype)) {
      testing::WriteElement(buffer, dtype, i, ordinary(random));
      continue;
    }
    do {
      const uint64_t bits = random();
      std::memcpy(bytes + i * size, &bits, size);
    } while (numbers == Numbers::kNoNan && IsNan(buffer, dtype, i));
    // Makes a quarter of the bools false, because otherwise only one in 256 would be.
    if (dtype == DType::kBool && random() % 4 == 0) bytes[i] = 0;
  }
}

std::string Difference(DType dtype, size_t count, const void* expected, const void* actual) {
  const size_t size = SizeOf(dtype);
  if (count == 0 || std::memcmp(expected, actual, count * size) == 0) return "";
  for (size_t i = 0; i < count; ++i) {
    const auto* want = static_cast<const uint8_t*>(expected) + i * size;
    const auto* got = static_cast<const uint8_t*>(actual) + i * size;
    if (std::memcmp(want, got, size) == 0) continue;
    if (IsNan(expected, dtype, i) && IsNan(actual, dtype, i)) continue;
    return absl::StrCat("element ", i, " of ", count, " is 0x", Hex(got, size), ", not 0x", Hex(want, size), " (",
                        testing::ReadElement(got, dtype, 0), ", not ", testing::ReadElement(want, dtype, 0), ")");
  }
  return "";
}

}  // namespace ronda::kernels
