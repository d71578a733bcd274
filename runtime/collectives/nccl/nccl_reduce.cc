// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_reduce.h"

#include <optional>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/packing/packing.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {
namespace {

namespace cuda = kernels::cuda;

// The number of events: two for each of the two slots, and joint_.
constexpr int kEvents = 2 * 2 + 1;

// Returns whether the members receive equal parts of the call's only tensor, in member order.
bool HasEqualParts(const ReduceCall& call, int members) {
  const size_t each = call.segments.front().count / static_cast<size_t>(members);
  if (call.part_of == nullptr || members == 1 || each * static_cast<size_t>(members) != call.segments.front().count) {
    return false;
  }
  for (int member = 0; member < members; ++member) {
    const PartRange part = (*call.part_of)(0, member);
    if (part.begin != each * static_cast<size_t>(member) || part.count != each) return false;
  }
  return true;
}

// Returns whether NCCL can work directly on the tensors. The result is the same on all members.
bool IsPlain(const WireLayout& layout, const ReduceCall& call, int members) {
  if (call.layout == BucketLayout::kAdjacent) {
    // Integers with a factor are packed, because packing multiplies them in a wider type.
    return layout.dtype == call.dtype && DeliversAll(call) &&
           (IsFloatingPoint(call.dtype) || FactorsOf(layout, call).before.IsIdentity());
  }
  return call.segments.size() == 1 && layout.dtype == call.dtype && FactorsOf(layout, call).before.IsIdentity() &&
         (DeliversAll(call) || HasEqualParts(call, members));
}

// Returns the tensors as one tensor, starting with the first nonempty one.
// REQUIRES: the call has one tensor or adjacent tensors, and not all are empty.
Segment WholeOf(const ReduceCall& call) {
  Segment whole = *std::ranges::find_if(call.segments, [](const Segment& segment) { return segment.count > 0; });
  whole.count = 0;
  for (const Segment& segment : call.segments) whole.count += segment.count;
  return whole;
}

// Collects the result of the calls of one NCCL group, up to the first failure.
class Batch {
 public:
  bool Goes() const { return result_ == NcclResult::kSuccess || result_ == NcclResult::kInProgress; }
  void Add(NcclResult result) {
    if (Goes()) result_ = result;
  }
  NcclResult result() const { return result_; }

