#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_REDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/calls.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/nccl/device_votes.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/parts_reduce.h"
#include "runtime/collectives/nccl/stream_buffer.h"
#include "runtime/collectives/nccl/wire_plan.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// The reductions of an NcclCommunicator. Each uses one of four algorithms, which all members derive from facts that
// they share:
//
//   plain     one tensor, needs no conversion      ncclAllReduce on the tensor [, scaled in place]
//   fused     NCCL adds up (wire_plan.h)           packed, ncclAllReduce, unpacked
//   exchange  Ronda adds up                        packed, shards sent and received, reduced, ncclAllGather, unpacked
//   parts     each member receives another part    (parts_reduce.h)
//
// Votes are elements of the wire that travel with the data: reduced with it in the fusion buffer, or sent to all
// members in an exchange. The unpacking kernel counts them. If one is a veto, it leaves the outputs untouched. It
// writes the outcome.
//
// NCCL chooses the way of the data by whether the memory is registered, and must be told the same on all ranks. So
// neither a vote nor a veto changes the memory that NCCL is given, nor the algorithm: with a vote it is always the
// fusion buffer, registered on every rank.
//
// The rounding errors of packing go to the residuals at once. If there is a vote, they go to a copy that is taken over
// together with the outputs.
//
// Thread-compatible.
class NcclReduce {
 public:
  struct Options {
    int size = 1;  // ranks of the job
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    const NcclFunctions* nccl = nullptr;
    NcclGroups* groups = nullptr;
    Communicator* host = nullptr;
    StreamMarks* marks = nullptr;  // may be nullptr
    SumOrder order = SumOrder::kOfNccl;
  };

  static absl::StatusOr<std::unique_ptr<NcclReduce>> Create(Options options);

  // NCCL's communicator of the members; nullptr for a group of one.
  using Entry = NcclGroups::Entry;

  // Whether the members have data or votes to exchange.
  static bool IsNeeded(const ReduceCall& call);

  // Prepares Run, on all ranks of the job.
  absl::Status Prepare(const ReduceCall& call, const Members& members);

  // REQUIRES: IsNeeded(call), and this rank is a member.
  absl::Status Run(const ReduceCall& call, const Members& members, Entry* entry);

  // Makes every member's stream wait for all others', and holds the vote if there is one.
  absl::Status Meet(const CallInfo& info, const Members& members, Entry* entry);

 private:
  // Votes in the device's memory, as the unpacking kernels take them.
  struct Votes {
    const std::byte* elements = nullptr;  // nullptr: there is no vote
    int count = 0;
    double stay = 0;
  };

  NcclReduce(Options options, VoteValues values, DeviceMemory unseen, DeviceMemory arrived_votes);

  // Reserves a vote if the call has a ballot, before any of the call's work is on the stream: an error then happens
  // before other ranks depend on this one. An unused vote stays for the next call.
  absl::Status TakeVote(const CallInfo& info);

  absl::Status RunPlain(const ReduceCall& call, NcclRedOp op, Entry* entry);
  absl::Status RunFused(const ReduceCall& call, NcclRedOp op, const Members& members, Entry* entry);
  absl::Status RunExchange(const ReduceCall& call, const Members& members, Entry* entry);

  // Steps of an exchange. Scatter sends all shards to the members that reduce them, and all votes to all members.
  absl::Status Scatter(const ReduceCall& call, const Members& members, Entry* entry, const std::byte* wire,
                       std::byte* arrived);
  absl::Status ReduceShard(const ReduceCall& call, const Members& members, std::byte* wire, const std::byte* arrived);
  absl::Status Gather(const ReduceCall& call, const Members& members, Entry* entry, std::byte* wire);

  absl::Status AllReduce(const CallInfo& info, Entry* entry, const void* input, void* output, size_t count, DType dtype,
                         NcclRedOp op);

  absl::Status Pack(const ReduceCall& call, const kernels::Scale& scale, std::byte* wire);
  absl::Status Unpack(const ReduceCall& call, const std::byte* wire, const kernels::Scale& scale, const Votes& votes);
  // If there is a vote, copies the residuals to memory that packing may change.
  absl::Status BorrowResiduals(const ReduceCall& call);
  bool HasBorrowed() const;
  // Puts fused votes into arrived_votes_, as float32.
  absl::Status WidenVotes(const Votes& votes);
  // Takes the changed copies over unless there is a veto. The votes are float32.
  absl::Status KeepResiduals(const ReduceCall& call, const Votes& votes);
  // Unpacks unless there is a veto, and leaves the ballot open.
  absl::Status Decide(const CallInfo& info, kernels::cuda::UnpackCall unpack, const Votes& votes);

  // Of a fused reduction: writes this rank's vote in front of the data.
  absl::Status PutVote(const ReduceCall& call, const Members& members, std::byte* wire);
  Votes FusedVotes(const ReduceCall& call, const Members& members, const std::byte* wire) const;

  // Launch the kernels, with the segments in packed_ and unpacked_.
  absl::Status LaunchPack(kernels::cuda::PackCall call);
  absl::Status LaunchReduce(absl::string_view what, const kernels::cuda::ReduceCall& call);
  absl::Status MarkedTransfer(absl::Status status);
  absl::Status LaunchUnpack(kernels::cuda::UnpackCall call, const Votes& votes, uint32_t* decision);
  absl::Status Copy(void* to, const void* from, size_t bytes);
  template <typename Function>
  absl::Status Launch(absl::string_view what, const Function& function);

  const Options options_;
  const VoteValues values_;
  OpenVotes votes_;
  std::shared_ptr<OpenVote> vote_;    // for the next call that has a ballot
  const DeviceMemory unseen_;         // receives outcomes that are not read
  const DeviceMemory arrived_votes_;  // of the other members, in an exchange
  StreamBuffer wire_;
  StreamBuffer arrived_;    // contributions of the other members
  StreamBuffer residuals_;  // copies of residuals
  PartsReduce parts_;
  WirePlan plan_;
  // Kept for their memory.
  std::vector<kernels::cuda::PackSegment> packed_;
  std::vector<kernels::cuda::UnpackSegment> unpacked_;
  std::vector<float*> residual_copies_;  // by segment; nullptr: none
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_REDUCE_H_
