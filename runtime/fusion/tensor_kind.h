// Which tensors can be carried out as one collective.
#ifndef RONDA_RUNTIME_FUSION_TENSOR_KIND_H_
#define RONDA_RUNTIME_FUSION_TENSOR_KIND_H_

#include <cstddef>
#include <tuple>

#include "runtime/negotiation/messages.h"

namespace ronda {

// Whether tensors of this operation fuse with others of their kind.
constexpr bool Fuses(OpType op) { return op == OpType::kAllreduce || op == OpType::kReduceScatter; }

// Whether two tensors whose operations fuse are of one kind.
inline bool SameKind(const TensorRequest& a, const TensorRequest& b) {
  const auto fields = [](const TensorRequest& r) {
    return std::tie(r.process_set, r.op, r.dtype, r.memory, r.reduction, r.wire, r.prescale, r.postscale, r.overflow,
                    r.limits);
  };
  return fields(a) == fields(b);
}

// REQUIRES: the element count fits in memory (the codec and the client have checked).
inline size_t InputBytes(const TensorRequest& request) {
  return static_cast<size_t>(ElementCount(request.shape)) * SizeOf(request.dtype);
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_FUSION_TENSOR_KIND_H_
