// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_PEER_PEER_COMMUNICATOR_H_
#define RONDA_RUNTIME_COLLECTIVES_PEER_PEER_COMMUNICATOR_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/peer/peer_exchange.h"
#include "runtime/collectives/peer/peer_group.h"
#include "runtime/collectives/peer/peer_reduce.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Executes collectives of tensors in GPU memory between ranks of one host whose devices map each other's memory. Each
// rank may have its own GPU, if these GPUs can access each other's memory. Ranks may also share a GPU, as processes or
// as threads of one process. The tensors do not pass through the host.
//
// A call returns when its work is enqueued on the stream, as communicator.h describes for devices. But the first call
// of a group connects its members, and waits for them. If ranks are threads of one process and share a device, a call
// also waits until the other members have made the same call (PeerGroup::MeetsOnHost).
//
// PeerReduce executes the reductions, and PeerExchange the collectives that only move bytes. Both use the pads of a
// PeerGroup.
//
// Thread-compatible, except failure() and Abort(), which any thread may call.
class PeerCommunicator : public Communicator {
 public:
  struct Options {
    RankId rank = 0;
    int size = 1;
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;              // not owned
    Communicator* host = nullptr;               // connects the same ranks, all on one host; not owned
    StreamMarks* marks = nullptr;               // of the stream; not owned; may be nullptr
    size_t slot_bytes = size_t{8} << 20;        // of a chunk; each pad has two slots; the same on all ranks
    size_t one_shot_bytes = size_t{256} << 10;  // PeerReduce; the same on all ranks
    std::function<absl::Status()> job_failure = [] { return absl::OkStatus(); };  // called during waits
  };

  // Connects all ranks, which must all make this call.
  // Errors: those of PeerGroup::Connect().
  static absl::StatusOr<std::unique_ptr<PeerCommunicator>> Create(Options options);

  // Waits for the stream. Aborts if the job has failed, or if the stream does not finish within a minute.
  ~PeerCommunicator() override;

  RankId rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  absl::Status Reduce(const ReduceCall& call) override;
  absl::Status Broadcast(const BroadcastCall& call) override;
  absl::Status Allgather(const AllgatherCall& call) override;
  absl::Status Alltoall(const AlltoallCall& call) override;
  absl::Status Barrier(const CallInfo& info) override;
  void Tune(const Tuning&) override {}  // the slots have a fixed size

  // Returns the first error of a call, CANCELLED after Abort(), or otherwise OK.
  absl::Status failure() const;

  // Aborts this rank's work on the device, which may be waiting for a dead rank, unless the device is held
  // (Device::Hold). The stream continues with incomplete data. The other ranks' streams block at their next meeting, so
  // that they do not use this data. All later calls fail. Returns when the stream has finished, or abandons the device
  // if it does not finish within Device::timeout(). Idempotent.
  void Abort();

 private:
  // A connected group.
  struct Entry {
    std::vector<RankId> ranks;
    // nullptr: this rank is not a member
    std::unique_ptr<PeerGroup> group;
    std::unique_ptr<PeerReduce> reduce;
    std::unique_ptr<PeerExchange> exchange;
  };

  explicit PeerCommunicator(Options options) : options_(std::move(options)) {}

  // Runs `collective(entry)` if this rank is a member. All ranks of the job must call this.
  using Collective = absl::FunctionRef<absl::Status(Entry& entry)>;
  absl::Status AsMember(const CallInfo& info, Collective collective);
  absl::StatusOr<Entry*> For(const CallInfo& info, const Members& members) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<Entry*> Connect(const CallInfo& info, const Members& members) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Fail(absl::Status failure) const ABSL_LOCKS_EXCLUDED(mu_);

  absl::Status AwaitStream();
  // Returns whether the stream has finished. Unless *end is set, sets it to an event after the stream's work.
  absl::StatusOr<bool> HasFinished(std::unique_ptr<DeviceEvent>* end);
  std::vector<PeerGroup*> Groups() const ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  std::atomic<bool> is_in_call_{false};
  mutable Mutex mu_;
  mutable absl::Status failure_ ABSL_GUARDED_BY(mu_);
  DeviceMemory scratch_;  // for PeerReduce; shared by all groups, because all work is on one stream
  std::vector<std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_PEER_PEER_COMMUNICATOR_H_
