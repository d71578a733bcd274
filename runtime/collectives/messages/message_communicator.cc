// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/messages/message_communicator.h"

#include <algorithm>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/reduce_arithmetic.h"

namespace ronda {
namespace {

// With half this size or less, reductions of 4 MiB between two ranks on one host take 5 to 15 % longer, because each
// chunk costs a handshake. With larger chunks, too few are left to overlap transfers with reductions.
constexpr size_t kChunkBytes = 2 << 20;
constexpr size_t kMinChunkBytes = 4096;
// A reduction sends all contributions to all members if one contribution has at most kShortBytes, or all of them
// together have at most kShortBytesOfAll.
constexpr size_t kShortBytes = 2048;
constexpr size_t kShortBytesOfAll = 64 << 10;

}  // namespace

MessageCommunicator::MessageCommunicator(Options options)
    : link_(std::move(options)), exchange_(link_), exchanges_(link_, exchange_), chunk_bytes_(kChunkBytes) {}

template <typename Collective>
absl::Status MessageCommunicator::AsMember(const CallInfo& info, const Collective& collective) {
  RONDA_RETURN_IF_ERROR(link_.failure());
  const Members members(info, link_.rank(), link_.size());
  return members.IncludeSelf() ? collective(members) : absl::OkStatus();
}

absl::Status MessageCommunicator::Reduce(const ReduceCall& call) {
  return AsMember(call.info, [&](const Members& members) -> absl::Status {
    const ReduceArithmetic reduction(call, &reduction_memory_);
    if (reduction.granules() == 0 && call.info.ballot == nullptr) return absl::OkStatus();
    const size_t bytes = reduction.wire_bytes();
    if (bytes <= kShortBytes || bytes * static_cast<size_t>(members.size()) <= kShortBytesOfAll) {
      return ReduceShort(reduction, members);
    }
    return MessageReduce(reduction, members, chunk_bytes_, link_, exchange_, memory_).Run();
  });
}

absl::Status MessageCommunicator::ReduceShort(const ReduceArithmetic& reduction, const Members& members) {
  const CallInfo& info = reduction.call().info;
  const size_t granules = reduction.granules();
  char* const own = exchange_.Begin(members, reduction.wire_bytes());
  if (info.ballot == nullptr || info.ballot->own == Ballot::Vote::kApprove) reduction.Pack(0, granules, own);
  RONDA_RETURN_IF_ERROR(exchange_.Run(info, reduction.input_bytes()));
  if (IsVetoed(info)) return absl::OkStatus();
  memory_.sources.resize(static_cast<size_t>(members.size()));
  reduction.buffer().ForEachRun(0, granules, [&](const ReduceArithmetic::Run& run) {
    const size_t offset = run.offset * reduction.layout().granule_bytes;
    for (int member = 0; member < members.size(); ++member) {
      memory_.sources[static_cast<size_t>(member)] = exchange_.BlockOf(member) + offset;
    }
    reduction.Deliver(run, memory_.sources);
  });
  return absl::OkStatus();
}

absl::Status MessageCommunicator::Broadcast(const BroadcastCall& call) {
  return AsMember(call.info, [&](const Members& members) { return exchanges_.Broadcast(call, members, chunk_bytes_); });
}

absl::Status MessageCommunicator::Allgather(const AllgatherCall& call) {
  return AsMember(call.info, [&](const Members& members) { return exchanges_.Allgather(call, members); });
}

absl::Status MessageCommunicator::Alltoall(const AlltoallCall& call) {
  return AsMember(call.info, [&](const Members& members) { return exchanges_.Alltoall(call, members); });
}

absl::Status MessageCommunicator::Barrier(const CallInfo& info) {
  return AsMember(info, [&](const Members& members) {
    exchange_.Begin(members, 0);
    return exchange_.Run(info, /*bytes_total=*/0);
  });
}

void MessageCommunicator::Tune(const Tuning& tuning) {
  chunk_bytes_ = tuning.chunk_bytes == 0 ? kChunkBytes : std::max(tuning.chunk_bytes, kMinChunkBytes);
}

}  // namespace ronda
