// SPDX-License-Identifier: Apache-2.0

// Kernels that detect overflow in gradients, and compute Adasum.
//
// Adasum of two gradients a and b is their sum if they are orthogonal, and their average if they are equal:
//
//   Adasum(a, b) = (1 - a.b / (2 |a|^2)) a  +  (1 - a.b / (2 |b|^2)) b
//
// (S. Maleki et al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021.) The dot products are over
// whole tensors, whose pieces may be on several ranks. So Adasum takes three steps: Dots() for each piece, WeightsOf()
// for the sums of these dot products, and Combine() for each piece.
#ifndef RONDA_KERNELS_CPU_GRADIENTS_H_
#define RONDA_KERNELS_CPU_GRADIENTS_H_

#include <cstddef>

#include "kernels/dtype.h"

namespace ronda::kernels {

struct AdasumDots {
  double ab = 0;
  double aa = 0;
  double bb = 0;
};

// Returns the dot products of `count` elements of dtype float32 or float64, with any alignment. The dot products of a
// tensor's pieces add up to those of the tensor.
//
// Products and sums are in fp64. Element i is added to sum i mod 16, in order, and the 16 sums are then added pairwise.
// So the result has the same bits on every CPU. It still depends on where a caller cuts a buffer into pieces.
AdasumDots Dots(const void* a, const void* b, DType dtype, size_t count);

struct AdasumWeights {
  double a = 1;
  double b = 1;
};

// Returns the factors of a and b. The factor of a zero gradient is 1.
constexpr AdasumWeights WeightsOf(const AdasumDots& dots) {
  return {.a = dots.aa == 0 ? 1 : 1 - dots.ab / (2 * dots.aa), .b = dots.bb == 0 ? 1 : 1 - dots.ab / (2 * dots.bb)};
}

struct AdasumCombineArgs {
  const void* a;  // `count` elements of `dtype`, any alignment
  const void* b;
  AdasumWeights weights;
  void* dst;    // may equal `a` or `b`, else no overlap
  DType dtype;  // float32 or float64
  size_t count;
};

// Computes dst = weights.a * a + weights.b * b, in fp64, rounded to `dtype` at the end.
void Combine(const AdasumCombineArgs& args);

// Returns whether any of the `count` elements at `data` (any alignment) is infinity or NaN. Returns false for integers
// and bool.
bool HasNonFinite(const void* data, DType dtype, size_t count);

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_GRADIENTS_H_
