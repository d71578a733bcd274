#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/collectives/stream_marks.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Collectives of tensors in the memory of GPUs, one a rank, over NCCL.
//
// Calls return once their work is on the stream (communicator.h: a communicator of a device). What NCCL itself reduces
// as Ronda does, or exactly, is one ncclAllReduce: integers, and sums and products of float32 and float64 (which are
// then rounded in NCCL's order, not the ranks'). Where NCCL would round at every hop (16-bit types), drop NaN (minima
// and maxima of floating-point numbers), or has no such format (8-bit blocks), type or operator, the members exchange
// shards by grouped sends and receives, reduce them here, in the order of the group and in float32, and hand out the
// result: as many bytes on the wire as a ring has, rounded once.
//
// A group has an NCCL communicator of its own, made when the group first has something to do; its id travels over
// `host`.
//
// Thread-compatible but for failure() and Abort(), which any thread may call.
class NcclCommunicator : public Communicator {
 public:
  struct Options {
    RankId rank = 0;
    int size = 1;
    std::vector<RankId> job_ranks;  // what messages call the ranks, if this is a part of a job; empty: as they are
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    std::shared_ptr<const NcclLibrary> library;
    Communicator* host = nullptr;  // of the same job, not owned: hands out ids, holds what is not about data
    StreamMarks* marks = nullptr;  // of the stream; not owned; nullptr: nobody wants to know
    absl::Duration init_deadline = absl::Minutes(1);
    std::function<absl::Status()> job_failure;  // the job's first failure; called while waiting
  };

  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(Options options);

  // What NCCL has found wrong since (ncclCommGetAsyncError), on any of the communicators; OK if nothing.
  virtual absl::Status failure() const = 0;

  // Ends what is under way on the device, and may never end by itself because a peer is gone: marks all communicators,
  // and only then frees any. No call succeeds afterwards. Idempotent. A device that does not let it end within seconds
  // is abandoned (Device::Abandon). Throws std::bad_alloc where the standard library does; the next call aborts then.
  virtual void Abort() = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_