 private:
  NcclResult result_ = NcclResult::kSuccess;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NcclReduce>> NcclReduce::Create(Options options) {
  Device& device = *options.device;
  Parts parts;
  RONDA_ASSIGN_OR_RETURN(parts.kernel_stream, DeviceStream::Create(&device));
  for (int i = 0; i < kEvents; ++i) {
    RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> event, device.NewEvent());
    parts.events.push_back(std::move(event));
  }
  return std::unique_ptr<NcclReduce>(new NcclReduce(std::move(options), std::move(parts)));
}

NcclReduce::NcclReduce(Options options, Parts parts)
    : options_(std::move(options)),
      kernel_stream_(std::move(parts.kernel_stream)),
      joint_(std::move(parts.events[0])),
      slots_{MakeSlot(std::move(parts.events[1]), std::move(parts.events[2])),
             MakeSlot(std::move(parts.events[3]), std::move(parts.events[4]))},
      known_(options_.chunk_bytes) {}

NcclReduce::Slot NcclReduce::MakeSlot(std::unique_ptr<DeviceEvent> packed, std::unique_ptr<DeviceEvent> moved) const {
  const auto buffer = [this](const char* purpose) {
    return StreamBuffer::Options{.device = options_.device.get(),
                                 .stream = options_.stream,
                                 .nccl = options_.nccl,
                                 .groups = options_.groups,
                                 .purpose = purpose,
                                 .most_bytes = options_.chunk_bytes};
  };
  return {.wire = StreamBuffer(buffer("the fusion buffer")),
          .arrived = StreamBuffer(buffer("other ranks' contributions")),
          .packed = std::move(packed),
          .moved = std::move(moved)};
}

bool NcclReduce::IsNeeded(const ReduceCall& call) { return !IsEmpty(call); }

absl::Status NcclReduce::Run(const ReduceCall& call, const Members& members, Entry* entry) {
  const WireLayout layout = LayoutOf(call.dtype, call.wire);
  // NCCL adds integers in their own type, in which a sum can overflow. So Ronda executes reductions that need a wider
  // type.
  const std::optional<NcclRedOp> op = kernels::AddsWide(call.op, layout.dtype, call.postscale)
                                          ? std::nullopt
                                          : NcclOpOf(layout, call.op, options_.order);
  if (op.has_value() && IsPlain(layout, call, members.size())) {
    const bool is_of_all = call.info.group == nullptr;
    const bool has_own = is_of_all && call.layout == BucketLayout::kAdjacent && for_adjacent_ != nullptr;
    return RunPlain(call, *op, members, has_own ? for_adjacent_ : entry);
  }
  Plan(call, members);
  // Ronda's own reductions apply `prescale` before the sum, and `postscale` after it.
  const WireFactors factors =
      op.has_value() ? FactorsOf(layout, call) : WireFactors{.before = call.prescale, .after = {}};
  return RunChunks({.call = call, .members = members, .entry = entry, .op = op, .factors = factors});
}

void NcclReduce::Plan(const ReduceCall& call, const Members& members) {
  if (DeliversAll(call)) {
    ReductionPlan& known = known_.Find(call);
    plan_ = &known.wire;
    tables_ = &known.chunks;
    return;
  }
  own_plan_.LayByMember(call, options_.chunk_bytes, members.size());
  plan_ = &own_plan_;
  tables_ = nullptr;
}

// NCCL has no barrier, so the members reduce one byte and ignore the result.
absl::Status NcclReduce::Meet(const CallInfo& info, Entry* entry) {
  RONDA_ASSIGN_OR_RETURN(std::byte* const any, slots_[0].wire.GetFor(entry, 1));
  return AllReduce(info, entry, any, any, 1, DType::kUint8, NcclRedOp::kSum);
}

absl::Status NcclReduce::RunPlain(const ReduceCall& call, NcclRedOp op, const Members& members, Entry* entry) {
  const Segment tensor = WholeOf(call);
  const size_t count = DeliversAll(call) ? tensor.count : tensor.count / static_cast<size_t>(members.size());
  const WireFactors factors = FactorsOf(LayoutOf(call.dtype, call.wire), call);
  RONDA_RETURN_IF_ERROR(ScaleInPlace(call, tensor.output, count, factors.before));
  RONDA_RETURN_IF_ERROR(DeliversAll(call)
                            ? AllReduce(call.info, entry, tensor.input, tensor.output, count, call.dtype, op)
                            : ReduceScatter(call.info, entry, tensor.input, tensor.output, count, call.dtype, op));
  return ScaleInPlace(call, tensor.output, count, factors.after);
}

absl::Status NcclReduce::ScaleInPlace(const ReduceCall& call, void* data, size_t count, const kernels::Scale& scale) {
  if (scale.IsIdentity()) return absl::OkStatus();
  return LaunchReduce("scaling", {.sources = data,
                                  .source_count = 1,
                                  .wire = {.dtype = call.dtype},
                                  .op = call.op,
                                  .scale = scale,
                                  .dst = data,
                                  .granules = count});
}

absl::Status NcclReduce::RunChunks(Reduction run) {
  const size_t chunks = plan_->chunks();
  run.kernels = chunks == 1 ? options_.stream : kernel_stream_->handle();
  RONDA_RETURN_IF_ERROR(HandOver(*joint_, options_.stream, run.kernels, StreamPhase::kWaitForData));
  for (size_t i = 0; i < chunks; ++i) {
    RONDA_RETURN_IF_ERROR(Begin(run, slots_[i % 2], i));
    RONDA_RETURN_IF_ERROR(Move(run, slots_[i % 2]));
    if (i > 0) RONDA_RETURN_IF_ERROR(End(run, slots_[(i - 1) % 2], i - 1));
  }
  RONDA_RETURN_IF_ERROR(End(run, slots_[(chunks - 1) % 2], chunks - 1));
  return HandOver(*joint_, run.kernels, options_.stream, StreamPhase::kUnpack);
}

absl::Status NcclReduce::Join() {
  return HandOver(*joint_, kernel_stream_->handle(), options_.stream, StreamPhase::kUnpack);
}

absl::Status NcclReduce::Begin(const Reduction& run, Slot& slot, size_t chunk) {
  slot.chunk = plan_->ChunkOf(chunk);
  const int n = run.members.size();
  const size_t bytes =
      run.op.has_value() ? plan_->BytesOf(slot.chunk) : plan_->ShardBytes(slot.chunk, n) * static_cast<size_t>(n);
  RONDA_ASSIGN_OR_RETURN(slot.data, slot.wire.GetFor(run.entry, bytes));
  if (!run.op.has_value()) {
    RONDA_ASSIGN_OR_RETURN(slot.others, slot.arrived.GetFor(run.entry, bytes));
  }
  RONDA_RETURN_IF_ERROR(Pack(run, slot, chunk));
  return HandOver(*slot.packed, run.kernels, options_.stream, StreamPhase::kPack);
}

absl::Status NcclReduce::Move(const Reduction& run, const Slot& slot) {
  if (run.op.has_value()) {
    RONDA_RETURN_IF_ERROR(MoveByNccl(run, slot));
  } else {
    RONDA_RETURN_IF_ERROR(Scatter(run, slot));
    RONDA_RETURN_IF_ERROR(ReduceShard(run, slot));
    RONDA_RETURN_IF_ERROR(Gather(run, slot));
  }
  return run.kernels == options_.stream ? absl::OkStatus() : slot.moved->Record(options_.stream);
}

absl::Status NcclReduce::End(const Reduction& run, const Slot& slot, size_t chunk) {
  // The kernels' stream waits for this chunk only now, so that it could pack the next chunk before.
  if (run.kernels != options_.stream) RONDA_RETURN_IF_ERROR(slot.moved->OrderBefore(run.kernels));
  return Unpack(run, slot, chunk);
}

absl::Status NcclReduce::MoveByNccl(const Reduction& run, const Slot& slot) {
  const WireLayout& layout = plan_->layout();
  const size_t count = slot.chunk.bytes / layout.granule_bytes;
  if (plan_->regions() == 1) {
    return AllReduce(run.call.info, run.entry, slot.data, slot.data, count, layout.dtype, *run.op);
  }
  std::byte* const own = slot.data + static_cast<size_t>(run.members.self()) * slot.chunk.bytes;
  return ReduceScatter(run.call.info, run.entry, slot.data, own, count, layout.dtype, *run.op);
}

absl::Status NcclReduce::Scatter(const Reduction& run, const Slot& slot) {
  const int n = run.members.size();
  if (run.entry == nullptr) return Copy(slot.others, slot.data, plan_->BytesOf(slot.chunk), options_.stream);
  const size_t shard = plan_->ShardBytes(slot.chunk, n);
  const size_t own = plan_->ShardOf(slot.chunk, run.members.self(), n).bytes;
  const auto scatter = [&](const NcclFunctions& nccl, NcclHandle handle) {
    Batch batch;
    const auto exchange = [&](int peer, const void* from, size_t sent, std::byte* to, size_t received) {
      if (sent > 0) batch.Add(nccl.Send(from, sent, NcclDataType::kUint8, peer, handle, options_.stream));
      if (received > 0) batch.Add(nccl.Recv(to, received, NcclDataType::kUint8, peer, handle, options_.stream));
    };
    for (int i = 0; i < n && batch.Goes(); ++i) {
      const auto at = static_cast<size_t>(i);
      const WirePlan::Range theirs = plan_->ShardOf(slot.chunk, i, n);
      exchange(i, slot.data + theirs.begin, theirs.bytes, slot.others + shard * at, own);
    }
    return batch.result();
  };
  return Mark(StreamPhase::kTransfer, options_.stream, options_.groups->Run(run.call.info, run.entry, scatter));
}

absl::Status NcclReduce::ReduceShard(const Reduction& run, const Slot& slot) {
  const int n = run.members.size();
  const WirePlan::Range own = plan_->ShardOf(slot.chunk, run.members.self(), n);
  if (own.bytes == 0) return absl::OkStatus();
  return LaunchReduce("reducing", {.sources = slot.others,
                                   .stride = plan_->ShardBytes(slot.chunk, n),
                                   .source_count = n,
                                   .wire = plan_->wire(),
                                   .op = run.call.op,
                                   .scale = run.call.postscale,
                                   .dst = slot.data + own.begin,
                                   .granules = own.bytes / plan_->layout().granule_bytes});
}

absl::Status NcclReduce::Gather(const Reduction& run, const Slot& slot) {
  // With several regions, each member needs only its own, so there is nothing to gather.
  if (run.entry == nullptr || plan_->regions() > 1) return absl::OkStatus();
  const size_t shard = plan_->ShardBytes(slot.chunk, run.members.size());
  const std::byte* const own = slot.data + shard * static_cast<size_t>(run.members.self());
  const auto gather = [&](const NcclFunctions& nccl, NcclHandle handle) {
    return nccl.AllGather(own, slot.data, shard, NcclDataType::kUint8, handle, options_.stream);
  };
  return Mark(StreamPhase::kTransfer, options_.stream, options_.groups->Run(run.call.info, run.entry, gather));
}

absl::Status NcclReduce::AllReduce(const CallInfo& info, Entry* entry, const void* input, void* output, size_t count,
                                   DType dtype, NcclRedOp op) {
  if (entry == nullptr) {
    return input == output ? absl::OkStatus() : Copy(output, input, count * SizeOf(dtype), options_.stream);
  }
  const auto all_reduce = [&](const NcclFunctions& nccl, NcclHandle handle) {
    return nccl.AllReduce(input, output, count, *NcclTypeOf(dtype), op, handle, options_.stream);
  };
  return Mark(StreamPhase::kTransfer, options_.stream, options_.groups->Run(info, entry, all_reduce));
}

absl::Status NcclReduce::ReduceScatter(const CallInfo& info, Entry* entry, const void* input, void* output,
                                       size_t count, DType dtype, NcclRedOp op) {
  const auto reduce_scatter = [&](const NcclFunctions& nccl, NcclHandle handle) {
    return nccl.ReduceScatter(input, output, count, *NcclTypeOf(dtype), op, handle, options_.stream);
  };
  return Mark(StreamPhase::kTransfer, options_.stream, options_.groups->Run(info, entry, reduce_scatter));
}

absl::Status NcclReduce::Pack(const Reduction& run, const Slot& slot, size_t chunk) {
  ReductionPlan::Tables* const known = tables_ != nullptr ? &(*tables_)[chunk] : nullptr;
  PackSegments& segments = known != nullptr ? known->packed : packed_;
  if (known == nullptr || !std::exchange(known->has_packed, true)) FillPacked(run.call, *plan_, slot.chunk, &segments);
  if (segments.empty()) return absl::OkStatus();
  const cuda::PackCall call = {.segments = segments.data(),
                               .segment_count = static_cast<int>(segments.size()),
                               .dtype = run.call.dtype,
                               .wire = plan_->wire(),
                               .scale = run.factors.before,
                               .buffer = slot.data};
  return Mark(StreamPhase::kPack, run.kernels,
              Launch("packing", [&](const ronda_cuda_plugin& kernels) { return kernels.pack(&call, run.kernels); }));
}

absl::Status NcclReduce::Unpack(const Reduction& run, const Slot& slot, size_t chunk) {
  ReductionPlan::Tables* const known = tables_ != nullptr ? &(*tables_)[chunk] : nullptr;
  UnpackSegments& segments = known != nullptr ? known->unpacked : unpacked_;
  if (known == nullptr || !std::exchange(known->has_unpacked, true)) {
    segments.clear();
    const int region = plan_->regions() == 1 ? 0 : run.members.self();
    AddUnpacked(run.call, *plan_, slot.chunk, region, 0, &segments);
  }
  if (segments.empty()) return absl::OkStatus();
  const cuda::UnpackCall call = {.segments = segments.data(),
                                 .segment_count = static_cast<int>(segments.size()),
                                 .dtype = run.call.dtype,
                                 .wire = plan_->wire(),
                                 .scale = run.factors.after,
                                 .buffer = slot.data};
  return Mark(StreamPhase::kUnpack, run.kernels, Launch("unpacking", [&](const ronda_cuda_plugin& kernels) {
                return kernels.unpack(&call, run.kernels);
              }));
}

absl::Status NcclReduce::LaunchReduce(absl::string_view what, const cuda::ReduceCall& call) {
  return Mark(StreamPhase::kReduce, options_.stream,
              Launch(what, [&](const ronda_cuda_plugin& kernels) { return kernels.reduce(&call, options_.stream); }));
}

absl::Status NcclReduce::Mark(StreamPhase phase, StreamHandle stream, absl::Status status) {
  return Marked(stream == options_.stream ? options_.marks : nullptr, phase, std::move(status));
}

absl::Status NcclReduce::HandOver(DeviceEvent& event, StreamHandle from, StreamHandle to, StreamPhase phase) {
  if (from == to) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(event.Record(from));
  return Mark(phase, to, event.OrderBefore(to));
}

absl::Status NcclReduce::Copy(void* to, const void* from, size_t bytes, StreamHandle stream) {
  return Launch("copying", [&](const ronda_cuda_plugin& kernels) { return kernels.copy(to, from, bytes, stream); });
}

template <typename Function>
absl::Status NcclReduce::Launch(absl::string_view what, const Function& function) {
  return options_.device->Call(what, function);
}

}  // namespace ronda
