#ifndef RONDA_RUNTIME_COLLECTIVES_COMMUNICATOR_H_
#define RONDA_RUNTIME_COLLECTIVES_COMMUNICATOR_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/cpu/scale.h"
#include "runtime/base/types.h"

namespace ronda {

// One tensor of a bucket. `input` and `output` are equal (in place) or do not overlap; no alignment is needed.
struct Segment {
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;  // elements; 0 is allowed, and then the pointers are not looked at
};

// An allreduce over the logical concatenation of the segments: a bucket is never copied into one buffer.
struct AllreduceCall {
  absl::string_view label;  // names the bucket in errors: "conv1/weight and 9 more"
  absl::Span<const Segment> segments;
  DType dtype = DType::kFloat32;
  WireFormat wire = WireFormat::kNone;
  ReduceOp op = ReduceOp::kSum;
  kernels::Scale prescale;   // of the input, before it is rounded to the wire's dtype
  kernels::Scale postscale;  // of the reduced value, before it is rounded to the wire's dtype
};

struct BroadcastCall {
  absl::string_view label;
  void* data = nullptr;  // read on `root`, written elsewhere
  size_t bytes = 0;
  RankId root = 0;
};

// Concatenates the ranks' inputs, in rank order, into everybody's output.
struct AllgatherCall {
  absl::string_view label;
  const void* input = nullptr;              // bytes_per_rank[own rank] bytes
  void* output = nullptr;                   // sum of bytes_per_rank bytes; does not overlap `input`
  absl::Span<const size_t> bytes_per_rank;  // one entry a rank, the same on every rank
};

// What a backend can do, and how much it wants the job (DESIGN: backends compete by score).
struct Capabilities {
  absl::string_view name;  // "shm"
  int max_ranks_per_process = 1;
};

// Moves and reduces tensors between the ranks of a job.
//
// Every rank calls the same sequence of collectives with matching arguments: the negotiation guarantees that. For the
// same inputs the results are bit-identical on all ranks, whatever the backend: contributions are rounded to the wire's
// dtype, reduced in rank order (16-bit types in fp32), scaled, rounded once to the wire's dtype, and widened.
//
// Thread-compatible: one thread at a time, the coordinator thread.
//
// Every call blocks until this rank's output is complete and its input may be changed. Errors: the job's first failure
// (a dead peer is noticed while blocked); DEADLINE_EXCEEDED that names the rank waited for and the label. After an
// error the outputs are undefined and the communicator is not used again.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual Capabilities capabilities() const = 0;
  virtual RankId rank() const = 0;
  virtual int size() const = 0;

  virtual absl::Status Allreduce(const AllreduceCall& call) = 0;
  virtual absl::Status Broadcast(const BroadcastCall& call) = 0;
  virtual absl::Status Allgather(const AllgatherCall& call) = 0;
  virtual absl::Status Barrier(absl::string_view label) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_COMMUNICATOR_H_
