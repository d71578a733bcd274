#ifndef RONDA_KERNELS_CPU_INTEGER_SCALE_H_
#define RONDA_KERNELS_CPU_INTEGER_SCALE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/scale.h"

namespace ronda::kernels {

// The integer nearest to `value` towards zero, or the limit of T that it exceeds; 0 for NaN. (Constant expressions are
// for GPUs too: hence nothing of <cmath>.)
template <class T>
constexpr T SaturatingTruncate(double value) {
  // 2^bits is a double, T's maximum need not be: the comparison would round it up.
  constexpr double kLimit = 2.0 * static_cast<double>(T{1} << (std::numeric_limits<T>::digits - 1));
  if (value >= kLimit) return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return value == value ? static_cast<T>(value) : T{0};
}

// Scales one element as scale.h says.
template <class T>
constexpr T ScaleInteger(T value, const Scale& scale) {
  using Widest = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  if (scale.multiplier == 1.0) return static_cast<T>(Widest{value} / static_cast<Widest>(scale.divisor));
  return SaturatingTruncate<T>(static_cast<double>(value) * scale.multiplier / static_cast<double>(scale.divisor));
}

// Scales `count` elements of type T, not necessarily aligned; `src` may equal `dst`.
template <class T>
void ScaleIntegers(const void* src, void* dst, size_t count, const Scale& scale) {
  const char* from = static_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    value = ScaleInteger(value, scale);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_INTEGER_SCALE_H_
