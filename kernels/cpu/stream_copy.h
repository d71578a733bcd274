#ifndef RONDA_KERNELS_CPU_STREAM_COPY_H_
#define RONDA_KERNELS_CPU_STREAM_COPY_H_

#include <cstddef>

namespace ronda::kernels {

// memcpy with stores that go past the caches: for memory that another core has read, and will read next. An ordinary
// store must first take the line away from that core's cache, which between cores that share no cache costs tens of
// nanoseconds a line, one after the other.
//
// Neither pointer needs any alignment. Other threads see the bytes after a release store by this one, as with memcpy.
void StreamCopy(const void* src, void* dst, size_t bytes);

}  // namespace ronda::kernels

#endif  // RONDA_KERNELS_CPU_STREAM_COPY_H_
