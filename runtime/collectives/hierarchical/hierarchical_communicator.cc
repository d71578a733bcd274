// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/hierarchical/hierarchical_communicator.h"

#include <numeric>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/hierarchical/level_ops.h"

namespace ronda {
namespace {

size_t Sum(absl::Span<const size_t> bytes) { return std::accumulate(bytes.begin(), bytes.end(), size_t{0}); }

}  // namespace

HierarchicalCommunicator::HierarchicalCommunicator(Options options)
    : options_(std::move(options)),
      sizes_(SizesOf(options_.hosts)),
      self_(PositionOf(options_.hosts, options_.rank)),
      in_rank_order_(IsInRankOrder(options_.hosts)),
      reduce_({.local = options_.local.get(),
               .across = options_.across.get(),
               .shards = sizes_.least,
               .ops = options_.ops.get(),
               .across_driver = options_.across_driver,
               .chunk_bytes = options_.chunk_bytes}) {}

absl::Status HierarchicalCommunicator::Vote(const CallInfo& info) {
  Ballot& ballot = *info.ballot;
  bool is_late = false;
  const auto once = [&] {
    if (!std::exchange(is_late, true)) ballot.when_late();
  };
  // The votes, flags and layouts that this rank knows so far: first its own, then those of its host, finally those of
  // all hosts.
  Ballot known = {.own = ballot.own, .own_flags = ballot.own_flags, .own_layout = ballot.own_layout, .when_late = once};
  int steps = 0;
  const auto vote = [&](Communicator& level) -> absl::Status {
    CallInfo round = LevelInfo(info, steps++);
    round.ballot = &known;
    RONDA_RETURN_IF_ERROR(level.Barrier(round));
    known.own = known.result == Ballot::Result::kVetoed ? Ballot::Vote::kVeto : Ballot::Vote::kApprove;
    known.own_flags = known.flags;
    known.own_layout = known.layout;
    return absl::OkStatus();
  };
  RONDA_RETURN_IF_ERROR(vote(*options_.local));
  if (options_.across != nullptr) RONDA_RETURN_IF_ERROR(vote(*options_.across));
  // A rank without a communicator across hosts gets the result from the other ranks of its host.
  if (IsUneven()) RONDA_RETURN_IF_ERROR(vote(*options_.local));
  ballot.result = known.result;
  ballot.flags = known.flags;
  ballot.layout = known.layout;
  return absl::OkStatus();
}

absl::Status HierarchicalCommunicator::Reduce(const ReduceCall& call) {
  // Scaled integer sums use the flat communicator, because a host's sum would travel in the elements' type, which may
  // be too small for it.
  const bool adds_wide = kernels::AddsWide(call.op, call.dtype, call.postscale);
  if (!IsOfAll(call.info) || call.delivery == ReduceCall::Delivery::kParts || adds_wide) {
    return options_.flat->Reduce(call);
  }
  if (call.info.ballot != nullptr) RONDA_RETURN_IF_ERROR(Vote(call.info));
  if (IsVetoed(call.info)) return absl::OkStatus();
  return reduce_.Run(call);
}

absl::Status HierarchicalCommunicator::Broadcast(const BroadcastCall& call) {
  if (!IsOfAll(call.info)) return options_.flat->Broadcast(call);
  const HostPosition root = PositionOf(options_.hosts, call.root);
  const bool is_at_home = self_.host == root.host;
  // Across hosts, the data travels between the ranks with the root's local rank or, if some host has no such rank,
  // between the hosts' first ranks.
  const bool root_goes_across = root.local_rank < shards();
  const int courier = root_goes_across ? root.local_rank : 0;
  BroadcastCall step = call;
  step.info = LevelInfo(call.info, 0);
  if (is_at_home && !root_goes_across) {
    step.root = root.local_rank;
    RONDA_RETURN_IF_ERROR(options_.local->Broadcast(step));
  }
  if (self_.local_rank == courier) {
    step.info = LevelInfo(call.info, 1);
    step.root = root.host;
    RONDA_RETURN_IF_ERROR(CrossOver(*options_.ops, [&] { return options_.across->Broadcast(step); }));
  }
  if (is_at_home && !root_goes_across) return absl::OkStatus();
  step.info = LevelInfo(call.info, 2);
  step.root = courier;
  return options_.local->Broadcast(step);
}

absl::Status HierarchicalCommunicator::Allgather(const AllgatherCall& call) {
  if (!IsOfAll(call.info) || call.receiver.has_value() || !in_rank_order_) return options_.flat->Allgather(call);
  host_bytes_.clear();
  size_t first = 0;
  for (const std::vector<RankId>& ranks : options_.hosts.hosts) {
    const absl::Span<const size_t> of_host = call.bytes_per_rank.subspan(first, ranks.size());
    if (static_cast<int>(host_bytes_.size()) == self_.host) local_bytes_.assign(of_host.begin(), of_host.end());
    host_bytes_.push_back(Sum(of_host));
    first += ranks.size();
  }
  // The first rank of each host gathers its host's data, exchanges it with the other hosts, and broadcasts the result
  // on its host.
  char* host_block = nullptr;
  if (self_.local_rank == 0) {
    RONDA_ASSIGN_OR_RETURN(host_block, options_.ops->GatherMemory(Sum(local_bytes_)));
  }
  RONDA_RETURN_IF_ERROR(options_.local->Allgather({.info = LevelInfo(call.info, 0),
                                                   .input = call.input,
                                                   .output = host_block,
                                                   .bytes_per_rank = local_bytes_,
                                                   .receiver = 0}));
  if (self_.local_rank == 0) {
    RONDA_RETURN_IF_ERROR(CrossOver(*options_.ops, [&] {
      return options_.across->Allgather(
          {.info = LevelInfo(call.info, 1), .input = host_block, .output = call.output, .bytes_per_rank = host_bytes_});
    }));
  }
  return options_.local->Broadcast(
      {.info = LevelInfo(call.info, 2), .data = call.output, .bytes = Sum(host_bytes_), .root = 0});
}

absl::Status HierarchicalCommunicator::Alltoall(const AlltoallCall& call) { return options_.flat->Alltoall(call); }

absl::Status HierarchicalCommunicator::Barrier(const CallInfo& info) {
  if (!IsOfAll(info)) return options_.flat->Barrier(info);
  if (options_.meeting != nullptr) return options_.meeting->Barrier(info);
  if (info.ballot != nullptr) return Vote(info);
  RONDA_RETURN_IF_ERROR(options_.local->Barrier(LevelInfo(info, 0)));
  if (options_.across != nullptr) RONDA_RETURN_IF_ERROR(options_.across->Barrier(LevelInfo(info, 1)));
  // A rank that has finished the level across hosts knows that all ranks have arrived. If hosts have different sizes,
  // some ranks have no level across hosts, and wait for the ranks of their host that do.
  return IsUneven() ? options_.local->Barrier(LevelInfo(info, 2)) : absl::OkStatus();
}

void HierarchicalCommunicator::Tune(const Tuning& tuning) {
  options_.local->Tune(tuning);
  if (options_.across != nullptr) options_.across->Tune(tuning);
  options_.flat->Tune(tuning);
}

}  // namespace ronda
