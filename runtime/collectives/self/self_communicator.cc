// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/self/self_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "runtime/base/peer.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/reduce_arithmetic.h"
#include "runtime/control/self/self_control_plane.h"

namespace ronda {
namespace {

// The size of a block in the wire format. Tensors are processed block by block, so that the contribution to a block
// stays in the L1 cache.
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
  if (info.ballot != nullptr) info.ballot->Decide(info.ballot->word());
  return job_->failure();
}

Transport CreateSelfTransport(absl::string_view hostname) {
  const auto job = std::make_shared<SelfJob>(Peer{.rank = 0, .host = std::string(hostname), .pid = getpid()});
  return {.control = std::make_unique<SelfControlPlane>(job),
          .communicator = std::make_unique<SelfCommunicator>(job),
          .flights = std::make_shared<FlightBoard>(1)};
}

}  // namespace ronda
