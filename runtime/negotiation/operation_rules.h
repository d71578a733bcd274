// What the negotiation must know about each operation.
#ifndef RONDA_RUNTIME_NEGOTIATION_OPERATION_RULES_H_
#define RONDA_RUNTIME_NEGOTIATION_OPERATION_RULES_H_

#include "runtime/base/types.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// What the first dimension of a tensor means to the other ranks. All other dimensions are the same on every rank.
enum class FirstDimension {
  kShared,    // the same everywhere
  kGathered,  // each rank's own, and all ranks learn all of them
  kLocal,     // each rank's own, and nobody else's business
  kOfRoot,    // the root's counts; what the others say is ignored
};

constexpr FirstDimension FirstDimensionOf(OpType op) {
  if (op == OpType::kAllgather || op == OpType::kGather) return FirstDimension::kGathered;
  if (op == OpType::kAlltoall) return FirstDimension::kLocal;
  if (op == OpType::kScatter) return FirstDimension::kOfRoot;
  return FirstDimension::kShared;
}

// Whether tensors of this operation are divided by rows, so that a scalar makes no sense.
constexpr bool NeedsFirstDimension(OpType op) {
  return FirstDimensionOf(op) != FirstDimension::kShared || op == OpType::kReduceScatter;
}

// Whether `request.root` means something.
constexpr bool HasRoot(OpType op) {
  return op == OpType::kBroadcast || op == OpType::kReduce || op == OpType::kGather || op == OpType::kScatter ||
         op == OpType::kSendRecv;
}

// Whether it changes the process sets.
constexpr bool ChangesProcessSets(OpType op) { return op == OpType::kAddProcessSet || op == OpType::kRemoveProcessSet; }

// Whether responses to it are kept in the response cache.
constexpr bool IsCached(OpType op) { return op != OpType::kJoin && !ChangesProcessSets(op); }

// Whether it can be part of a schedule, which all ranks carry out together. An operation with limits of its own shall
// fail alone when they are over; in a schedule a rank that has stopped fails the job.
inline bool CanBeScheduled(const TensorRequest& request) {
  return IsCached(request.op) && request.op != OpType::kSendRecv && !request.limits;
}

// Whether it can do without the ranks that have joined; those with a root only if the root is there.
constexpr bool RunsWithoutJoined(OpType op) {
  return op == OpType::kAllreduce || op == OpType::kAllgather || op == OpType::kBroadcast || op == OpType::kBarrier ||
         op == OpType::kReduce || op == OpType::kGather;
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_OPERATION_RULES_H_
