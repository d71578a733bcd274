#ifndef RONDA_RUNTIME_ENGINE_EXECUTOR_H_
#define RONDA_RUNTIME_ENGINE_EXECUTOR_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/collectives/communicator.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// Carries out buckets: looks up the tensors, calls the communicator, completes the handles.
//
// Thread-compatible: the coordinator thread's. Neither the communicator nor the queue is owned; both must outlive it.
class Executor {
 public:
  Executor(Communicator* communicator, TensorQueue* queue) : communicator_(communicator), queue_(queue) {}

  // Errors: the communicator's; INTERNAL if a tensor was not submitted here; RESOURCE_EXHAUSTED if there is no memory
  // for a gathered tensor. The handles of the bucket are then still in the queue, and the job cannot go on.
  absl::Status Execute(const AgreedBucket& bucket);

 private:
  absl::StatusOr<const Submission*> Find(const Response& response) const;
  absl::Status Allreduce(const AgreedBucket& bucket);
  absl::Status Broadcast(const Response& response);
  absl::Status Allgather(const Response& response);
  absl::Status Barrier(const Response& response);

  Communicator* const communicator_;
  TensorQueue* const queue_;
  std::vector<Segment> segments_;  // kept for its memory
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_EXECUTOR_H_
