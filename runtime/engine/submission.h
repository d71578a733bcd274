#ifndef RONDA_RUNTIME_ENGINE_SUBMISSION_H_
#define RONDA_RUNTIME_ENGINE_SUBMISSION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// What a client asks for: one collective operation on one named tensor.
struct Submission {
  TensorRequest request;        // the name is not empty, and unique in its process set among the tensors in flight
  const void* input = nullptr;  // not for broadcast, which uses `output` alone, nor for who only receives
  // allreduce (may equal input), reduce (on the root), broadcast, receive. Of other operations the result belongs to
  // the handle.
  void* output = nullptr;

  // alltoall: rows of the first dimension for each member of the process set, in its order; scatter: the same, on the
  // root. Empty: equal parts (scatter: as equal as possible).
  std::vector<int64_t> splits;

  // A tensor in the memory of a GPU (request.memory): the stream that has been given the work which writes `input` and
  // ends using `output`; nullptr is the default stream. The operation comes after that work on the device.
  void* stream = nullptr;

  // Whether what rounding to the wire's format loses is added to the next contribution of the same name.
  enum class ErrorFeedback : uint8_t { kOff, kOn } error_feedback = ErrorFeedback::kOff;
};

// Bytes of the whole tensor.
inline size_t TensorBytes(const TensorRequest& request) {
  return static_cast<size_t>(ElementCount(request.shape)) * SizeOf(request.dtype);
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_SUBMISSION_H_
