// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_KERNELS_REFERENCE_KERNELS_H_
#define RONDA_TESTS_KERNELS_REFERENCE_KERNELS_H_

#include <cstddef>

#include "kernels/cpu/reduce.h"
#include "kernels/dtype.h"

namespace ronda::kernels {

// These functions do what Convert (kernels/cpu/convert.h) and Reduce (kernels/cpu/reduce.h) must do by their
// specification, element by element.
void ReferenceConvert(const void* src, DType src_dtype, void* dst, DType dst_dtype, size_t count, const Scale& scale);
void ReferenceReduce(const ReduceArgs& args);

// Returns a op b, or NaN if either is NaN.
float CombinedFloats(ReduceOp op, float a, float b);

}  // namespace ronda::kernels

#endif  // RONDA_TESTS_KERNELS_REFERENCE_KERNELS_H_
