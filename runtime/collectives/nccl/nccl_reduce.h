// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_REDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_REDUCE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/calls.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/nccl/nccl_arithmetic.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/stream_buffer.h"
#include "runtime/collectives/packing/packing.h"
#include "runtime/collectives/packing/plan_cache.h"
#include "runtime/collectives/packing/wire_plan.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Executes the reductions of an NcclCommunicator. Each reduction uses one of these algorithms:
//
//                    all members receive everything        each member receives another part, and all know all parts
//   plain            [scaled,] ncclAllReduce [, scaled]    ncclReduceScatter [, scaled]
//   NCCL adds up     packed, ncclAllReduce, unpacked       packed by member, ncclReduceScatter, unpacked
//   Ronda adds up    packed, shards sent and received,     packed by member, parts sent and received, reduced,
//                    reduced, ncclAllGather, unpacked      unpacked
//
// The plain algorithm is for a single tensor that needs no conversion, and for tensors that are adjacent on all ranks
// (BucketLayout), because NCCL can work on them in the trainer's memory. Factors are applied there too, except that a
// single tensor with a factor before the sum is packed. All members choose the same algorithm, because the choice
// depends only on facts that are the same on all of them. nccl_arithmetic.h says which reductions NCCL itself executes.
//
// Data larger than a chunk is sent chunk by chunk, through two buffers that are used alternately. While NCCL works on
// one chunk on the communicator's stream, the kernels pack the next chunk and unpack the previous one on a second
// stream. This limits the memory, and every rank makes the same NCCL calls in the same order.
//
// A repeated call with the same tensors, as in a training loop, reuses the earlier call's plan (plan_cache.h).
//
// Thread-compatible.
class NcclReduce {
 public:
  static constexpr size_t kChunkBytes = size_t{32} << 20;

  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    const NcclFunctions* nccl = nullptr;
    NcclGroups* groups = nullptr;
    StreamMarks* marks = nullptr;  // may be nullptr
    SumOrder order = SumOrder::kOfNccl;
    size_t chunk_bytes = kChunkBytes;  // the same on all ranks
  };

  static absl::StatusOr<std::unique_ptr<NcclReduce>> Create(Options options);

  // The communicators of a group; nullptr for a group of one rank.
  using Entry = NcclGroups::Entry;

  // Returns whether the members have data to exchange.
  static bool IsNeeded(const ReduceCall& call);

  // From now on, reduces adjacent tensors (ReduceCall::layout) by these communicators of all ranks.
  void UseForAdjacent(Entry* entry) { for_adjacent_ = entry; }

  // REQUIRES: IsNeeded(call), and this rank is a member.
  absl::Status Run(const ReduceCall& call, const Members& members, Entry* entry);

  // Makes every member's stream wait for the streams of all other members.
  absl::Status Meet(const CallInfo& info, Entry* entry);

  // Makes the stream wait for all work, even that of a call that has failed halfway.
  absl::Status Join();

 private:
  // A call in progress.
  struct Reduction {
    const ReduceCall& call;
    const Members& members;
    Entry* entry;
    std::optional<NcclRedOp> op;  // nullopt: Ronda reduces
    WireFactors factors;
    StreamHandle kernels = nullptr;  // the stream that packs and unpacks
  };

  // A chunk's memory. Two slots are used alternately.
  struct Slot {
    StreamBuffer wire;
    StreamBuffer arrived;  // other members' contributions
    std::unique_ptr<DeviceEvent> packed;
    std::unique_ptr<DeviceEvent> moved;
    WirePlan::Chunk chunk = {};
    std::byte* data = nullptr;    // in `wire`
    std::byte* others = nullptr;  // in `arrived`
  };

  // The stream and the events, which must be created before any work is enqueued.
  struct Parts {
    std::unique_ptr<DeviceStream> kernel_stream;
    std::vector<std::unique_ptr<DeviceEvent>> events;
  };

  NcclReduce(Options options, Parts parts);
  Slot MakeSlot(std::unique_ptr<DeviceEvent> packed, std::unique_ptr<DeviceEvent> moved) const;

  // Sets plan_ and tables_.
  void Plan(const ReduceCall& call, const Members& members);

  absl::Status RunPlain(const ReduceCall& call, NcclRedOp op, const Members& members, Entry* entry);
  // Runs the reduction chunk by chunk, according to plan_.
  absl::Status RunChunks(Reduction run);
  // The steps for each chunk.
  absl::Status Begin(const Reduction& run, Slot& slot, size_t chunk);
  absl::Status Move(const Reduction& run, const Slot& slot);
  absl::Status End(const Reduction& run, const Slot& slot, size_t chunk);

  absl::Status MoveByNccl(const Reduction& run, const Slot& slot);
  // The steps in which Ronda itself reduces a chunk. Scatter() sends each shard to the member that reduces it.
  absl::Status Scatter(const Reduction& run, const Slot& slot);
  absl::Status ReduceShard(const Reduction& run, const Slot& slot);
  absl::Status Gather(const Reduction& run, const Slot& slot);

  absl::Status AllReduce(const CallInfo& info, Entry* entry, const void* input, void* output, size_t count, DType dtype,
                         NcclRedOp op);
  // `count` is the number of elements that this rank receives.
  absl::Status ReduceScatter(const CallInfo& info, Entry* entry, const void* input, void* output, size_t count,
                             DType dtype, NcclRedOp op);

  absl::Status Pack(const Reduction& run, const Slot& slot, size_t chunk);
  absl::Status Unpack(const Reduction& run, const Slot& slot, size_t chunk);

  // Makes `to` wait for all work on `from` so far.
  absl::Status HandOver(DeviceEvent& event, StreamHandle from, StreamHandle to, StreamPhase phase);
  absl::Status LaunchReduce(absl::string_view what, const kernels::cuda::ReduceCall& call);
  // Multiplies `count` elements in place.
  absl::Status ScaleInPlace(const ReduceCall& call, void* data, size_t count, const kernels::Scale& scale);
  absl::Status Mark(StreamPhase phase, StreamHandle stream, absl::Status status);
  absl::Status Copy(void* to, const void* from, size_t bytes, StreamHandle stream);
  template <typename Function>
  absl::Status Launch(absl::string_view what, const Function& function);

  const Options options_;
  const std::unique_ptr<DeviceStream> kernel_stream_;  // for calls with several chunks
  const std::unique_ptr<DeviceEvent> joint_;
  Entry* for_adjacent_ = nullptr;  // nullptr: those of the call
  Slot slots_[2];
  PlanCache known_;
  WirePlan own_plan_;  // for calls whose plans are not cached
  // The plan of the current call. tables_ points to its tables if it is from the cache, and is otherwise nullptr.
  const WirePlan* plan_ = &own_plan_;
  std::vector<ReductionPlan::Tables>* tables_ = nullptr;
  // Data members only to reuse their memory.
  PackSegments packed_;
  UnpackSegments unpacked_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_REDUCE_H_
