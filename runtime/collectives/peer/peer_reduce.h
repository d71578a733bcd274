// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_PEER_PEER_REDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_PEER_PEER_REDUCE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/calls.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/packing/packing.h"
#include "runtime/collectives/packing/plan_cache.h"
#include "runtime/collectives/packing/wire_plan.h"
#include "runtime/collectives/peer/peer_group.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Executes the reductions of one group of a PeerCommunicator. Each member packs its tensors into its own pad, and reads
// the pads of all members. The contributions are reduced in member order, in float32 or wider, and rounded once, so the
// results have the same bits as with the host backends. Each chunk is reduced by one of these algorithms:
//
//   one-shot     all receive everything, in few bytes: packed, meeting, all of it reduced by every member, unpacked
//   two-shot     all receive everything: packed, meeting, own shard reduced in the own pad, meeting, unpacked from the
//                pads of all members
//   by member    each receives another part, and all know all parts: packed by member, meeting, own part reduced in
//                the own pad, unpacked
//
// All work is on one stream. One-shot reads more memory than two-shot, but needs only one meeting.
//
// Thread-compatible.
class PeerReduce {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    StreamMarks* marks = nullptr;  // may be nullptr
    std::byte* scratch = nullptr;  // device memory for the results of one-shot reductions; not owned
    size_t one_shot_bytes = 0;     // size of `scratch`; larger chunks are reduced in two shots; the same on all ranks
  };

  // `group` must outlive the object.
  PeerReduce(const Options& options, PeerGroup* group);

  // REQUIRES: the segments are not all empty.
  absl::Status Run(const ReduceCall& call);

 private:
  // A chunk in progress.
  struct Step {
    const ReduceCall& call;
    WirePlan::Chunk chunk;
    ReductionPlan::Tables& tables;
    PeerGroup::Slot slot;
    std::byte* own;  // this member's slot
  };

  // Sets plan_ and tables_.
  void Plan(const ReduceCall& call);
  absl::Status RunChunk(const Step& step);
  absl::Status ReduceAll(const Step& step);
  absl::Status ReduceShards(const Step& step);
  absl::Status ReduceOwnRegion(const Step& step);

  absl::Status Pack(const Step& step);
  // Reduces `range` of all members' slots into `to`.
  absl::Status Reduce(const Step& step, const WirePlan::Range& range, std::byte* to);
  // Unpacks from `buffer`. `fill` builds the chunk's tables if they do not exist yet.
  template <typename Fill>
  absl::Status Unpack(const Step& step, const std::byte* buffer, const Fill& fill);
  absl::Status Meet(const Step& step);
  template <typename Function>
  absl::Status Launch(StreamPhase phase, absl::string_view what, const Function& function);

  const Options options_;
  PeerGroup* const group_;
  PlanCache known_;
  WirePlan own_plan_;                                     // for calls whose plans are not cached
  ReductionPlan::Tables own_tables_;                      // likewise
  const WirePlan* plan_ = &own_plan_;                     // of the current call
  std::vector<ReductionPlan::Tables>* tables_ = nullptr;  // of the plan, by chunk; nullptr: own_tables_, for each chunk
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_PEER_PEER_REDUCE_H_
