// SPDX-License-Identifier: Apache-2.0

// Kernels on gradients: the search for overflow, and Adasum.
//
// Adasum of two gradients a and b is their sum where they are orthogonal and their average where they are equal:
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

// The dot products of `count` elements; `dtype` is float32 or float64, any alignment. The dot products of pieces add up
// to those of the whole.
//
// Products and sums are in fp64. Element i is added to sum i mod 16, in order, and the sums are added pairwise. This
// gives the same bits on every CPU. But the bits depend on where a buffer is cut into pieces.
AdasumDots Dots(const void* a, const void* b, DType dtype, size_t count);

struct AdasumWeights {
  double a = 1;
  double b = 1;
};

// The factors of a and b; 1 for a gradient that is zero.
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

// dst = weights.a * a + weights.b * b, in fp64, rounded to `dtype` at the end.
void Combine(const AdasumCombineArgs& args);

// Whether any of `count` elements, any alignment, is an infinity or NaN. False for integers and bool.
bool HasNonFinite(const void* data, DType dtype, size_t count);

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_GRADIENTS_H_
