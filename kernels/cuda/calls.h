// SPDX-License-Identifier: Apache-2.0

// The arguments of calls to the CUDA kernels, as plain structs without CUDA headers. Ronda's core shares them with the
// plugin that contains the kernels (runtime/cuda/plugin.h).
//
// The arithmetic is the same as in kernels/cpu, and gives the same bits unless stated otherwise. Conversions round
// once, to nearest even. 16-bit and 8-bit floating-point sources are reduced in float32, in the given order. Blocks of
// 8-bit codes have the format of kernels/cpu/fp8.h. All pointers are to memory that the device can address, with any
// alignment. A function that runs a call copies the call's structs, and does not read host memory after it has
// returned.
#ifndef RONDA_KERNELS_CUDA_CALLS_H_
#define RONDA_KERNELS_CUDA_CALLS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

// Describes the format of the elements on the wire.
struct Wire {
  DType dtype = DType::kFloat32;  // of the elements; ignored if there are blocks
  enum class Blocks : uint8_t { kNone, kE4M3, kE5M2 } blocks = Blocks::kNone;
};

// One tensor of a bucket, and its position on the wire.
struct PackSegment {
  const void* input = nullptr;
  float* residual = nullptr;  // for error feedback (kernels/cpu/convert.h), read and written; nullptr: none
  uint64_t count = 0;         // elements
  uint64_t offset = 0;        // bytes from the start of the wire; a multiple of 16
};

// Computes wire = to<wire>(input * scale [+ residual]) for many tensors in one launch. Does not write the bytes between
// tensors.
struct PackCall {
  const PackSegment* segments = nullptr;
  int segment_count = 0;
  DType dtype = DType::kFloat32;
  Wire wire;
  Scale scale;
  void* buffer = nullptr;  // aligned to 16 bytes, like all wires
};

// The requested elements of a tensor's result, and their position on the wire.
struct UnpackSegment {
  void* output = nullptr;
  uint64_t count = 0;   // requested elements
  uint64_t offset = 0;  // bytes to the tensor's first granule (element or block)
  uint64_t skip = 0;    // elements of the tensor before the first requested one
};

// Computes output = to<dtype>(wire * scale), for many tensors in one launch.
struct UnpackCall {
  const UnpackSegment* segments = nullptr;
  int segment_count = 0;
  DType dtype = DType::kFloat32;
  Wire wire;
  Scale scale;
  const void* buffer = nullptr;
};

// Computes dst = to<wire>(scale * (source 0 op source 1 op ...)), in source order. Also reduces the bytes between
// tensors on the wire.
struct ReduceCall {
  const void* sources = nullptr;  // the first source; the others follow
  uint64_t stride = 0;            // bytes from one to the next; a multiple of 16
  int source_count = 0;
  Wire wire;
  ReduceOp op = ReduceOp::kSum;
  Scale scale;
  void* dst = nullptr;    // may equal a source
  uint64_t granules = 0;  // elements or blocks per source
};

// A tensor that a kernel reads.
struct Extent {
  const void* data = nullptr;
  uint64_t count = 0;  // elements
};

// Sets found[i] to 1 if tensor i contains infinity or NaN, otherwise to 0. Floating-point types only.
struct NonFiniteCall {
  const Extent* tensors = nullptr;
  int tensor_count = 0;
  DType dtype = DType::kFloat32;
  uint8_t* found = nullptr;
};

// Computes dst = a_scale * a + b_scale * b in float64, then rounds. dst may equal a or b.
struct AddScaledCall {
  const void* a = nullptr;
  const void* b = nullptr;
  void* dst = nullptr;
  DType dtype = DType::kFloat32;  // floating point
  uint64_t count = 0;
  double a_scale = 1;
  double b_scale = 1;
};

// The maximum number of parts of a pair of tensors, whose dot products are computed in parallel.
inline constexpr int kDotsMaxParts = 256;

// Computes Adasum's three dot products (kernels/cpu/gradients.h) of pairs of tensors, in float64: a.b, a.a and b.b of
// pair i, from dots[3 * i] on. The order of summation is fixed, but differs from the CPU's.
struct DotsCall {
  const Extent* a = nullptr;
  const Extent* b = nullptr;  // with the same counts
  int pair_count = 0;
  DType dtype = DType::kFloat32;  // float32 or float64
  double* dots = nullptr;
  double* scratch = nullptr;  // for intermediate results: 3 * kDotsMaxParts numbers for each pair
};

// Computes a = weights.a * a + weights.b * b for pairs of tensors. The device computes Adasum's weights from the dot
// products in `dots`.
struct CombineCall {
  const Extent* a = nullptr;  // also written
  const Extent* b = nullptr;
  int pair_count = 0;
  DType dtype = DType::kFloat32;
  const double* dots = nullptr;
};

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_CALLS_H_
