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

// Collectives in two levels: a cheap one between the ranks of a host, and a dear one across hosts, over which each byte
// goes once a host and not once a rank.
//
// A reduction of all ranks is, chunk by chunk: a reduce-scatter on the host, a reduction of each shard across the hosts
// between the ranks that have it, and an all-gather on the host. A thread of its own drives a level across that blocks,
// so that chunk k travels while k + 1 is reduced on the host and k - 1 is gathered. With hosts of different sizes there
// are as many shards as ranks on the smallest.
//
// The tensors are where the levels want them: all of them are communicators of the host, or of the same device, which
// LevelOps tells apart.
//
// What goes flat: groups of some ranks, reductions that bring each rank a part, all-to-alls, gathers for one rank, and
// all-gathers if the ranks of a host do not follow each other.
//
// Order of summation: on each host in the order of its ranks, then in the order of the hosts; 16-bit and 8-bit wires
// are rounded once a host and once at the end. So results are the same on all ranks and from run to run, but can differ
// in the last bits from those of a flat backend.
class HierarchicalCommunicator : public Communicator {
 public:
  struct Options {
    RankId rank = 0;
    HostMap hosts;
    std::unique_ptr<LevelOps> ops = std::make_unique<HostLevelOps>();  // of where the tensors are
    std::unique_ptr<Communicator> local;   // of this host's ranks, numbered by their place in its list
    std::unique_ptr<Communicator> across;  // of the ranks with this place on their hosts, numbered by host; nullptr:
                                           // this rank has no shard
    std::unique_ptr<Communicator> flat;    // of all ranks, for what two levels do not make cheaper
    TwoLevelReduce::Levels::Driver across_driver = TwoLevelReduce::Levels::Driver::kOwnThread;
    // Holds votes and barriers of all ranks; not owned. nullptr: the levels do. Those of devices would hold them on the
    // device, level by level, which is no way to learn of a veto.
    Communicator* meeting = nullptr;
    // What is under way on one level at a time; the levels cut it further. Each chunk is handed to another thread and
    // back, which four ranks on two cores felt: with chunks of 2 MiB, 4 MiB took half as long again, 16 MiB the same.
    size_t chunk_bytes = size_t{8} << 20;
  };

  explicit HierarchicalCommunicator(Options options);

  // Its own, for what else works in two levels.
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
  // How many ranks of each host have a communicator across.
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
