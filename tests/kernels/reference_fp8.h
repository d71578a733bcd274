// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_KERNELS_REFERENCE_FP8_H_
#define RONDA_TESTS_KERNELS_REFERENCE_FP8_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/fp8.h"
#include "kernels/dtype.h"

namespace ronda::kernels {

// These functions do what those in kernels/cpu/fp8.h must do by their specification, element by element.
void ReferenceEncodeFp8(const EncodeFp8Args& args);
void ReferenceDecodeFp8(const void* blocks, Fp8Format format, void* dst, DType dst_dtype, size_t count);
void ReferenceReduceFp8(const ReduceFp8Args& args);

// Returns the number that `code` represents.
double DoubleFromCode(Fp8Format format, uint8_t code);
uint8_t CodeFromDouble(Fp8Format format, double value);

// Returns the largest finite number that a code can represent.
double LargestCode(Fp8Format format);

}  // namespace ronda::kernels

#endif  // RONDA_TESTS_KERNELS_REFERENCE_FP8_H_
