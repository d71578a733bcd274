#include "kernels/cpu/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace ronda::kernels {
namespace {

constexpr size_t kLineBytes = 64;

// Copies whole lines: one that is not filled at once goes to memory in parts. `dst` is the beginning of a line.
// (Highway's Stream is of no use here: without dispatch to a better target, its baseline on x86 stores single bytes.)
#if defined(__x86_64__)
void StreamLines(const uint8_t* src, uint8_t* dst, size_t bytes) {
  constexpr size_t kVectorBytes = sizeof(__m128i);
  for (size_t i = 0; i < bytes; i += kVectorBytes) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(dst + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i)));
  }
  // These stores are in no order with later ones, such as a release store that announces them.
  _mm_sfence();
}
#else
void StreamLines(const uint8_t* src, uint8_t* dst, size_t bytes) { std::memcpy(dst, src, bytes); }
#endif

}  // namespace

void StreamCopy(const void* src, void* dst, size_t bytes) {
  const auto* from = static_cast<const uint8_t*>(src);
  auto* to = static_cast<uint8_t*>(dst);
  const size_t head = std::min(bytes, (kLineBytes - reinterpret_cast<uintptr_t>(to) % kLineBytes) % kLineBytes);
  const size_t lines = (bytes - head) / kLineBytes * kLineBytes;
  const size_t tail = bytes - head - lines;
  if (head > 0) std::memcpy(to, from, head);
  if (lines > 0) StreamLines(from + head, to + head, lines);
  if (tail > 0) std::memcpy(to + head + lines, from + head + lines, tail);
}

}  // namespace ronda::kernels
