#ifndef RONDA_KERNELS_CPU_NON_FINITE_H_
#define RONDA_KERNELS_CPU_NON_FINITE_H_

#include <cstddef>

#include "kernels/dtype.h"

namespace ronda::kernels {

// Whether any of `count` elements, any alignment, is an infinity or NaN. False for integers and bool.
bool HasNonFinite(const void* data, DType dtype, size_t count);

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_NON_FINITE_H_
