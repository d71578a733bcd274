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
#ifndef RONDA_KERNELS_CPU_FP8_FORMAT_H_
#define RONDA_KERNELS_CPU_FP8_FORMAT_H_

#include <cstddef>
#include <cstdint>

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

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_FP8_FORMAT_H_
