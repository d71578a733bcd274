#ifndef RONDA_KERNELS_CPU_SCALE_H_
#define RONDA_KERNELS_CPU_SCALE_H_

#include <cstdint>
#include <limits>
#include <type_traits>

namespace ronda::kernels {

// The factor and the divisor of an element.
//
// Floating-point types multiply by multiplier / divisor, computed once in fp64 and rounded to the type the arithmetic
// is done in (fp32 for 16-bit types). Integer types compute (x * multiplier) / divisor in fp64 and round towards zero,
// saturating at the type's limits; with multiplier 1 the division is the exact integer division. bool ignores scales.
struct Scale {
  double multiplier = 1.0;
  int64_t divisor = 1;  // the number of ranks for an average; > 0

  constexpr bool IsIdentity() const { return multiplier == 1.0 && divisor == 1; }

  // The factor of floating-point elements. (Where a reduction takes 70 ns, a division counts.)
  constexpr double Factor() const { return divisor == 1 ? multiplier : multiplier / static_cast<double>(divisor); }
};

// The integer nearest to `value` towards zero, or the limit of T that it exceeds; 0 for NaN. (GPUs evaluate
// this too, so it uses nothing of <cmath>.)
template <class T>
constexpr T SaturatingTruncate(double value) {
  // 2^bits is a double. T's maximum need not be one: a comparison with it would round it up.
  constexpr double kLimit = 2.0 * static_cast<double>(T{1} << (std::numeric_limits<T>::digits - 1));
  if (value >= kLimit) return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return value == value ? static_cast<T>(value) : T{0};
}

// Scales one element as the comment on Scale says.
template <class T>
constexpr T ScaleInteger(T value, const Scale& scale) {
  using Widest = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  if (scale.multiplier == 1.0) return static_cast<T>(Widest{value} / static_cast<Widest>(scale.divisor));
  return SaturatingTruncate<T>(static_cast<double>(value) * scale.multiplier / static_cast<double>(scale.divisor));
}

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_SCALE_H_
