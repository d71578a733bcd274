// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/collectives/nccl/nccl_reduce.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Executes collectives of tensors in GPU memory over NCCL. Each rank has one GPU.
//
// A call returns when its work is enqueued on the stream, as communicator.h describes for devices. This class executes
// the collectives that only move bytes, and NcclReduce the reductions. NcclGroups owns NCCL's communicators, one for
// each group of ranks.
//
// NCCL itself executes most reductions of integers, sums of floating-point numbers, and products of float32 and
// float64, with one ncclAllReduce, or one ncclReduceScatter if each member receives a different part. NCCL adds in its
// own order instead of rank order, and rounds 16-bit sums after every addition. Ronda's own kernels execute all other
// reductions: NCCL would drop NaN from floating-point minima and maxima, could overflow in integer sums that are then
// scaled, and lacks the 8-bit blocks and some types and operators. In those, the members exchange shards through
// grouped sends and receives, each member reduces its shards in float32 and group order, and the members gather the
// result. This sends as many bytes as a ring, and rounds only once. With SumOrder::kOfRanks, all floating-point
// reductions work in this way.
//
// Thread-compatible, except failure() and Abort(), which any thread may call.
class NcclCommunicator : public Communicator {
 public:
  struct Options {
    RankId rank = 0;
    int size = 1;
    std::vector<RankId> job_ranks;  // the ranks' numbers in the job, for messages; empty: the same as here
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    std::shared_ptr<const NcclLibrary> library;
    Communicator* host = nullptr;                  // connects the same ranks, carries NCCL's ids; not owned
    StreamMarks* marks = nullptr;                  // of the stream; not owned; may be nullptr
    SumOrder order = SumOrder::kOfNccl;            // the same on all ranks
    NcclWindows windows = NcclWindows::kNone;      // the same on all ranks
    size_t chunk_bytes = NcclReduce::kChunkBytes;  // the same on all ranks
    absl::Duration init_deadline = absl::Minutes(1);
    std::function<absl::Status()> job_failure;                    // the job's first failure; called during waits
    std::function<void(const absl::Status&)> fail_job = nullptr;  // needed for MakeMemory
  };

  // Errors: device errors; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(Options options);

  // Waits for the stream, and aborts its work if it does not finish.
  ~NcclCommunicator() override;

  RankId rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  absl::Status Reduce(const ReduceCall& call) override;
  absl::Status Broadcast(const BroadcastCall& call) override;
  absl::Status Allgather(const AllgatherCall& call) override;
  absl::Status Alltoall(const AlltoallCall& call) override;
  absl::Status Barrier(const CallInfo& info) override;
  void Tune(const Tuning&) override {}  // NCCL chooses its own chunks

  // Returns OK, or the reason why the ranks can have no memory. The result is the same on all ranks.
  absl::Status CanMakeMemory() const;
  // See DeviceTransport::allocate_memory. REQUIRES: CanMakeMemory() is OK.
  absl::StatusOr<DirectMemory> AllocateMemory(size_t bytes) { return groups_.AllocateMemory(bytes); }
  // See DeviceTransport::register_memory. Adjacent tensors of all ranks are reduced by communicators of their own, so
  // NCCL finds the memory in no other call. REQUIRES: there are at least two ranks.
  absl::Status RegisterMemory(const CallInfo& info, DirectMemory memory);

  // Returns the first error that NCCL has reported on any of its communicators (ncclCommGetAsyncError), or OK.
  absl::Status failure() const { return groups_.failure(); }

  // Aborts the work on the device, which may never finish by itself after the loss of a peer. Marks all communicators
  // as aborted before freeing any of them. All later calls fail. Idempotent. Abandons the device (Device::Abandon) if
  // it does not finish within seconds. If Abort() throws std::bad_alloc, the caller must call it again.
  void Abort() { groups_.Abort(); }

 private:
  using Entry = NcclGroups::Entry;

  // The bytes that this rank sends to a member and receives from it.
  struct Piece {
    const std::byte* from = nullptr;
    size_t sent = 0;
    std::byte* to = nullptr;
    size_t received = 0;
  };

  explicit NcclCommunicator(Options options);

  // Runs `collective(members, entry)` if this rank is a member. `entry` is nullptr for a group of one rank. All ranks
  // of the job must call this.
  template <typename Collective>
  absl::Status AsMember(const CallInfo& info, const Collective& collective);

  absl::Status GatherEqual(const AllgatherCall& call, Entry* entry);
  absl::Status GatherByBroadcasts(const AllgatherCall& call, const Members& members, Entry* entry);
  absl::Status GatherForOne(const AllgatherCall& call, const Members& members, Entry* entry);
  // Exchanges pieces_, one per member, with all members. Copies this rank's piece for itself.
  absl::Status Exchange(const CallInfo& info, const Members& members, Entry* entry);
  absl::Status Copy(void* to, const void* from, size_t bytes);

  // Waits until the stream is empty. Errors: the reason why it may never become empty.
  absl::Status AwaitStream();

  const Options options_;
  DirectMemory memory_;  // freed after the communicators have ended
  NcclGroups groups_;
  std::unique_ptr<NcclReduce> reduce_;
  std::vector<Piece> pieces_;  // kept to reuse its memory
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_
