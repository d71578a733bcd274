// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_KERNELS_CPU_CONVERT_H_
#define RONDA_KERNELS_CPU_CONVERT_H_

#include <cstddef>

#include "kernels/dtype.h"

namespace ronda::kernels {

// Returns whether Convert() supports this pair of types: equal types, or two floating-point types.
constexpr bool IsConvertible(DType from, DType to) {
  return from == to || (IsFloatingPoint(from) && IsFloatingPoint(to));
}

// Computes dst[i] = to<dst_dtype>(src[i] * scale), for i in [0, count), in one pass over memory. Used to pack and
// unpack tensors.
//
// Conversions to a narrower type round once, to nearest even. Numbers out of range become infinity, and NaNs become
// quiet NaNs. The scale is applied before rounding, in fp64 if either type is fp64, else in fp32. Results have the same
// bits on every CPU, except for NaN payloads. `src` may equal `dst` if both types have the same size; otherwise they
// must not overlap. Neither pointer needs any alignment.
//
// REQUIRES: IsConvertible(src_dtype, dst_dtype).
void Convert(const void* src, DType src_dtype, void* dst, DType dst_dtype, size_t count, const Scale& scale = {});

struct ConvertWithFeedbackArgs {
  const void* src;  // `count` elements of `src_dtype`, any alignment
  DType src_dtype;  // floating point
  void* dst;        // `count` elements of `dst_dtype`; may equal `src` if the element sizes do, else no overlap
  DType dst_dtype;  // float16 or bfloat16
  size_t count;
  Scale scale;      // multiplied in float64 for float64 elements, in float32 for all others
  float* residual;  // `count` elements, read and written; zeros before the first call
};

// Converts to a narrower type with error feedback: keeps each element's rounding error, and adds it to the element's
// value in the next call.
//
//   v = float32(src * scale) + residual,   dst = to<dst_dtype>(v),   residual = v - dst
//
// The sum of the sent values tracks the sum of the true values, so even gradients that are too small for the format
// eventually arrive. (F. Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
// Distributed Training of Speech DNNs", Interspeech 2014; S. P. Karimireddy et al., "Error Feedback Fixes SignSGD and
// other Gradient Compression Schemes", ICML 2019.) If v or dst is not finite, the residual becomes 0, so that an
// overflow does not affect later values. Rounds as Convert() does, with the same guarantees.
void ConvertWithFeedback(const ConvertWithFeedbackArgs& args);

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_CONVERT_H_
