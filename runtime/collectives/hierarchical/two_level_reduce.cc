// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/hierarchical/two_level_reduce.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/base/types.h"
#include "runtime/collectives/hierarchical/level_ops.h"

namespace ronda {
namespace {

const char* At(const void* base, size_t offset) { return static_cast<const char*>(base) + offset; }
char* At(void* base, size_t offset) { return static_cast<char*>(base) + offset; }

// A range of granules or elements. Granules are counted from the start of the chunk.
struct Range {
  size_t begin;
  size_t end;
};
Range ShardOf(size_t granules, int shard, int shards) {
  const auto border = [&](int i) { return granules * static_cast<size_t>(i) / static_cast<size_t>(shards); };
  return {.begin = border(shard), .end = border(shard + 1)};
}

// Returns the elements of a run in the granules of `range`, counted from the run's first element.
Range ElementsIn(const LogicalBuffer::Run& run, Range range, size_t granule_elements) {
  const auto clip = [&](size_t granule) {
    return granule <= run.offset ? 0 : std::min((granule - run.offset) * granule_elements, run.count);
  };
  return {.begin = clip(range.begin), .end = clip(range.end)};
}

}  // namespace

AcrossWorker::AcrossWorker(Work work) : work_(std::move(work)), thread_([this] { Run(); }) {}

AcrossWorker::~AcrossWorker() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void AcrossWorker::Submit(size_t slot) {
  MutexLock lock(&mu_);
  slots_[submitted_++ % kDepth] = slot;
  changed_.NotifyAll();
}

absl::Status AcrossWorker::Await() {
  MutexLock lock(&mu_);
  while (done_ == awaited_) changed_.Wait(&mu_);
  return std::move(results_[awaited_++ % kDepth]);
}

absl::Status AcrossWorker::Carry(size_t slot) const {
  try {
    return work_(slot);
  } catch (const std::bad_alloc&) {
    return out_of_memory_;
  } catch (const std::exception&) {
    return exception_;
  }
}

void AcrossWorker::Run() {
  for (;;) {
    size_t slot = 0;
    {
      MutexLock lock(&mu_);
      while (!stopping_ && submitted_ == done_) changed_.Wait(&mu_);
      if (stopping_) return;
      slot = slots_[done_ % kDepth];
    }
    absl::Status result = Carry(slot);
    MutexLock lock(&mu_);
    results_[done_++ % kDepth] = std::move(result);
    changed_.NotifyAll();
  }
}

LevelScales ScalesOfLevels(const ReduceCall& call) {
  const bool may_overflow = call.op == ReduceOp::kSum && WireDType(call.dtype, call.wire) == DType::kFloat16;
  const double factor = std::abs(call.postscale.Factor());
  if (!may_overflow || factor >= 1 || factor == 0) {
    return {.on_host = {}, .across = call.postscale};
  }
  const double power = std::ldexp(1.0, std::ilogb(factor));
  return {.on_host = {.multiplier = power},
          .across = {.multiplier = call.postscale.multiplier / power, .divisor = call.postscale.divisor}};
}

absl::Status TwoLevelReduce::Run(const ReduceCall& call) {
  const WireLayout layout = LayoutOf(call.dtype, call.wire);
  const LogicalBuffer buffer(call.segments, layout.granule_elements, &buffer_memory_);
  const size_t granule_bytes = layout.granule_elements * SizeOf(call.dtype);
  const Plan plan = {.call = call,
                     .layout = layout,
                     .buffer = buffer,
                     .chunk_granules = std::max<size_t>(levels_.chunk_bytes / granule_bytes, 1),
                     .scales = ScalesOfLevels(call)};
  const size_t chunks = (buffer.granules() + plan.chunk_granules - 1) / plan.chunk_granules;
  if (chunks == 0) return absl::OkStatus();
  if (chunks > 1) return RunChunks(plan, chunks);
  const Slot& slot = slots_[0];
  RONDA_RETURN_IF_ERROR(ReduceOnHost(plan, 0, 0));
  if (GoesAcross(slot)) RONDA_RETURN_IF_ERROR(CrossOver(*levels_.ops, [&] { return ReduceAcross(0); }));
  return GatherOnHost(plan, slot);
}

absl::Status TwoLevelReduce::ReduceAcross(size_t slot) { return levels_.across->Reduce(slots_[slot].across); }

absl::Status TwoLevelReduce::RunChunks(const Plan& plan, size_t chunks) {
  const auto finish = [&](size_t chunk) -> absl::Status {
    const size_t slot = chunk % slots_.size();
    if (GoesAcross(slots_[slot])) RONDA_RETURN_IF_ERROR(FinishAcross(slot));
    return GatherOnHost(plan, slots_[slot]);
  };
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const size_t slot = chunk % slots_.size();
    RONDA_RETURN_IF_ERROR(ReduceOnHost(plan, chunk, slot));
    if (GoesAcross(slots_[slot])) RONDA_RETURN_IF_ERROR(BeginAcross(slot));
    if (chunk > 0) RONDA_RETURN_IF_ERROR(finish(chunk - 1));
  }
  return finish(chunks - 1);
}

