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
#include "runtime/collectives/device_transport.h"
#include "runtime/collectives/nccl/device_votes.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/parts_reduce.h"
#include "runtime/collectives/nccl/stream_buffer.h"
#include "runtime/collectives/nccl/wire_plan.h"
#include "runtime/cuda/device.h"

namespace ronda {

// The reductions of an NcclCommunicator, in one of four ways, which all members know from what they all know:
//
//   plain     one tensor that goes as it is        ncclAllReduce from the tensor [, scaled where it is]
//   fused     NCCL adds up (wire_plan.h)           packed, unless it is one large tensor, ncclAllReduce, unpacked
//   exchange  Ronda adds up                        packed, shards sent and received, reduced, ncclAllGather, unpacked
//   parts     each receives another (parts_reduce.h)
//
// Votes are elements of the wire that travel along: reduced like the data in the fusion buffer, or sent to everybody in
// an exchange. The unpacking kernel counts them, leaves the outputs alone if one is not to stay, and writes the
// outcome.
//
// What packing loses goes to the residuals at once or, if there is a vote, to a copy that is taken over with the
// outputs.
//
// Thread-compatible.
class NcclReduce {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    const NcclFunctions* nccl = nullptr;
    NcclGroups* groups = nullptr;
    Communicator* host = nullptr;
    StreamMarks* marks = nullptr;  // may be nullptr
  };

  static absl::StatusOr<std::unique_ptr<NcclReduce>> Create(Options options);

  // NCCL's communicator of the members; nullptr for one alone.
  using Entry = NcclGroups::Entry;

  // Whether the members have anything to tell each other.
  static bool IsNeeded(const ReduceCall& call);

  // What goes before Run, on all ranks of the job.
  absl::Status Prepare(const ReduceCall& call, const Members& members);

  // REQUIRES: IsNeeded(call), and this rank is a member.
  absl::Status Run(const ReduceCall& call, const Members& members, Entry* entry);

  // All wait for all, on their streams, and hold the vote if there is one.
  absl::Status Meet(const CallInfo& info, const Members& members, Entry* entry);

 private:
  // Votes that lie somewhere on the device, as the unpacking kernels take them.
  struct Votes {
    const std::byte* elements = nullptr;  // nullptr: there is no vote
    int count = 0;
    double stay = 0;
  };

  NcclReduce(Options options, VoteValues values, DeviceMemory unseen);

  // Has a vote there for a call that has a ballot, before any of the call is on the stream: what fails then fails
  // before others count on this rank. One that was not needed stays for the next.
  absl::Status TakeVote(const CallInfo& info);

  absl::Status RunPlain(const ReduceCall& call, Entry* entry);
  absl::Status RunFused(const ReduceCall& call, const Members& members, Entry* entry);
  absl::Status RunExchange(const ReduceCall& call, const Members& members, Entry* entry);

  // Of a tensor that is not packed, and the votes in front of where its result goes.
  absl::Status AllReduceAlone(const ReduceCall& call, Entry* entry, std::byte* wire);

  // Of an exchange: everybody's shards to those who reduce them, and all votes to all.
  absl::Status Scatter(const ReduceCall& call, const Members& members, Entry* entry, const std::byte* wire,
                       std::byte* arrived);
  absl::Status ReduceShard(const ReduceCall& call, const Members& members, std::byte* wire, const std::byte* arrived);
  absl::Status Gather(const ReduceCall& call, const Members& members, Entry* entry, std::byte* wire);

  absl::Status AllReduce(const CallInfo& info, Entry* entry, const void* input, void* output, size_t count, DType dtype,
                         NcclRedOp op);

  absl::Status Pack(const ReduceCall& call, std::byte* wire);
  absl::Status Unpack(const ReduceCall& call, const std::byte* wire, const kernels::Scale& scale, const Votes& votes);
  // Copies the residuals to where packing may change them.
  absl::Status BorrowResiduals(const ReduceCall& call);
  // Takes the changed copies over, unless the vote is lost. The votes are float32.
  absl::Status KeepResiduals(const ReduceCall& call, const Votes& votes);
  // Unpacks unless the vote is lost, which decides the ballot.
  absl::Status Decide(const CallInfo& info, const kernels::cuda::UnpackCall& unpack, const Votes& votes);

  // Of a fused reduction: this rank's vote, in front of the data.
  absl::Status PutVote(const ReduceCall& call, const Members& members, std::byte* wire);
  Votes FusedVotes(const ReduceCall& call, const Members& members, const std::byte* wire) const;

  // Of what is in packed_ and unpacked_.
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
  std::shared_ptr<OpenVote> vote_;  // of the next call that has a ballot
  const DeviceMemory unseen_;         // where outcomes go that nobody wants to know
  StreamBuffer wire_;
  StreamBuffer arrived_;    // of an exchange
  StreamBuffer residuals_;  // copies
  PartsReduce parts_;
  WirePlan plan_;
  // Kept for their memory.
  std::vector<kernels::cuda::PackSegment> packed_;
  std::vector<kernels::cuda::UnpackSegment> unpacked_;
  std::vector<float*> residual_copies_;  // by segment; nullptr: none
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_REDUCE_H_
