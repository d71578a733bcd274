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

// Collectives in two levels, which are a fast level between the ranks of a host and a slow level across hosts. Across
// hosts each byte travels once per host instead of once per rank.
//
// A reduction of all ranks does three steps for each chunk. The first is a reduce-scatter on the host. Then the ranks
// that hold a shard reduce it across hosts. The last step is an allgather on the host. If the calls across hosts block,
// a separate thread makes these calls. So chunk k travels while chunk k + 1 is reduced on the host and chunk k - 1 is
// gathered. With hosts of different sizes, a chunk has as many shards as the smallest host has ranks.
//
// The tensors are in the memory that the levels' communicators use, which is the host's memory or one device's.
// LevelOps hides the difference.
//
// Some calls use the flat communicator. They are calls of only some ranks, reductions in which each rank receives a
// part, all-to-alls, and gathers for one rank. Allgathers use it if the hosts do not list the ranks in order.
//
// A sum is made on each host in the order of the host's ranks, then in the order of the hosts. 16-bit and 8-bit wires
// are rounded once per host and once at the end. So results are the same on all ranks and in every run, but their last
// bits can differ from those of a flat backend.
class HierarchicalCommunicator : public Communicator {
 public:
  struct Options {
    RankId rank = 0;
    HostMap hosts;
    std::unique_ptr<LevelOps> ops = std::make_unique<HostLevelOps>();  // for the tensors' memory
    std::unique_ptr<Communicator> local;                               // connects this host's ranks, by local rank
    std::unique_ptr<Communicator> across;  // of the ranks with this local rank, by host; nullptr:
                                           // this rank has no shard
    std::unique_ptr<Communicator> flat;    // connects all ranks, for calls that two levels do not make cheaper
    TwoLevelReduce::Levels::Driver across_driver = TwoLevelReduce::Levels::Driver::kOwnThread;
    // The communicator that does barriers of all ranks; not owned. nullptr: the levels do them. The levels of a device
    // cannot do barriers, because a level across hosts may be ahead of the device.
    Communicator* meeting = nullptr;
    // The data under way on one level at a time; the levels cut it further. Each chunk goes to another thread and back,
    // which costs time if ranks outnumber cores. With four ranks on two cores, chunks of 2 MiB made reductions of 4 MiB
    // take one and a half times as long. They did not change the time of reductions of 16 MiB.
    size_t chunk_bytes = size_t{8} << 20;
  };

  explicit HierarchicalCommunicator(Options options);

  // The communicator's own levels, for other code that works in two levels.
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
  // The number of ranks on each host that have a communicator across.
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
