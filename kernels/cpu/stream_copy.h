// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_KERNELS_CPU_STREAM_COPY_H_
#define RONDA_KERNELS_CPU_STREAM_COPY_H_

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ronda::kernels {
namespace detail {

inline constexpr size_t kLineBytes = 64;

// Copies whole cache lines; `dst` is the start of a line. If a line were not filled at once, the CPU would write it to
// memory in several parts. (Highway's Stream does not help here: without dynamic dispatch, its x86 baseline stores
// single bytes.)
#if defined(__x86_64__)
inline void StreamLines(const uint8_t* src, uint8_t* dst, size_t bytes) {
  constexpr size_t kVectorBytes = sizeof(__m128i);
  for (size_t i = 0; i < bytes; i += kVectorBytes) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(dst + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i)));
  }
  // The fence is necessary because streaming stores are not ordered with later stores, such as the release store that
  // publishes the bytes.
  _mm_sfence();
}
#else
inline void StreamLines(const uint8_t* src, uint8_t* dst, size_t bytes) { std::memcpy(dst, src, bytes); }
#endif

}  // namespace detail

// Like memcpy, but with stores that bypass the caches. Use it for memory that another core has read, and will read
// next. An ordinary store must first invalidate the line in the other core's cache. If the cores share no cache, that
// costs tens of nanoseconds per line, one line after the other.
//
// Neither pointer needs any alignment. Other threads see the bytes after a release store by this thread, as with
// memcpy.
inline void StreamCopy(const void* src, void* dst, size_t bytes) {
  const auto* from = static_cast<const uint8_t*>(src);
  auto* to = static_cast<uint8_t*>(dst);
  const size_t line = detail::kLineBytes;
  const size_t head = std::min(bytes, (line - reinterpret_cast<uintptr_t>(to) % line) % line);
  const size_t lines = (bytes - head) / line * line;
  const size_t tail = bytes - head - lines;
  if (head > 0) std::memcpy(to, from, head);
  if (lines > 0) detail::StreamLines(from + head, to + head, lines);
  if (tail > 0) std::memcpy(to + head + lines, from + head + lines, tail);
}

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_STREAM_COPY_H_
