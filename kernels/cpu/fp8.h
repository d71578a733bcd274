// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_KERNELS_CPU_FP8_H_
#define RONDA_KERNELS_CPU_FP8_H_

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace ronda::kernels {

struct EncodeFp8Args {
  const void* src;  // `count` elements of `src_dtype`, any alignment
  DType src_dtype;  // floating point
  size_t count;
  Scale scale;  // multiplied in float64 for float64 elements, in float32 for all others
  Fp8Format format;
  void* blocks;               // Fp8Bytes(count) bytes, any alignment; no overlap with the source
  float* residual = nullptr;  // if given, for error feedback as in convert.h: `count` elements, read and written
};

// Computes blocks = encoded(float32(src * scale) + residual).
void EncodeFp8(const EncodeFp8Args& args);

// Computes dst[i] = to<dst_dtype>(value of code i), for i in [0, count), for a floating-point `dst_dtype`. The blocks
// and `dst` must not overlap.
void DecodeFp8(const void* blocks, Fp8Format format, void* dst, DType dst_dtype, size_t count);

struct ReduceFp8Args {
  absl::Span<const void* const> sources;  // at least one; each holds Fp8Bytes(count) bytes, any alignment
  Fp8Format format;
  ReduceOp op;  // sum, min, max or product
  Scale scale;  // applied to the reduced value, before it is rounded
  size_t count;
  void* dst;                                      // no overlap with sources; blocks may also be written over a source
  std::optional<DType> dst_dtype = std::nullopt;  // floating point: `count` decoded elements; none: blocks
};

// Computes dst = encoded(scale * (sources[0] op sources[1] op ...)), in float32 and in the order of `sources`. With
// `dst_dtype`, writes the elements that DecodeFp8() would return for these blocks. min and max propagate NaN.
void ReduceFp8(const ReduceFp8Args& args);

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_FP8_H_
