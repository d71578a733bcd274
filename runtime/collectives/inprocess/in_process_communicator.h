// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_INPROCESS_IN_PROCESS_COMMUNICATOR_H_
#define RONDA_RUNTIME_COLLECTIVES_INPROCESS_IN_PROCESS_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_layout.h"
#include "runtime/collectives/transport.h"
#include "runtime/control/inprocess/in_process_job.h"

namespace ronda {

// Collectives of ranks that are threads of one process. A rank reads the other ranks' inputs and writes their outputs
// directly. Only one block at a time is copied to temporary memory, which fits into the L2 cache.
class InProcessCommunicator : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<InProcessJob> job, RankId rank) : job_(std::move(job)), rank_(rank) {}

  RankId rank() const override { return rank_; }
  int size() const override { return job_->size(); }

  absl::Status Reduce(const ReduceCall& call) override;
  absl::Status Broadcast(const BroadcastCall& call) override;
  absl::Status Allgather(const AllgatherCall& call) override;
  absl::Status Alltoall(const AlltoallCall& call) override;
  absl::Status Barrier(const CallInfo& info) override;
  void Tune(const Tuning&) override {}  // there are no chunks

 private:
  // If this rank is a member, waits for the other members, then runs `work` (InProcessJob::Meet).
  absl::Status Meet(const CallInfo& info, size_t bytes, const void* arguments, InProcessJob::Work work,
                    LateCall* late_call = nullptr);
  // Holds the vote of the call, if it has one.
  absl::Status Vote(const CallInfo& info);

  const std::shared_ptr<InProcessJob> job_;
  const RankId rank_;
  uint64_t calls_ = 0;  // calls so far, including those of other groups; equal on all ranks
  LogicalBuffer::Memory reduction_memory_;
};

// A job whose ranks are threads of this process.
//
//   auto world = InProcessWorld::Create({.size = 4});
//   std::thread rank2([transport = world->Connect(2)] { ... });
//
// Thread-safe. A transport may outlive the InProcessWorld that created it.
class InProcessWorld {
 public:
  using Options = InProcessJob::Options;

  // REQUIRES: options.size > 0.
  static std::unique_ptr<InProcessWorld> Create(Options options);

  int size() const { return job_->size(); }

  // Returns the transport of `rank`. Must be called exactly once for each rank. REQUIRES: 0 <= rank < size().
  Transport Connect(RankId rank);

 private:
  explicit InProcessWorld(Options options);

  const std::shared_ptr<InProcessJob> job_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_INPROCESS_IN_PROCESS_COMMUNICATOR_H_
