#include "runtime/collectives/self/self_communicator.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/reduce.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/contribution.h"
#include "runtime/collectives/logical_buffer.h"

namespace ronda {
namespace {

// Elements handled at a time: the contribution of a block stays in the first-level cache.
constexpr size_t kBlockElements = 2048;
constexpr size_t kMaxElementBytes = 8;

}  // namespace

absl::Status SelfCommunicator::Reduce(const ReduceCall& call) {
  RONDA_RETURN_IF_ERROR(job_->failure());
  const LogicalBuffer buffer(call.segments, call.dtype);
  const DType wire = WireDType(call);
  const bool reduce_in_place = ContributesInputItself(call);
  alignas(64) char contribution[kBlockElements * kMaxElementBytes];
  for (size_t begin = 0; begin < buffer.count(); begin += kBlockElements) {
    const size_t n = std::min(kBlockElements, buffer.count() - begin);
    if (!reduce_in_place) Pack(call, buffer, begin, n, contribution);
    buffer.ForEachRun(begin, n, [&](const LogicalBuffer::Run& run) {
      const void* const source = reduce_in_place ? run.input : contribution + run.offset * SizeOf(wire);
      kernels::Reduce({.sources = {&source, 1},
                       .dtype = wire,
                       .op = call.op,
                       .scale = call.postscale,
                       .dst = run.output,
                       .dst_dtype = call.dtype,
                       .count = run.count});
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

absl::Status SelfCommunicator::Barrier(const CallInfo&) { return job_->failure(); }

}  // namespace ronda
