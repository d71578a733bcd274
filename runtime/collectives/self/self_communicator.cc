#include "runtime/collectives/self/self_communicator.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/reduce_arithmetic.h"

namespace ronda {
namespace {

// Of the wire, handled at a time: the contribution of a block stays in the first-level cache.
constexpr size_t kBlockBytes = 16 << 10;

}  // namespace

absl::Status SelfCommunicator::Reduce(const ReduceCall& call) {
  RONDA_RETURN_IF_ERROR(Barrier(call.info));
  if (IsVetoed(call.info)) return absl::OkStatus();
  const ReduceArithmetic reduction(call, &reduction_memory_);
  const size_t block = kBlockBytes / reduction.layout().granule_bytes;
  alignas(64) char contribution[kBlockBytes];
  for (size_t begin = 0; begin < reduction.granules(); begin += block) {
    const size_t n = std::min(block, reduction.granules() - begin);
    if (!reduction.ContributesInputItself()) reduction.Pack(begin, n, contribution);
    reduction.buffer().ForEachRun(begin, n, [&](const ReduceArithmetic::Run& run) {
      const void* const source = reduction.ContributesInputItself()
                                     ? reduction.InputOf(run)
                                     : contribution + run.offset * reduction.layout().granule_bytes;
      reduction.Deliver(run, {&source, 1});
    });
  }
  return absl::OkStatus();
}

absl::Status SelfCommunicator::Broadcast(const BroadcastCall&) { return job_->failure(); }

absl::Status SelfCommunicator::Allgather(const AllgatherCall& call) {
  RONDA_RETURN_IF_ERROR(job_->failure());
  if (call.bytes_per_rank[0] > 0) std::memcpy(call.output, call.input, call.bytes_per_rank[0]);
  return absl::OkStatus();
}

absl::Status SelfCommunicator::Alltoall(const AlltoallCall& call) {
  RONDA_RETURN_IF_ERROR(job_->failure());
  if (call.bytes[0] > 0) std::memcpy(call.output, call.input, call.bytes[0]);
  return absl::OkStatus();
}

absl::Status SelfCommunicator::Barrier(const CallInfo& info) {
  if (info.ballot != nullptr) {
    const bool stays = info.ballot->own == Ballot::Vote::kStay;
    info.ballot->result = stays ? Ballot::Result::kCarriedOut : Ballot::Result::kVetoed;
  }
  return job_->failure();
}

}  // namespace ronda
