// SPDX-License-Identifier: Apache-2.0

// Defines the arguments of calls to the kernels for CUDA devices. They are plain structs, which need no header of CUDA.
// Ronda's core and the plugin that has the kernels (runtime/cuda/plugin.h) use the same structs.
//
// The arithmetic is the same as in kernels/cpu, with the same bits in the results unless said otherwise. Conversions
// round once, to nearest even. 16-bit and 8-bit sources are reduced in float32, in the order given. Blocks of 8-bit
// codes have the format of kernels/cpu/fp8.h. All pointers are to memory that the device can address, with any
// alignment. A function that runs a call copies the call's structs, and does not read the host's memory after it has
// returned.
#ifndef RONDA_KERNELS_CUDA_CALLS_H_
#define RONDA_KERNELS_CUDA_CALLS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

// Describes the format of the elements on the wire.
struct Wire {
  DType dtype = DType::kFloat32;  // of the elements; ignored if they are in blocks
  enum class Blocks : uint8_t { kNone, kE4M3, kE5M2 } blocks = Blocks::kNone;
};

// One tensor of a bucket, and its position on the wire.
struct PackSegment {
  const void* input = nullptr;
  float* residual = nullptr;  // error feedback (kernels/cpu/convert.h); nullptr: none. Read and written
  uint64_t count = 0;         // elements
  uint64_t offset = 0;        // bytes from the beginning of the wire; a multiple of 16
};

// Computes wire = to<wire>(input * scale [+ residual]), for many tensors in one launch. Does not write the bytes
// between the tensors.
struct PackCall {
  const PackSegment* segments = nullptr;
  int segment_count = 0;
  DType dtype = DType::kFloat32;
  Wire wire;
  Scale scale;
  void* buffer = nullptr;  // aligned to 16 bytes, as all wires are
};

// The wanted elements of a tensor's result, and their position on the wire.
struct UnpackSegment {
  void* output = nullptr;
  uint64_t count = 0;   // wanted elements
  uint64_t offset = 0;  // bytes to the tensor's first granule (element or block)
  uint64_t skip = 0;    // elements of the tensor before the first wanted one
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

// Computes dst = to<wire>(scale * (source 0 op source 1 op ...)), in the order of the sources. Also reduces the bytes
// between the tensors on the wire.
struct ReduceCall {
  const void* sources = nullptr;  // the first source; the others follow
  uint64_t stride = 0;            // bytes from one to the next; a multiple of 16
  int source_count = 0;
  Wire wire;
  ReduceOp op = ReduceOp::kSum;
  Scale scale;
  void* dst = nullptr;    // may equal a source
  uint64_t granules = 0;  // elements or blocks of each
};

// A tensor that a kernel reads.
struct Extent {
  const void* data = nullptr;
  uint64_t count = 0;  // elements
};

// Sets found[i] to 1 if tensor i has an element that is an infinity or NaN, and otherwise to 0. Floating point only.
struct NonFiniteCall {
  const Extent* tensors = nullptr;
  int tensor_count = 0;
  DType dtype = DType::kFloat32;
  uint8_t* found = nullptr;
};

// Computes dst = a_scale * a + b_scale * b with scales in float64, and rounds at the end. dst may equal a or b.
struct AddScaledCall {
  const void* a = nullptr;
  const void* b = nullptr;
  void* dst = nullptr;
  DType dtype = DType::kFloat32;  // floating point
  uint64_t count = 0;
  double a_scale = 1;
  double b_scale = 1;
};

// The largest number of parts into which a pair of tensors is divided. The dot products of the parts are computed side
// by side.
inline constexpr int kDotsMaxParts = 256;

// Computes Adasum's three dot products (kernels/cpu/gradients.h) of pairs of tensors, in float64. From dots[3 * i] on,
// `dots` has a.b, a.a and b.b of pair i. The order of summation is fixed, but differs from the CPU's.
struct DotsCall {
  const Extent* a = nullptr;
  const Extent* b = nullptr;  // with the same counts
  int pair_count = 0;
  DType dtype = DType::kFloat32;  // float32 or float64
  double* dots = nullptr;
  double* scratch = nullptr;  // 3 * kDotsMaxParts for each pair; written
};

// Computes a = weights.a * a + weights.b * b for pairs of tensors. The device reads `dots`, and computes Adasum's
// weights from these dot products.
struct CombineCall {
  const Extent* a = nullptr;  // also written
  const Extent* b = nullptr;
  int pair_count = 0;
  DType dtype = DType::kFloat32;
  const double* dots = nullptr;
};

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_CALLS_H_
