// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_KERNELS_CPU_REDUCE_H_
#define RONDA_KERNELS_CPU_REDUCE_H_

#include <cstddef>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace ronda::kernels {

struct ReduceArgs {
  absl::Span<const void* const> sources;  // at least one; each holds `count` elements of `dtype`, any alignment
  DType dtype;                            // of the sources: the type that crossed the wire
  ReduceOp op;
  Scale scale;      // applied to the reduced value, before it is rounded
  void* dst;        // `count` elements of `dst_dtype`; may equal a source if the element sizes do, else no overlap
  DType dst_dtype;  // `dtype`, or a floating-point type if `dtype` is one
  size_t count;
};

// Computes dst = to<dst_dtype>(to<dtype>(scale * (sources[0] op sources[1] op ...))).
//
// Always combines the sources in order, so the result does not depend on how a caller cuts a buffer into chunks. 16-bit
// floating-point types accumulate in fp32, scaled integer sums in a wider type (AddsWide), and everything else in the
// elements' own type, in which integer sums wrap around. The result is rounded once, to `dtype`, and then converted to
// `dst_dtype`, which is exact if that type is wider. min and max propagate NaN. For bool, sum, max and bor are logical
// or; product, min and band are logical and; bxor is true if an odd number of sources are true.
//
// REQUIRES: Supports(op, dtype) and IsConvertible(dtype, dst_dtype).
void Reduce(const ReduceArgs& args);

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_REDUCE_H_
