#ifndef RONDA_RUNTIME_ENGINE_SUBMISSION_H_
#define RONDA_RUNTIME_ENGINE_SUBMISSION_H_

#include <string>

#include "runtime/base/types.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// What a client asks for: one collective operation on one named tensor.
struct Submission {
  using Averaging = TensorRequest::Averaging;

  std::string name;  // the same on every rank; unique among the tensors in flight; not empty
  OpType op = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  Shape shape;                  // kAllgather: at least one dimension
  const void* input = nullptr;  // kAllreduce, kAllgather; kBroadcast uses `output` alone
  void* output = nullptr;       // kAllreduce (may equal input), kBroadcast; an allgather's result belongs to the handle
  ReduceOp reduce_op = ReduceOp::kSum;
  Averaging averaging = Averaging::kNo;  // with kSum: divides by the number of ranks
  WireFormat wire = WireFormat::kNone;
  double prescale = 1.0;
  double postscale = 1.0;
  RankId root = 0;  // kBroadcast
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_SUBMISSION_H_
