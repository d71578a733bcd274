#ifndef RONDA_KERNELS_CPU_CONVERT_FLOATS_H_
#define RONDA_KERNELS_CPU_CONVERT_FLOATS_H_

#include <cstddef>

#include "kernels/dtype.h"

namespace ronda::kernels {

// Convert (convert.h) among floating-point types, on the best SIMD target of this CPU; `factor` is the whole scale.
void ConvertFloats(const void* src, DType src_dtype, void* dst, DType dst_dtype, size_t count, double factor);

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_CONVERT_FLOATS_H_
