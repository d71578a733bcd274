// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_COMMUNICATOR_H_
#define RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_COMMUNICATOR_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/staged/staging.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Executes collectives of tensors in GPU memory through any host communicator: copies the tensors to pinned memory, and
// the results back. For ranks that share a GPU, and for machines without NCCL.
//
// Unlike calls of other device communicators, a call blocks until the host communicator has completed the call's last
// piece. So it waits for the stream's earlier work and for the other ranks. When it returns, only the copies back to
// the device may still be pending on the stream.
//
// Results have the same bits as those of the host communicator, because no element or block is split between rounds.
//
// Thread-compatible, like the host communicator, whose owner must not use it during a call.
class StagedCommunicator : public Communicator {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;        // for all work on the device; not owned
    Communicator* host = nullptr;         // connects the same ranks, for host memory; not owned
    StreamMarks* marks = nullptr;         // of the stream; not owned; may be nullptr
    size_t slot_bytes = size_t{4} << 20;  // bytes of each of two slots of pinned memory; the same on every rank
    std::function<absl::Status()> job_failure = [] { return absl::OkStatus(); };  // called during waits
  };

  // Errors: RESOURCE_EXHAUSTED if the memory cannot be pinned; device errors.
  static absl::StatusOr<std::unique_ptr<StagedCommunicator>> Create(Options options);

  RankId rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  absl::Status Reduce(const ReduceCall& call) override;
  absl::Status Broadcast(const BroadcastCall& call) override;
  absl::Status Allgather(const AllgatherCall& call) override;
  absl::Status Alltoall(const AlltoallCall& call) override;
  absl::Status Barrier(const CallInfo& info) override;

  // Does nothing, because the host communicator's owner tunes it.
  void Tune(const Tuning&) override {}

 private:
  StagedCommunicator(Communicator* host, std::unique_ptr<Staging> staging)
      : host_(host), staging_(std::move(staging)) {}

  Communicator* const host_;
  const std::unique_ptr<Staging> staging_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_COMMUNICATOR_H_
