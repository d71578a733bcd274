#include "tests/chaos/operation.h"

#include <cstdint>
#include <memory>

#include "tests/chaos/moving_operations.h"
#include "tests/chaos/reducing_operations.h"

namespace ronda::chaos {
namespace {

template <class T>
std::unique_ptr<Operation> MakeOf(const OperationPlan& plan, int rank) {
  switch (plan.kind) {
    case OperationKind::kAllreduce:
      return std::make_unique<Allreduce<T>>(plan, rank);
    case OperationKind::kGroupedAllreduce:
      return std::make_unique<GroupedAllreduce<T>>(plan, rank);
    case OperationKind::kReduce:
      return std::make_unique<Reduce<T>>(plan, rank);
    case OperationKind::kReduceScatter:
      return std::make_unique<ReduceScatter<T>>(plan, rank);
    case OperationKind::kBroadcast:
      return std::make_unique<Broadcast<T>>(plan, rank);
    case OperationKind::kSendRecv:
      return std::make_unique<SendRecv<T>>(plan, rank);
    case OperationKind::kAllgather:
    case OperationKind::kGather:
    case OperationKind::kScatter:
    case OperationKind::kAlltoall:
      return std::make_unique<Moving<T>>(plan, rank);
    case OperationKind::kBroadcastObject:
    case OperationKind::kAllgatherObject:
      return std::make_unique<Objects>(plan, rank);
    case OperationKind::kSparseAllreduce:
      return std::make_unique<SparseAllreduce<T>>(plan, rank);
    case OperationKind::kBarrier:
      return std::make_unique<Barrier>(plan, rank);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Operation> MakeOperation(const OperationPlan& plan, int rank) {
  switch (plan.seed % 4) {
    case 0:
      return MakeOf<int32_t>(plan, rank);
    case 1:
      return MakeOf<int64_t>(plan, rank);
    case 2:
      return MakeOf<float>(plan, rank);
    default:
      return MakeOf<double>(plan, rank);
  }
}

}  // namespace ronda::chaos
