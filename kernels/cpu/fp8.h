// The 8-bit wire formats: blocks of 256 codes that share one scale.
//
// A block is a float32 scale followed by 256 codes; an element's value is its code's value times the scale. The scale
// is the smallest power of two that brings the largest finite magnitude of the block into the format's range (1 for a
// block of zeros): dividing by it is exact, so that all rounding is the code's. It is at least 2^-126, so that it has
// an inverse, and small enough that every code's value is finite: only magnitudes that round to more than 1.75 * 2^127
// overflow, and become infinity or, where there is none, NaN. The codes are those of OCP's "8-bit Floating Point
// Specification" (OFP8). A last block of fewer elements has zeros for the codes it does not use.
//
// Numbers round to nearest even, and NaN has but one code: equal input gives equal bytes, on every CPU.
#ifndef RONDA_KERNELS_CPU_FP8_H_
#define RONDA_KERNELS_CPU_FP8_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "kernels/cpu/scale.h"
#include "kernels/dtype.h"

namespace ronda::kernels {

enum class Fp8Format : uint8_t {
  kE4M3 = 0,  // up to 448; no infinity, which becomes NaN
  kE5M2 = 1,  // up to 57344; IEEE 754's way of infinity and NaN
};

inline constexpr size_t kFp8BlockElements = 256;
inline constexpr size_t kFp8BlockBytes = sizeof(float) + kFp8BlockElements;

// The blocks that `count` elements take.
constexpr size_t Fp8BlockCount(size_t count) { return (count + kFp8BlockElements - 1) / kFp8BlockElements; }
constexpr size_t Fp8Bytes(size_t count) { return Fp8BlockCount(count) * kFp8BlockBytes; }

struct EncodeFp8Args {
  const void* src;  // `count` elements of `src_dtype`, any alignment
  DType src_dtype;  // floating point
  size_t count;
  Scale scale;  // applied in float64 to float64, in float32 to the others
  Fp8Format format;
  void* blocks;               // Fp8Bytes(count) bytes, any alignment; no overlap with the source
  float* residual = nullptr;  // if given, error feedback as in feedback.h: `count` elements, read and written
};

// blocks = encoded(float32(src * scale) + residual).
void EncodeFp8(const EncodeFp8Args& args);

// dst[i] = to<dst_dtype>(value of code i), for i in [0, count); `dst_dtype` is floating point. No overlap.
void DecodeFp8(const void* blocks, Fp8Format format, void* dst, DType dst_dtype, size_t count);

struct ReduceFp8Args {
  absl::Span<const void* const> sources;  // at least one; each holds Fp8Bytes(count) bytes, any alignment
  Fp8Format format;
  ReduceOp op;  // sum, min, max or product
  Scale scale;  // applied to the reduced value, before it is rounded
  size_t count;
  void* dst;                                      // no overlap with sources; blocks may also be written over a source
  std::optional<DType> dst_dtype = std::nullopt;  // floating point: `count` decoded elements; none: blocks
};

// dst = encoded(scale * (sources[0] op sources[1] op ...)), in float32 and in the order of `sources`; or what DecodeFp8
// makes of exactly those blocks. min and max propagate NaN.
void ReduceFp8(const ReduceFp8Args& args);

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_FP8_H_
