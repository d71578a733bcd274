// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_direct.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "kernels/cpu/convert.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/nccl/nccl_memory.h"
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

// Returns the memory that the settings of rank `first` want, without its data, or the reason why the ranks get no
// memory. The result is the same on all ranks.
absl::StatusOr<DirectMemory> PlanMemory(const NcclLibrary& library, const NcclDirect::Settings& settings,
                                        RankId first) {
  if (settings.memory_bytes == 0) {
    return absl::FailedPreconditionError(absl::StrCat("RONDA_LANE_MEMORY_MB is 0 on rank ", first));
  }
  if (!HasNcclMemory(library.functions)) {
    return absl::FailedPreconditionError(
        absl::StrCat("RONDA_LANE_MEMORY_MB needs NCCL 2.19 or later, and this is ", library.version));
  }
  if (settings.hosts == NcclDirect::Settings::Hosts::kOne) return DirectMemory{.bytes = settings.memory_bytes};
  return absl::FailedPreconditionError(
      "RONDA_LANE_MEMORY_MB is for ranks of one host, and this process set has ranks on several hosts");
}

NcclCopyEngines EnginesFor(const DeviceSupport::DirectRequest& request, const absl::StatusOr<DirectMemory>& memory) {
  using AfterFailure = DeviceSupport::DirectRequest::AfterFailure;
  const bool may_wait_for_ever = request.process == AfterFailure::kEnds;
  return memory.ok() && may_wait_for_ever ? NcclCopyEngines::kUsed : NcclCopyEngines::kUnused;
}

}  // namespace

NcclDirect::NcclDirect(const DeviceSupport::DirectRequest& request, const std::shared_ptr<const NcclLibrary>& library,
                       SumOrder order, absl::StatusOr<DirectMemory> memory)
    : size_(static_cast<int>(request.members.size())),
      self_(request.self),
      device_(request.device),
      stream_(request.stream),
      order_(order),
      memory_(std::move(memory)),
      groups_({.rank = request.self,
               .size = size_,
               .job_ranks = request.members,
               .device = request.device,
               .library = library,
               .memory_setting = "RONDA_LANE_MEMORY_MB",
               .copy_engines = EnginesFor(request, memory_),
               .share = request.share,
               .init_deadline = kInitDeadline,
               .job_failure = request.job_failure,
               .fail_job = request.fail_job}) {}

absl::StatusOr<std::unique_ptr<NcclDirect>> NcclDirect::Connect(const DeviceSupport::DirectRequest& request,
                                                                std::shared_ptr<const NcclLibrary> library,
                                                                const Settings& settings) {
  std::unique_ptr<NcclDirect> direct(
      new NcclDirect(request, library, settings.order, PlanMemory(*library, settings, request.members.front())));
  if (const absl::Status status = direct->Prepare(request); !status.ok()) {
    request.fail_job(status);  // first, because the abort gives the other ranks errors of NCCL
    direct->Abort();           // the other ranks do not end their communicators yet
    return status;
  }
  if (!direct->memory_.ok() && settings.memory_bytes > 0 && request.self == 0) {
    Log(LogLevel::kWarning, direct->groups_.self(), direct->memory_.status().message());
  }
  return direct;
}

absl::Status NcclDirect::Prepare(const DeviceSupport::DirectRequest& request) {
  const NcclUse use = memory_.ok() ? NcclUse::kMemory : NcclUse::kBuffers;
  RONDA_ASSIGN_OR_RETURN(entry_, groups_.For(request.info, Members(request.info, self_, size_), use));
  if (!memory_.ok()) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(*memory_, groups_.AllocateMemory(memory_->bytes));
  return groups_.RegisterInTime(entry_, memory_->data.get(), memory_->bytes, request.info.limits);
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
