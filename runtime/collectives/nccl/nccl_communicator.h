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

// Collectives of tensors in the memory of GPUs, one GPU per rank, over NCCL.
//
// A call returns once its work is on the stream (communicator.h: the communicator of a device). The exchanges, which
// move bytes without looking at them, are here. NcclReduce does the reductions, and NcclGroups owns NCCL's
// communicators, one for each group of ranks.
//
// Some reductions are one ncclAllReduce, or one ncclReduceScatter if each member receives another part. These are the
// reductions of integers, the sums of floating-point numbers, and the products of float32 and float64. NCCL adds in its
// own order instead of the order of the ranks, and rounds 16-bit sums after every addition. For all other reductions
// NCCL's result would differ more. NCCL drops NaN from floating-point minima and maxima, and it lacks the 8-bit blocks
// and some types and operators. In these other reductions the members exchange shards by grouped sends and receives.
// They reduce the shards here, in the order of the group and in float32, and gather the result. This moves as many
// bytes as a ring and rounds once. With SumOrder::kOfRanks all reductions of floating-point numbers work in this way.
//
// Thread-compatible, except failure() and Abort(), which any thread may call.
class NcclCommunicator : public Communicator {
 public:
  struct Options {
    RankId rank = 0;
    int size = 1;
    std::vector<RankId> job_ranks;  // the ranks' numbers in the job, for messages; empty: the same numbers
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    std::shared_ptr<const NcclLibrary> library;
    Communicator* host = nullptr;                  // connects the same ranks, carries NCCL's ids; not owned
    StreamMarks* marks = nullptr;                  // of the stream; not owned; may be nullptr
    SumOrder order = SumOrder::kOfNccl;            // the same on all ranks
    size_t chunk_bytes = NcclReduce::kChunkBytes;  // the same on all ranks
    absl::Duration init_deadline = absl::Minutes(1);
    std::function<absl::Status()> job_failure;  // the job's first failure; called during waits
  };

  // Errors: the device's errors; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(Options options);

  // Waits for the stream. If the stream does not end, it aborts the work under way.
  ~NcclCommunicator() override;

  RankId rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  absl::Status Reduce(const ReduceCall& call) override;
  absl::Status Broadcast(const BroadcastCall& call) override;
  absl::Status Allgather(const AllgatherCall& call) override;
  absl::Status Alltoall(const AlltoallCall& call) override;
  absl::Status Barrier(const CallInfo& info) override;
  void Tune(const Tuning&) override {}  // NCCL chooses its own chunks

  // Returns the first error that NCCL has reported on any of its communicators (ncclCommGetAsyncError), or OK.
  absl::Status failure() const { return groups_.failure(); }

  // Aborts the work on the device, which may never end by itself after the loss of a peer. It marks all communicators
  // and only then frees any. No call succeeds afterwards. Idempotent. If the device does not finish within seconds,
  // Abort abandons the device (Device::Abandon). If the standard library throws std::bad_alloc, Abort throws it too,
  // and the next call of Abort aborts.
  void Abort() { groups_.Abort(); }

 private:
  using Entry = NcclGroups::Entry;

  // The bytes that this rank sends to one member and receives from it.
  struct Piece {
    const std::byte* from = nullptr;
    size_t sent = 0;
    std::byte* to = nullptr;
    size_t received = 0;
  };

  explicit NcclCommunicator(Options options);

  // Runs `collective(members, entry)` if this rank is a member. `entry` is nullptr for a group of one rank. All ranks
  // of the job call it.
  template <typename Collective>
  absl::Status AsMember(const CallInfo& info, const Collective& collective);

  absl::Status GatherEqual(const AllgatherCall& call, Entry* entry);
  absl::Status GatherByBroadcasts(const AllgatherCall& call, const Members& members, Entry* entry);
  absl::Status GatherForOne(const AllgatherCall& call, const Members& members, Entry* entry);
  // Exchanges pieces_, one per member, with all members. A rank copies its piece for itself.
  absl::Status Exchange(const CallInfo& info, const Members& members, Entry* entry);
  absl::Status Copy(void* to, const void* from, size_t bytes);

  // Waits until the stream is empty. Errors: the reason why the stream may never become empty.
  absl::Status AwaitStream();

  const Options options_;
  NcclGroups groups_;
  std::unique_ptr<NcclReduce> reduce_;
  std::vector<Piece> pieces_;  // kept for its memory
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_
