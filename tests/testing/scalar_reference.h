// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_SCALAR_REFERENCE_H_
#define RONDA_TESTS_TESTING_SCALAR_REFERENCE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace ronda::testing {

// A reference implementation for tests of kernels and collectives. It computes one element at a time, as simply as
// possible. It calls functions on numbers (ldexp, nearbyint) where the kernels move bits, so that it does not repeat
// bugs in the kernels.

// Returns the exact value of a bit pattern.
double DoubleFromFp16(uint16_t bits);
double DoubleFromBf16(uint16_t bits);
double DoubleFromE4M3(uint8_t code);
double DoubleFromE5M2(uint8_t code);

// The functions below return the bits of `value` in each format, rounded once to nearest, ties to even. An out-of-range
// number becomes infinity, or NaN in E4M3, which has no infinity. NaN becomes a quiet NaN. In E4M3 and E5M2, NaN is
// positive.
uint16_t Fp16FromDouble(double value);
uint16_t Bf16FromDouble(double value);
uint8_t E4M3FromDouble(double value);
uint8_t E5M2FromDouble(double value);

// Returns the value of element `index` of `buffer`, which need not be aligned. Rounds int64 and uint64 values beyond
// 2^53. A bool is 0 or 1.
double ReadElement(const void* buffer, DType dtype, size_t index);

// Stores `value`, rounded once, as element `index`.
//
// REQUIRES: if `dtype` is an integer type, it can represent the truncated `value`.
void WriteElement(void* buffer, DType dtype, size_t index, double value);

// Returns `value` after rounding to `dtype`.
double RoundedTo(DType dtype, double value);

// Returns whether element `index` of `buffer`, which has a floating-point type, is a quiet NaN.
bool IsQuietNan(const void* buffer, DType dtype, size_t index);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_SCALAR_REFERENCE_H_
