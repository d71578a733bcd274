#ifndef RONDA_KERNELS_CPU_REDUCE_VECTORS_H_
#define RONDA_KERNELS_CPU_REDUCE_VECTORS_H_

#include <cstddef>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace ronda::kernels {

struct ReduceVectorsArgs {
  absl::Span<const void* const> sources;
  DType dtype;
  ReduceOp op;
  double factor;  // floating-point results are multiplied by it before they are rounded; others are not scaled
  size_t begin;   // the elements to reduce are [begin, end) of every source
  size_t end;
  DType dst_dtype;  // `dtype`, or float32 if that is a 16-bit floating-point type, to which results are rounded first
  void* dst;        // element `begin` goes to its start
};

// The part of Reduce (reduce.h) that is one pass over vectors, on the best SIMD target of this CPU.
void ReduceVectors(const ReduceVectorsArgs& args);

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_REDUCE_VECTORS_H_
