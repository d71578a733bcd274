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

// Does collectives of tensors in the memory of a GPU, by means of any communicator of the host. Tensors are copied to
// pinned memory, and the results are copied back. StagedCommunicator serves ranks that share a GPU, and machines
// without NCCL.
//
// Unlike the calls of other communicators of devices, a call blocks until the host's communicator has handled the
// call's last piece. So a call waits for the stream's earlier work and for the other ranks. When a call returns, only
// the copies back to the device may still be unfinished on the stream.
//
// Results have the same bits as those of the host's communicator, because rounds cut no element and no block.
//
// Thread-compatible, like the host's communicator. The owner of the host's communicator must not use it during a call.
class StagedCommunicator : public Communicator {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;        // all work on the device goes there; not owned
    Communicator* host = nullptr;         // connects the same ranks, for the host's memory; not owned
    StreamMarks* marks = nullptr;         // of the stream; not owned; may be nullptr
    size_t slot_bytes = size_t{4} << 20;  // bytes of each of two pieces of pinned memory; the same on every rank
    std::function<absl::Status()> job_failure = [] { return absl::OkStatus(); };  // called during waits
  };

  // Errors: RESOURCE_EXHAUSTED if the memory cannot be pinned; the errors of the device.
  static absl::StatusOr<std::unique_ptr<StagedCommunicator>> Create(Options options);

  RankId rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  absl::Status Reduce(const ReduceCall& call) override;
  absl::Status Broadcast(const BroadcastCall& call) override;
  absl::Status Allgather(const AllgatherCall& call) override;
  absl::Status Alltoall(const AlltoallCall& call) override;
  absl::Status Barrier(const CallInfo& info) override;

  // Does nothing, because the owner of the host's communicator tunes the host's communicator.
  void Tune(const Tuning&) override {}

 private:
  StagedCommunicator(Communicator* host, std::unique_ptr<Staging> staging)
      : host_(host), staging_(std::move(staging)) {}

  Communicator* const host_;
  const std::unique_ptr<Staging> staging_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_COMMUNICATOR_H_
