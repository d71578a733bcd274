// SPDX-License-Identifier: Apache-2.0

// Helpers for the kernels' tests.
#ifndef RONDA_TESTS_KERNELS_KERNEL_TESTING_H_
#define RONDA_TESTS_KERNELS_KERNEL_TESTING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace ronda::kernels {

using Random = std::mt19937_64;

inline constexpr auto kAllDTypes = [] {
  std::array<DType, kDTypeCount> all{};
  for (int i = 0; i < kDTypeCount; ++i) all[i] = static_cast<DType>(i);
  return all;
}();
inline constexpr DType kFloatDTypes[] = {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64};
inline constexpr ReduceOp kAllOps[] = {ReduceOp::kSum,    ReduceOp::kMin,   ReduceOp::kMax,   ReduceOp::kProduct,
                                       ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor};
static_assert(std::size(kAllOps) == kReduceOpCount);

// Returns the SIMD targets, as bits of Highway, that this CPU supports and the kernels were compiled for.
std::vector<int64_t> SimdTargets();

// Makes kernels run on `target` while the object exists.
class ForcedTarget {
 public:
  explicit ForcedTarget(int64_t target);
  ~ForcedTarget();
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

// Elements that start `misalignment` bytes after an aligned address, between guard bytes that must not change.
class Buffer {
 public:
  Buffer(DType dtype, size_t count, size_t misalignment = 0);

  uint8_t* data() { return bytes_.data() + offset_; }
  const uint8_t* data() const { return bytes_.data() + offset_; }
  size_t size() const { return size_; }

  // Returns whether the guard bytes are unchanged.
  bool GuardsIntact() const;

 private:
  size_t size_;  // in bytes
  size_t offset_;
  std::vector<uint8_t> bytes_;
};

enum class Numbers {
  kOrdinary,  // in floating point, sums and products of ten numbers stay in range
  kAnyBits,   // every pattern: subnormals, infinities, NaN
  kNoNan,     // every pattern but NaN
};

void FillRandom(Random& random, Numbers numbers, DType dtype, size_t count, void* buffer);

// Returns "" if `actual` equals `expected` bit for bit, and otherwise the first difference. All NaNs count as equal,
// because the compiler chooses which of two NaNs an operation returns.
std::string Difference(DType dtype, size_t count, const void* expected, const void* actual);

}  // namespace ronda::kernels

#endif  // RONDA_TESTS_KERNELS_KERNEL_TESTING_H_
