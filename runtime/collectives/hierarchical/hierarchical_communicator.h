// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
#define RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/hierarchical/level_ops.h"
#include "runtime/collectives/hierarchical/two_level_reduce.h"
#include "runtime/collectives/host_map.h"

namespace ronda {

// Executes collectives in two levels: a fast level between the ranks of a host, and a slow level across hosts. Each
// byte crosses the network once per host instead of once per rank.
//
// A reduction of all ranks takes three steps per chunk: a reduce-scatter on the host, a reduction of each shard across
// hosts, and an allgather on the host. If calls across hosts block, a separate thread makes them, so that chunk k
// travels while chunk k + 1 is reduced on the host and chunk k - 1 is gathered. If hosts have different numbers of
// ranks, a chunk has as many shards as the smallest host has ranks.
//
// The tensors must be in the kind of memory that the levels' communicators use: host or device memory. LevelOps hides
// the difference.
//
// The flat communicator handles calls of only some ranks, reductions in which each rank receives a part, scaled integer
// sums, all-to-alls, and gathers to one rank. It also handles allgathers if the ranks are not numbered host by host.
//
// Each host adds its ranks' contributions in rank order; then the hosts' sums are added in host order. With a 16-bit or
// 8-bit wire format, each host's sum is rounded once, and the result once. So results are the same on all ranks and in
// every run, but their last bits can differ from those of a flat backend.
class HierarchicalCommunicator : public Communicator {
 public:
  struct Options {
    RankId rank = 0;
    HostMap hosts;
    std::unique_ptr<LevelOps> ops = std::make_unique<HostLevelOps>();  // for the tensors' memory
    std::unique_ptr<Communicator> local;                               // connects this host's ranks, by local rank
    std::unique_ptr<Communicator> across;  // of the ranks with this local rank, by host; nullptr:
                                           // this rank has no shard
    std::unique_ptr<Communicator> flat;    // connects all ranks, for calls that do not benefit from two levels
    TwoLevelReduce::Levels::Driver across_driver = TwoLevelReduce::Levels::Driver::kOwnThread;
    // The communicator for barriers of all ranks; not owned. nullptr: the levels execute barriers. Device levels
    // cannot, because a level across hosts may be ahead of the device.
    Communicator* meeting = nullptr;
    // The size of the chunks that a level handles one at a time, and cuts into smaller pieces. Handing a chunk to
    // another thread and back costs time if ranks outnumber cores: with four ranks on two cores, chunks of 2 MiB made
    // reductions of 4 MiB take one and a half times as long, while reductions of 16 MiB took the same time.
    size_t chunk_bytes = size_t{8} << 20;
  };

  explicit HierarchicalCommunicator(Options options);

  // Returns this communicator's levels, for other code that works in two levels.
  HostLevels levels() const {
    return {.hosts = options_.hosts, .local = options_.local.get(), .across = options_.across.get()};
  }

  RankId rank() const override { return options_.rank; }
  int size() const override { return options_.flat->size(); }
  absl::Status Reduce(const ReduceCall& call) override;
  absl::Status Broadcast(const BroadcastCall& call) override;
  absl::Status Allgather(const AllgatherCall& call) override;
  absl::Status Alltoall(const AlltoallCall& call) override;
  absl::Status Barrier(const CallInfo& info) override;
  void Tune(const Tuning& tuning) override;

 private:
  // Holds the call's vote on both levels.
  absl::Status Vote(const CallInfo& info);
  // Returns how many ranks of each host have a communicator across hosts.
  int shards() const { return sizes_.least; }
  bool IsUneven() const { return sizes_.least != sizes_.most; }
  bool IsOfAll(const CallInfo& info) const { return info.group == nullptr || info.group->size() == size(); }

  const Options options_;
  const HostSizes sizes_;
  const HostPosition self_;
  const bool in_rank_order_;
  TwoLevelReduce reduce_;
  std::vector<size_t> local_bytes_, host_bytes_;  // of an allgather
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
