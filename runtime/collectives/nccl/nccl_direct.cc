// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_direct.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "kernels/cpu/convert.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {
namespace {

// NCCL rounds the factor to the elements' type, and then multiplies each term by it. In types of 16 bits or fewer, the
// rounded factor may be so inexact that all results are wrong (a bfloat16 average over three ranks by 0.2 %).
bool RoundsWell(double factor, DType dtype) {
  if (SizeOf(dtype) > 2) return true;
  alignas(double) std::byte rounded[sizeof(double)];
  double represented = 0;
  kernels::Convert(&factor, DType::kFloat64, rounded, dtype, 1);
  kernels::Convert(rounded, dtype, &represented, DType::kFloat64, 1);
  return represented == factor;
}

NcclResult EnqueueReduction(const DirectCall& call, NcclDataType type, NcclRedOp op, const NcclFunctions& nccl,
                            NcclHandle handle, StreamHandle stream) {
  switch (call.info.op) {
    case OpType::kReduce:
      return nccl.Reduce(call.input, call.output, call.count, type, op, call.root, handle, stream);
    case OpType::kReduceScatter:
      return nccl.ReduceScatter(call.input, call.output, call.count, type, op, handle, stream);
    default:
      return nccl.AllReduce(call.input, call.output, call.count, type, op, handle, stream);
  }
}

}  // namespace

NcclDirect::NcclDirect(const DeviceSupport::DirectRequest& request, std::shared_ptr<const NcclLibrary> library,
                       SumOrder order)
    : size_(static_cast<int>(request.members.size())),
      self_(request.self),
      device_(request.device),
      stream_(request.stream),
      order_(order),
      groups_({.rank = request.self,
               .size = size_,
               .job_ranks = request.members,
               .device = request.device,
               .library = std::move(library),
               .share = request.share,
               .init_deadline = kInitDeadline,
               .job_failure = request.job_failure}) {}

absl::StatusOr<std::unique_ptr<NcclDirect>> NcclDirect::Connect(const DeviceSupport::DirectRequest& request,
                                                                std::shared_ptr<const NcclLibrary> library,
                                                                SumOrder order) {
  std::unique_ptr<NcclDirect> direct(new NcclDirect(request, std::move(library), order));
  const Members members(request.info, request.self, direct->size_);
  RONDA_ASSIGN_OR_RETURN(direct->entry_, direct->groups_.For(request.info, members));
  return direct;
}

bool NcclDirect::Reduces(DType dtype, ReduceOp reduction, const kernels::Scale& scale) const {
  if (!NcclOpOf(LayoutOf(dtype, WireFormat::kNone), reduction, order_).has_value()) return false;
  if (scale.IsIdentity()) return true;
  // NCCL does not scale integers, because it rounds them differently from Ronda.
  return reduction == ReduceOp::kSum && IsFloatingPoint(dtype) && RoundsWell(scale.Factor(), dtype);
}

absl::Status NcclDirect::Run(const DirectCall& call) {
  if (call.is_exchange()) return Exchange(call);
  if (call.count == 0) return groups_.failure();
  return groups_.Run(call.info, entry_,
                     [&](const NcclFunctions& nccl, NcclHandle handle) { return Enqueue(call, nccl, handle); });
}

NcclResult NcclDirect::Enqueue(const DirectCall& call, const NcclFunctions& nccl, NcclHandle handle) const {
  const size_t bytes = call.count * SizeOf(call.dtype);
  switch (call.info.op) {
    case OpType::kBroadcast:
      return nccl.Broadcast(call.input, call.output, bytes, NcclDataType::kUint8, call.root, handle, StreamOf(call));
    case OpType::kAllgather:
      return nccl.AllGather(call.input, call.output, bytes, NcclDataType::kUint8, handle, StreamOf(call));
    default:
      return Reduce(call, nccl, handle);
  }
}

NcclResult NcclDirect::Reduce(const DirectCall& call, const NcclFunctions& nccl, NcclHandle handle) const {
  const NcclDataType type = *NcclTypeOf(call.dtype);
  NcclRedOp op = *NcclOpOf(LayoutOf(call.dtype, WireFormat::kNone), call.reduction, order_);
  const bool averages = call.scale.divisor == size_ && call.scale.multiplier == 1;
  const bool multiplies = !averages && !call.scale.IsIdentity();
  if (averages) op = NcclRedOp::kAvg;
  if (multiplies) {
    const double factor = call.scale.Factor();
    alignas(double) std::byte scalar[sizeof(double)];
    kernels::Convert(&factor, DType::kFloat64, scalar, call.dtype, 1);
    const NcclResult made = nccl.RedOpCreatePreMulSum(&op, scalar, type, NcclScalarResidence::kHostImmediate, handle);
    if (made != NcclResult::kSuccess) return made;
  }
  const NcclResult result = EnqueueReduction(call, type, op, nccl, handle, StreamOf(call));
  if (multiplies) nccl.RedOpDestroy(op, handle);
  return result;
}

absl::Status NcclDirect::Exchange(const DirectCall& call) {
  RONDA_RETURN_IF_ERROR(groups_.failure());
  RONDA_RETURN_IF_ERROR(CopyOwn(call));
  const auto self = static_cast<size_t>(self_);
  bool has_peer = false;
  for (size_t peer = 0; peer < call.sends.size(); ++peer) {
    has_peer = has_peer || (peer != self && call.sends[peer].count + call.receives[peer].count > 0);
  }
  if (!has_peer) return absl::OkStatus();
  return groups_.Run(call.info, entry_,
                     [&](const NcclFunctions& nccl, NcclHandle handle) { return SendAndReceive(call, nccl, handle); });
}

absl::Status NcclDirect::CopyOwn(const DirectCall& call) const {
  const auto self = static_cast<size_t>(self_);
  const DirectPart& from = call.sends[self];
  const DirectPart& to = call.receives[self];
  if (from.count == 0 || from.data == to.data) return absl::OkStatus();
  return device_->Call("copying", [&](const ronda_cuda_plugin& cuda) {
    return cuda.copy(to.data, from.data, from.count * SizeOf(call.dtype), StreamOf(call));
  });
}

NcclResult NcclDirect::SendAndReceive(const DirectCall& call, const NcclFunctions& nccl, NcclHandle handle) const {
  const size_t element = SizeOf(call.dtype);
  NcclResult result = NcclResult::kSuccess;
  for (int peer = 0; peer < size_ && Goes(result); ++peer) {
    if (peer == self_) continue;
    const DirectPart& sent = call.sends[static_cast<size_t>(peer)];
    const DirectPart& received = call.receives[static_cast<size_t>(peer)];
    if (sent.count > 0) {
      result = nccl.Send(sent.data, sent.count * element, NcclDataType::kUint8, peer, handle, StreamOf(call));
    }
    if (received.count > 0 && Goes(result)) {
      result = nccl.Recv(received.data, received.count * element, NcclDataType::kUint8, peer, handle, StreamOf(call));
    }
  }
  return result;
}

}  // namespace ronda
