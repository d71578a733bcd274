// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_SELF_SELF_COMMUNICATOR_H_
#define RONDA_RUNTIME_COLLECTIVES_SELF_SELF_COMMUNICATOR_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_layout.h"
#include "runtime/collectives/transport.h"
#include "runtime/control/self/self_control_plane.h"

namespace ronda {

// Collectives of a job with a single rank. An allreduce still scales and rounds to the wire format, so that results are
// the same with every backend. This is the smallest complete implementation of Communicator.
class SelfCommunicator : public Communicator {
 public:
  explicit SelfCommunicator(std::shared_ptr<const SelfJob> job) : job_(std::move(job)) {}

  RankId rank() const override { return 0; }
  int size() const override { return 1; }

  absl::Status Reduce(const ReduceCall& call) override;
  absl::Status Broadcast(const BroadcastCall& call) override;
  absl::Status Allgather(const AllgatherCall& call) override;
  absl::Status Alltoall(const AlltoallCall& call) override;
  absl::Status Barrier(const CallInfo& info) override;
  void Tune(const Tuning&) override {}  // there are no chunks

 private:
  const std::shared_ptr<const SelfJob> job_;
  LogicalBuffer::Memory reduction_memory_;
};

// Returns the transport of a job with a single rank. `hostname` is for messages about the job's failure.
Transport CreateSelfTransport(absl::string_view hostname);

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SELF_SELF_COMMUNICATOR_H_
