// What one rank adds to an allreduce: its elements, scaled and rounded to the wire's dtype. Shared by all backends, so
// that their results agree bit for bit.
#ifndef RONDA_RUNTIME_COLLECTIVES_CONTRIBUTION_H_
#define RONDA_RUNTIME_COLLECTIVES_CONTRIBUTION_H_

#include <cstddef>

#include "kernels/cpu/convert.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/logical_buffer.h"

namespace ronda {

inline DType WireDType(const ReduceCall& call) { return WireDType(call.dtype, call.wire); }

// True if the contribution is the input itself, so that it can be reduced where it lies.
inline bool ContributesInputItself(const ReduceCall& call) {
  return WireDType(call) == call.dtype && call.prescale.IsIdentity();
}

// Writes the contribution of elements [begin, begin + n) to `wire`, which has room for n elements of the wire's dtype.
inline void Pack(const ReduceCall& call, const LogicalBuffer& buffer, size_t begin, size_t n, void* wire) {
  const DType dtype = WireDType(call);
  buffer.ForEachRun(begin, n, [&](const LogicalBuffer::Run& run) {
    char* const to = static_cast<char*>(wire) + run.offset * SizeOf(dtype);
    kernels::Convert(run.input, call.dtype, to, dtype, run.count, call.prescale);
  });
}

// Widens the reduced elements in `wire` into the outputs of elements [begin, begin + n). Exact.
inline void Unpack(const ReduceCall& call, const LogicalBuffer& buffer, size_t begin, size_t n, const void* wire) {
  const DType dtype = WireDType(call);
  buffer.ForEachRun(begin, n, [&](const LogicalBuffer::Run& run) {
    const char* const from = static_cast<const char*>(wire) + run.offset * SizeOf(dtype);
    kernels::Convert(from, dtype, run.output, call.dtype, run.count);
  });
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_CONTRIBUTION_H_
