#ifndef RONDA_KERNELS_CPU_SCALE_H_
#define RONDA_KERNELS_CPU_SCALE_H_

#include <cstdint>

namespace ronda::kernels {

// What an element is multiplied and divided by.
//
// Floating-point types multiply by multiplier / divisor, computed once in fp64 and rounded to the type the arithmetic
// is done in (fp32 for 16-bit types). Integer types compute (x * multiplier) / divisor in fp64 and round towards zero,
// saturating at the type's limits; with multiplier 1 the division is the exact integer division. bool ignores scales.
struct Scale {
  double multiplier = 1.0;
  int64_t divisor = 1;  // the number of ranks for an average; > 0

  constexpr bool IsIdentity() const { return multiplier == 1.0 && divisor == 1; }

  // What floating-point elements are multiplied by. (Where a reduction takes 70 ns, a division counts.)
  constexpr double Factor() const { return divisor == 1 ? multiplier : multiplier / static_cast<double>(divisor); }
};

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_SCALE_H_