absl::Status TwoLevelReduce::BeginAcross(size_t slot) {
  const auto cross = [this](size_t which) { return levels_.ops->Across(which, [&] { return ReduceAcross(which); }); };
  RONDA_RETURN_IF_ERROR(levels_.ops->HandOver(slot));
  if (levels_.across_driver == Levels::Driver::kCaller) return cross(slot);
  if (worker_ == nullptr) worker_ = std::make_unique<AcrossWorker>(cross);
  worker_->Submit(slot);
  return absl::OkStatus();
}

absl::Status TwoLevelReduce::FinishAcross(size_t slot) {
  if (worker_ != nullptr) RONDA_RETURN_IF_ERROR(worker_->Await());
  return levels_.ops->HandBack(slot);
}

absl::Status TwoLevelReduce::ReduceOnHost(const Plan& plan, size_t chunk, size_t slot_index) {
  Slot& slot = slots_[slot_index];
  slot.begin = chunk * plan.chunk_granules;
  slot.granules = std::min(plan.chunk_granules, plan.buffer.granules() - slot.begin);
  RONDA_RETURN_IF_ERROR(CutUp(plan, slot_index));
  MakeCallAcross(plan, slot);
  ReduceCall call = plan.call;
  call.info = LevelInfo(plan.call.info, 0);
  call.segments = pieces_;
  call.postscale = plan.scales.on_host;
  call.delivery = ReduceCall::Delivery::kParts;
  const auto part_of = [&](size_t piece, int position) {
    return position < levels_.shards
               ? shards_[piece * static_cast<size_t>(levels_.shards) + static_cast<size_t>(position)]
               : PartRange{};
  };
  const ReduceCall::PartOf known_parts = part_of;
  call.part_of = &known_parts;
  return levels_.local->Reduce(call);
}

absl::Status TwoLevelReduce::CutUp(const Plan& plan, size_t slot_index) {
  Slot& slot = slots_[slot_index];
  const size_t element = SizeOf(plan.call.dtype);
  const size_t granule_elements = plan.layout.granule_elements;
  const int self = levels_.local->rank();
  const Range own = self < levels_.shards ? ShardOf(slot.granules, self, levels_.shards) : Range{};
  slot.shard = nullptr;
  if (own.begin != own.end) {
    const size_t bytes = (own.end - own.begin) * granule_elements * element;
    RONDA_ASSIGN_OR_RETURN(slot.shard, levels_.ops->SlotMemory(slot_index, bytes));
  }
  pieces_.clear();
  shards_.clear();
  slot.parts.clear();
  slot.bytes_per_rank.assign(static_cast<size_t>(levels_.local->size()), 0);
  char* next = slot.shard;
  plan.buffer.ForEachRun(slot.begin, slot.granules, [&](const LogicalBuffer::Run& run) {
    const Segment& segment = plan.buffer.segments()[run.segment];
    for (int shard = 0; shard < levels_.shards; ++shard) {
      const Range part = ElementsIn(run, ShardOf(slot.granules, shard, levels_.shards), granule_elements);
      slot.bytes_per_rank[static_cast<size_t>(shard)] += (part.end - part.begin) * element;
      shards_.push_back({.begin = part.begin, .count = part.end - part.begin});
    }
    const Range part = ElementsIn(run, own, granule_elements);
    const size_t count = part.end - part.begin;
    pieces_.push_back({.input = At(segment.input, run.begin * element),
                       .output = next,
                       .count = run.count,
                       .part_begin = part.begin,
                       .part_count = count,
                       .residual = segment.residual == nullptr ? nullptr : segment.residual + run.begin});
    if (count > 0) slot.parts.push_back({.input = next, .output = next, .count = count});
    next += count * element;
  });
  return absl::OkStatus();
}

void TwoLevelReduce::MakeCallAcross(const Plan& plan, Slot& slot) const {
  slot.label.assign(plan.call.info.label.data(), plan.call.info.label.size());
  slot.across = {.info = LevelInfo(plan.call.info, 1),
                 .segments = slot.parts,
                 .dtype = plan.call.dtype,
                 .wire = plan.call.wire,
                 .op = plan.call.op,
                 .postscale = plan.scales.across};
  slot.across.info.label = slot.label;
}

absl::Status TwoLevelReduce::GatherOnHost(const Plan& plan, const Slot& slot) {
  const size_t bytes = ListRuns(plan, slot);
  // A chunk with only one run is contiguous in a tensor, and can be gathered directly there.
  const bool is_one = runs_.size() == 1;
  char* output = static_cast<char*>(runs_.front().to);
  if (!is_one) {
    RONDA_ASSIGN_OR_RETURN(output, levels_.ops->GatherMemory(bytes));
  }
  RONDA_RETURN_IF_ERROR(levels_.local->Allgather({.info = LevelInfo(plan.call.info, 2),
                                                  .input = slot.shard,
                                                  .output = output,
                                                  .bytes_per_rank = slot.bytes_per_rank}));
  return is_one ? absl::OkStatus() : levels_.ops->Scatter(output, plan.call.dtype, runs_);
}

size_t TwoLevelReduce::ListRuns(const Plan& plan, const Slot& slot) {
  const size_t element = SizeOf(plan.call.dtype);
  size_t bytes = 0;
  runs_.clear();
  plan.buffer.ForEachRun(slot.begin, slot.granules, [&](const LogicalBuffer::Run& run) {
    runs_.push_back({.to = At(plan.buffer.segments()[run.segment].output, run.begin * element),
                     .count = run.count,
                     .offset = bytes});
    bytes += run.count * element;
  });
  return bytes;
}

}  // namespace ronda
