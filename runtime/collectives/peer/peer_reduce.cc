// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/peer/peer_reduce.h"

#include <utility>

#include "runtime/base/status_macros.h"

namespace ronda {

namespace cuda = kernels::cuda;

PeerReduce::PeerReduce(const Options& options, PeerGroup* group)
    : options_(options), group_(group), known_(group->slot_bytes()) {}

void PeerReduce::Plan(const ReduceCall& call) {
  if (DeliversAll(call)) {
    ReductionPlan& known = known_.Find(call);
    plan_ = &known.wire;
    tables_ = &known.chunks;
    return;
  }
  own_plan_.LayByMember(call, group_->slot_bytes(), group_->size());
  plan_ = &own_plan_;
  tables_ = nullptr;
}

absl::Status PeerReduce::Run(const ReduceCall& call) {
  Plan(call);
  for (size_t i = 0; i < plan_->chunks(); ++i) {
    if (tables_ == nullptr) own_tables_.has_packed = own_tables_.has_unpacked = false;
    const PeerGroup::Slot slot = group_->NextSlot();
    RONDA_RETURN_IF_ERROR(RunChunk({.call = call,
                                    .chunk = plan_->ChunkOf(i),
                                    .tables = tables_ == nullptr ? own_tables_ : (*tables_)[i],
                                    .slot = slot,
                                    .own = slot.data + slot.stride * static_cast<size_t>(group_->self())}));
  }
  return group_->EndReads();
}

absl::Status PeerReduce::RunChunk(const Step& step) {
  RONDA_RETURN_IF_ERROR(Pack(step));
  RONDA_RETURN_IF_ERROR(Meet(step));
  if (plan_->regions() > 1) return ReduceOwnRegion(step);
  return step.chunk.bytes <= options_.one_shot_bytes ? ReduceAll(step) : ReduceShards(step);
}

absl::Status PeerReduce::ReduceAll(const Step& step) {
  RONDA_RETURN_IF_ERROR(Reduce(step, {.begin = 0, .bytes = step.chunk.bytes}, options_.scratch));
  return Unpack(step, options_.scratch,
                [&](UnpackSegments* segments) { AddUnpacked(step.call, *plan_, step.chunk, 0, 0, segments); });
}

// A member overwrites only its own shard of its slot, which no other member reads before the second meeting.
absl::Status PeerReduce::ReduceShards(const Step& step) {
  const int n = group_->size();
  const WirePlan::Range own = plan_->ShardOf(step.chunk, group_->self(), n);
  RONDA_RETURN_IF_ERROR(Reduce(step, own, step.own + own.begin));
  RONDA_RETURN_IF_ERROR(Meet(step));
  return Unpack(step, step.slot.data, [&](UnpackSegments* segments) {
    for (int member = 0; member < n; ++member) {
      const WirePlan::Range shard = plan_->ShardOf(step.chunk, member, n);
      const WirePlan::Chunk part = {.begin = step.chunk.begin + shard.begin, .bytes = shard.bytes};
      AddUnpacked(step.call, *plan_, part, 0, step.slot.stride * static_cast<size_t>(member) + shard.begin, segments);
    }
  });
}

// No other member reads this member's region of its slot.
absl::Status PeerReduce::ReduceOwnRegion(const Step& step) {
  const WirePlan::Range own = plan_->ShardOf(step.chunk, group_->self(), group_->size());
  RONDA_RETURN_IF_ERROR(Reduce(step, own, step.own + own.begin));
  return Unpack(step, step.own, [&](UnpackSegments* segments) {
    AddUnpacked(step.call, *plan_, step.chunk, group_->self(), 0, segments);
  });
}

absl::Status PeerReduce::Pack(const Step& step) {
  PackSegments& segments = step.tables.packed;
  if (!std::exchange(step.tables.has_packed, true)) FillPacked(step.call, *plan_, step.chunk, &segments);
  if (segments.empty()) return absl::OkStatus();
  const cuda::PackCall call = {.segments = segments.data(),
                               .segment_count = static_cast<int>(segments.size()),
                               .dtype = step.call.dtype,
                               .wire = plan_->wire(),
                               .scale = step.call.prescale,
                               .buffer = step.own};
  return Launch(StreamPhase::kPack, "packing",
                [&](const ronda_cuda_plugin& kernels) { return kernels.pack(&call, options_.stream); });
}

absl::Status PeerReduce::Reduce(const Step& step, const WirePlan::Range& range, std::byte* to) {
  if (range.bytes == 0) return absl::OkStatus();
  const cuda::ReduceCall call = {.sources = step.slot.data + range.begin,
                                 .stride = step.slot.stride,
                                 .source_count = group_->size(),
                                 .wire = plan_->wire(),
                                 .op = step.call.op,
                                 .scale = step.call.postscale,
                                 .dst = to,
                                 .granules = range.bytes / plan_->layout().granule_bytes};
  return Launch(StreamPhase::kReduce, "reducing",
                [&](const ronda_cuda_plugin& kernels) { return kernels.reduce(&call, options_.stream); });
}

template <typename Fill>
absl::Status PeerReduce::Unpack(const Step& step, const std::byte* buffer, const Fill& fill) {
  UnpackSegments& segments = step.tables.unpacked;
  if (!std::exchange(step.tables.has_unpacked, true)) {
    segments.clear();
    fill(&segments);
  }
  if (segments.empty()) return absl::OkStatus();
  const cuda::UnpackCall call = {.segments = segments.data(),
                                 .segment_count = static_cast<int>(segments.size()),
                                 .dtype = step.call.dtype,
                                 .wire = plan_->wire(),
                                 .scale = {},
                                 .buffer = buffer};
  return Launch(StreamPhase::kUnpack, "unpacking",
                [&](const ronda_cuda_plugin& kernels) { return kernels.unpack(&call, options_.stream); });
}

absl::Status PeerReduce::Meet(const Step& step) {
  return Marked(options_.marks, StreamPhase::kTransfer, group_->Meet(step.call.info));
}

template <typename Function>
absl::Status PeerReduce::Launch(StreamPhase phase, absl::string_view what, const Function& function) {
  return Marked(options_.marks, phase, options_.device->Call(what, function));
}

}  // namespace ronda
