#include "runtime/collectives/shm/shm_allreduce.h"

#include <algorithm>

#include "kernels/cpu/reduce.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/contribution.h"

namespace ronda {
namespace {

// Up to this size, reducing everything everywhere costs less than waiting for the shards.
constexpr size_t kFullExchangeBytes = 8 << 10;
// Shards begin at cache lines.
constexpr size_t kShardAlignment = kCacheLineBytes;

constexpr size_t DivideRoundingUp(size_t a, size_t b) { return (a + b - 1) / b; }

}  // namespace

ShmAllreduce::ShmAllreduce(const ReduceCall& call, DataStream& stream, ChunkSync& sync, StreamWriter& writer)
    : call_(call),
      buffer_(call.segments, call.dtype),
      wire_(WireDType(call)),
      wire_bytes_(SizeOf(wire_)),
      contributes_input_itself_(ContributesInputItself(call)),
      chunks_(stream.Take(buffer_.count() * wire_bytes_)),
      sync_(sync),
      writer_(writer),
      running_{.op = OpType::kAllreduce, .label = call.info.label, .bytes_total = buffer_.count() * SizeOf(call.dtype)},
      sources_(sync.world().size()) {}

absl::Status ShmAllreduce::Run() {
  const bool is_small = buffer_.count() * wire_bytes_ <= kFullExchangeBytes;
  absl::Status status = sync_.world().size() <= 2 || is_small ? RunFullExchange() : RunByShards();
  writer_.Stop();
  return status;
}

absl::Status ShmAllreduce::RunFullExchange() {
  for (uint64_t step = 0; step < chunks_.count + 1; ++step) {
    if (step < chunks_.count) RONDA_RETURN_IF_ERROR(PackChunk(step, kNothing));
    if (step >= 1) RONDA_RETURN_IF_ERROR(ReduceChunk(step - 1));
  }
  return absl::OkStatus();
}

absl::Status ShmAllreduce::RunByShards() {
  const RankId self = sync_.world().rank();
  for (uint64_t step = 0; step < chunks_.count + 2; ++step) {
    if (step < chunks_.count)
      RONDA_RETURN_IF_ERROR(PackChunk(step, contributes_input_itself_ ? ShardOf(self, step) : kNothing));
    if (step >= 1 && step <= chunks_.count) RONDA_RETURN_IF_ERROR(ReduceOwnShard(step - 1));
    if (step >= 2) RONDA_RETURN_IF_ERROR(UnpackShards(step - 2));
  }
  return absl::OkStatus();
}

absl::Status ShmAllreduce::PackChunk(uint64_t k, Range left_out) {
  writer_.Start(chunks_.Begin(k), ChunkOf(k).count * wire_bytes_);
  RONDA_RETURN_IF_ERROR(sync_.WaitForRoom(chunks_, k, running_));
  const size_t end = ChunkOf(k).count;
  const size_t resume = left_out.begin + left_out.count;
  PackRange(k, {.begin = 0, .count = left_out.begin});
  PackRange(k, {.begin = resume, .count = end - resume});
  sync_.Publish(ShmStage::kPacked, chunks_.End(k));
  return absl::OkStatus();
}

void ShmAllreduce::PackRange(uint64_t k, Range range) {
  if (range.count == 0) return;
  writer_.Pack(call_, buffer_, ChunkOf(k).begin + range.begin, range.count, PositionOf(k, range));
}

absl::Status ShmAllreduce::ReduceChunk(uint64_t k) {
  RONDA_RETURN_IF_ERROR(sync_.WaitForAll(ShmStage::kPacked, chunks_.End(k), running_));
  Reduce(k, {.begin = 0, .count = ChunkOf(k).count}, nullptr);
  FinishChunk(k);
  return absl::OkStatus();
}

absl::Status ShmAllreduce::ReduceOwnShard(uint64_t k) {
  RONDA_RETURN_IF_ERROR(sync_.WaitForAll(ShmStage::kPacked, chunks_.End(k), running_));
  const RankId self = sync_.world().rank();
  const Range shard = ShardOf(self, k);
  Reduce(k, shard, sync_.Data(self, PositionOf(k, shard)));
  sync_.Publish(ShmStage::kReduced, chunks_.End(k));
  return absl::OkStatus();
}

void ShmAllreduce::Reduce(uint64_t k, Range range, char* ring) {
  const RankId self = sync_.world().rank();
  const uint64_t position = PositionOf(k, range);
  buffer_.ForEachRun(ChunkOf(k).begin + range.begin, range.count, [&](const LogicalBuffer::Run& run) {
    const size_t offset = run.offset * wire_bytes_;
    for (RankId rank = 0; rank < sync_.world().size(); ++rank) sources_[rank] = sync_.Data(rank, position) + offset;
    if (contributes_input_itself_) sources_[self] = run.input;
    kernels::Reduce({.sources = sources_,
                     .dtype = wire_,
                     .op = call_.op,
                     .scale = call_.postscale,
                     .dst = ring == nullptr ? run.output : ring + offset,
                     .dst_dtype = ring == nullptr ? call_.dtype : wire_,
                     .count = run.count});
  });
}

absl::Status ShmAllreduce::UnpackShards(uint64_t k) {
  const Range range = ChunkOf(k);
  const int size = sync_.world().size();
  // Each rank begins with its own shard and goes round, so that not all read the same ring at once.
  for (int i = 0; i < size; ++i) {
    const RankId owner = (sync_.world().rank() + i) % size;
    const Range shard = ShardOf(owner, k);
    if (shard.count == 0) continue;
    RONDA_RETURN_IF_ERROR(sync_.WaitFor(owner, ShmStage::kReduced, chunks_.End(k), running_));
    Unpack(call_, buffer_, range.begin + shard.begin, shard.count, sync_.Data(owner, PositionOf(k, shard)));
  }
  FinishChunk(k);
  return absl::OkStatus();
}

ShmAllreduce::Range ShmAllreduce::ChunkOf(uint64_t k) const {
  const size_t chunk_elements = chunks_.chunk_bytes / wire_bytes_;
  const size_t begin = k * chunk_elements;
  return {.begin = begin, .count = std::min(chunk_elements, buffer_.count() - begin)};
}

ShmAllreduce::Range ShmAllreduce::ShardOf(RankId rank, uint64_t k) const {
  const size_t chunk_elements = ChunkOf(k).count;
  const size_t granule = kShardAlignment / wire_bytes_;
  const size_t granules = DivideRoundingUp(DivideRoundingUp(chunk_elements, granule), sync_.world().size());
  const size_t begin = std::min(chunk_elements, rank * granules * granule);
  return {.begin = begin, .count = std::min(chunk_elements - begin, granules * granule)};
}

uint64_t ShmAllreduce::PositionOf(uint64_t k, Range range) const {
  return chunks_.Begin(k) + range.begin * wire_bytes_;
}

void ShmAllreduce::FinishChunk(uint64_t k) {
  sync_.Publish(ShmStage::kDone, chunks_.End(k));
  running_.bytes_done += ChunkOf(k).count * SizeOf(call_.dtype);
}

}  // namespace ronda
