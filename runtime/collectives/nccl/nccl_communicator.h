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

// Does collectives of tensors in the memory of GPUs over NCCL. Each rank has one GPU.
//
// A call returns when its work is on the stream, as communicator.h describes for a device. This class does the
// collectives that only move bytes. NcclReduce does the reductions, and NcclGroups owns NCCL's communicators, one for
// each group of ranks.
//
// Some reductions are done by NCCL itself, with one ncclAllReduce, or one ncclReduceScatter if each member receives
// another part. They are reductions of integers, sums of floating-point numbers, and products of float32 and float64.
// NCCL adds in its own order instead of the order of the ranks, and rounds 16-bit sums after every addition. All other
// reductions are done by Ronda's own kernels. NCCL would drop NaN from floating-point minima and maxima, and it lacks
// the 8-bit blocks and some types and operators. In these reductions the members exchange shards by grouped sends and
// receives. Then each member reduces its shards in float32, in the order of the group, and the members gather the
// result. This algorithm sends as many bytes as a ring, and rounds only once. With SumOrder::kOfRanks all reductions of
// floating-point numbers work in this way.
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
    NcclWindows windows = NcclWindows::kNone;      // the same on all ranks
    size_t chunk_bytes = NcclReduce::kChunkBytes;  // the same on all ranks
    absl::Duration init_deadline = absl::Minutes(1);
    std::function<absl::Status()> job_failure;  // the job's first failure; called during waits
  };

  // Errors: the device's errors; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(Options options);

  // Waits for the stream. If the stream's work does not end, aborts it.
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

  // Aborts the work on the device, which may never end by itself after the loss of a peer. Abort first marks all
  // communicators as aborted, and only then frees them. Afterwards all calls fail. Idempotent. If the device does not
  // finish within seconds, Abort abandons the device (Device::Abandon). If the standard library throws std::bad_alloc,
  // Abort throws it too, and the caller must call Abort again.
  void Abort() { groups_.Abort(); }

 private:
  using Entry = NcclGroups::Entry;

  // The bytes that this rank sends to a member, and the bytes that it receives from this member.
  struct Piece {
    const std::byte* from = nullptr;
    size_t sent = 0;
    std::byte* to = nullptr;
    size_t received = 0;
  };

  explicit NcclCommunicator(Options options);

  // Runs `collective(members, entry)` if this rank is a member. `entry` is nullptr for a group of one rank. All ranks
  // of the job must call AsMember.
  template <typename Collective>
  absl::Status AsMember(const CallInfo& info, const Collective& collective);

  absl::Status GatherEqual(const AllgatherCall& call, Entry* entry);
  absl::Status GatherByBroadcasts(const AllgatherCall& call, const Members& members, Entry* entry);
  absl::Status GatherForOne(const AllgatherCall& call, const Members& members, Entry* entry);
  // Exchanges pieces_ with all members; each piece is for one member. A rank copies the piece for itself.
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
