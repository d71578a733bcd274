#include "runtime/collectives/staged/staged_communicator.h"

#include <algorithm>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/members.h"
#include "runtime/collectives/staged/staged_exchanges.h"
#include "runtime/collectives/staged/staged_reduce.h"

namespace ronda {
namespace {

absl::Status Run(Staging& staging, const CallInfo& info, const Members& members, StagedCall& call) {
  return members.IncludeSelf() ? staging.Run(info, call) : Staging::RunOutside(call);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagedCommunicator>> StagedCommunicator::Create(Options options) {
  // A piece of every member's has room, however many there are.
  const size_t smallest = std::max(StagedReduce::kMinSlotBytes, static_cast<size_t>(options.host->size()) * 64);
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<Staging> staging,
                         Staging::Create({.device = std::move(options.device),
                                          .stream = options.stream,
                                          .slot_bytes = std::max(options.slot_bytes, smallest),
                                          .marks = options.marks,
                                          .job_failure = std::move(options.job_failure)}));
  return std::unique_ptr<StagedCommunicator>(new StagedCommunicator(options.host, std::move(staging)));
}

Capabilities StagedCommunicator::capabilities() const {
  return {
      .name = "staged", .max_ranks_per_process = host_->capabilities().max_ranks_per_process, .memory = Memory::kCuda};
}

absl::Status StagedCommunicator::Reduce(const ReduceCall& call) {
  // Ahead of the copies, which change residuals.
  if (call.info.ballot != nullptr) RONDA_RETURN_IF_ERROR(host_->Barrier(call.info));
  if (IsVetoed(call.info)) return absl::OkStatus();
  ReduceCall decided = call;
  decided.info.ballot = nullptr;
  StagedReduce staged(decided, host_, staging_.get());
  return Run(*staging_, decided.info, Members(decided.info, rank(), size()), staged);
}

absl::Status StagedCommunicator::Broadcast(const BroadcastCall& call) {
  const Members members(call.info, rank(), size());
  StagedBroadcast staged(call, members, host_, staging_.get());
  return Run(*staging_, call.info, members, staged);
}

absl::Status StagedCommunicator::Allgather(const AllgatherCall& call) {
  const Members members(call.info, rank(), size());
  StagedAllgather staged(call, members, host_, staging_.get());
  return Run(*staging_, call.info, members, staged);
}

absl::Status StagedCommunicator::Alltoall(const AlltoallCall& call) {
  const Members members(call.info, rank(), size());
  StagedAlltoall staged(call, members, host_, staging_.get());
  return Run(*staging_, call.info, members, staged);
}

absl::Status StagedCommunicator::Barrier(const CallInfo& info) { return host_->Barrier(info); }

}  // namespace ronda
