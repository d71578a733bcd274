// SPDX-License-Identifier: Apache-2.0

// These kernels search gradients for overflow, and compute Adasum.
//
// Adasum of two gradients a and b is their sum if they are orthogonal, and their average if they are equal:
//
//   Adasum(a, b) = (1 - a.b / (2 |a|^2)) a  +  (1 - a.b / (2 |b|^2)) b
//
// (S. Maleki et al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021.) The dot products are over
// whole tensors, whose pieces may lie on several ranks. So Adasum takes three steps: Dots() for each piece, WeightsOf()
// for the sums of the dot products, and Combine().
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

// Returns the dot products of `count` elements; `dtype` is float32 or float64, any alignment. The dot products of the
// pieces of a tensor add up to the dot products of the tensor.
//
// Products and sums are in fp64. Element i is added to the sum with the number i mod 16, in order, and at the end the
// 16 sums are added pairwise. The order of these additions gives the same bits on every CPU. The bits still depend on
// where a caller cuts a buffer into pieces.
AdasumDots Dots(const void* a, const void* b, DType dtype, size_t count);

struct AdasumWeights {
  double a = 1;
  double b = 1;
};

// Returns the factors of a and b. The factor of a gradient that is zero is 1.
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

// Returns whether any of the `count` elements at `data` is an infinity or NaN. `data` needs no alignment. Returns false
// for integers and bool.
bool HasNonFinite(const void* data, DType dtype, size_t count);

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_GRADIENTS_H_
