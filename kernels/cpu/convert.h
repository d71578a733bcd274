#ifndef RONDA_KERNELS_CPU_CONVERT_H_
#define RONDA_KERNELS_CPU_CONVERT_H_

#include <cstddef>

#include "kernels/cpu/scale.h"
#include "kernels/dtype.h"

namespace ronda::kernels {

// True if Convert supports this pair: equal types, or both floating point.
constexpr bool IsConvertible(DType from, DType to) {
  return from == to || (IsFloatingPoint(from) && IsFloatingPoint(to));
}

// dst[i] = to<dst_dtype>(src[i] * scale), for i in [0, count), in one pass over memory: this is pack and unpack.
//
// Narrowing rounds once, to nearest even; out of range becomes infinity; NaN stays NaN (quiet). The scale is applied
// before rounding, in fp64 if either type is that, else in fp32. Results have the same bits on every CPU, except for
// which NaN a NaN is. `src` and `dst` may be equal when the element sizes are; otherwise they must not overlap. Neither
// needs any alignment.
//
// REQUIRES: IsConvertible(src_dtype, dst_dtype).
void Convert(const void* src, DType src_dtype, void* dst, DType dst_dtype, size_t count, const Scale& scale = {});

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_CONVERT_H_
