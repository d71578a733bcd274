// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/shm/shm_reduce.h"

#include <algorithm>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Up to this size, a full exchange takes less time than waiting for the shards.
constexpr size_t kFullExchangeBytes = 8 << 10;
// Shards begin at cache line boundaries if possible.
constexpr size_t kShardAlignment = kCacheLineBytes;

constexpr size_t DivideRoundingUp(size_t a, size_t b) { return (a + b - 1) / b; }

// A call with a vote needs a chunk even if it has no data to send.
size_t BytesToReserve(const ReduceArithmetic& reduction) {
  const size_t votes_bytes = reduction.call().info.ballot == nullptr ? 0 : reduction.layout().granule_bytes;
  return std::max(reduction.wire_bytes(), votes_bytes);
}

}  // namespace

ShmReduce::ShmReduce(const ReduceArithmetic& reduction, const Members& members, DataStream& stream, ChunkSync& sync,
                     StreamWriter& writer)
    : members_(members),
      reduction_(reduction),
      algorithm_(ChooseAlgorithm(reduction_, members)),
      granule_bytes_(reduction_.layout().granule_bytes),
      chunks_(stream.Reserve(BytesToReserve(reduction_), granule_bytes_)),
      sync_(sync),
      writer_(writer),
      running_(sync.Running(reduction.call().info, reduction.input_bytes())),
      sources_(members.size()) {}

ShmReduce::Algorithm ShmReduce::ChooseAlgorithm(const ReduceArithmetic& reduction, const Members& members) {
  if (reduction.call().delivery == ReduceCall::Delivery::kParts) return Algorithm::kParts;
  const bool is_small = reduction.wire_bytes() <= kFullExchangeBytes;
  return members.size() <= 2 || is_small ? Algorithm::kFullExchange : Algorithm::kShards;
}

absl::Status ShmReduce::Run() {
  if (chunks_.count == 0) return absl::OkStatus();
  Ballot* const ballot = reduction_.call().info.ballot;
  if (ballot != nullptr && ballot->own == Ballot::Vote::kVeto) {
    ballot->Decide(ballot->word());
    return sync_.Veto(chunks_, *ballot, running_);
  }
  RONDA_RETURN_IF_ERROR(Begin());
  if (IsVetoed(reduction_.call().info)) {
    writer_.Drop();
    return absl::OkStatus();
  }
  absl::Status status = algorithm_ == Algorithm::kShards ? RunByShards() : RunFullExchange();
  writer_.Stop();
  return status;
}

absl::Status ShmReduce::Begin() {
  Ballot* const ballot = reduction_.call().info.ballot;
  if (ballot == nullptr) return Pack(0);
  running_.late_call = &late_call_.emplace(ballot->when_late);
  sync_.Approve(*ballot);
  RONDA_RETURN_IF_ERROR(Pack(0));
  RONDA_RETURN_IF_ERROR(sync_.CountVotes(members_, chunks_, running_, ballot));
  running_.late_call = nullptr;
  return absl::OkStatus();
}

absl::Status ShmReduce::RunFullExchange() {
  for (uint64_t k = 0; k < chunks_.count; ++k) {
    if (k + 1 < chunks_.count) RONDA_RETURN_IF_ERROR(Pack(k + 1));
    RONDA_RETURN_IF_ERROR(DeliverChunk(k));
  }
  return absl::OkStatus();
}

absl::Status ShmReduce::RunByShards() {
  for (uint64_t step = 1; step < chunks_.count + 2; ++step) {
    if (step < chunks_.count) RONDA_RETURN_IF_ERROR(Pack(step));
    if (step <= chunks_.count) RONDA_RETURN_IF_ERROR(ReduceOwnShard(step - 1));
    if (step >= 2) RONDA_RETURN_IF_ERROR(UnpackShards(step - 2));
  }
  return absl::OkStatus();
}

absl::Status ShmReduce::Pack(uint64_t k) {
  if (algorithm_ == Algorithm::kFullExchange || !reduction_.ContributesInputItself()) return PackChunk(k, kNothing);
  return algorithm_ == Algorithm::kParts ? PackForOthers(k) : PackChunk(k, ShardOf(members_.self(), k));
}

absl::Status ShmReduce::PackChunk(uint64_t k, Range left_out) {
  const size_t end = ChunkOf(k).count;
  writer_.Start(chunks_.Begin(k), end * granule_bytes_);
  RONDA_RETURN_IF_ERROR(sync_.WaitForRoom(chunks_, k, running_));
  const size_t resume = left_out.begin + left_out.count;
  PackRange(k, {.begin = 0, .count = left_out.begin});
  PackRange(k, {.begin = resume, .count = end - resume});
  sync_.Publish(ShmStage::kPacked, chunks_.End(k));
  return absl::OkStatus();
}

absl::Status ShmReduce::PackForOthers(uint64_t k) {
  const Range chunk = ChunkOf(k);
  writer_.Start(chunks_.Begin(k), chunk.count * granule_bytes_);
  RONDA_RETURN_IF_ERROR(sync_.WaitForRoom(chunks_, k, running_));
  // In calls in which each rank receives a part, a granule is a single element.
  reduction_.buffer().ForEachRun(chunk.begin, chunk.count, [&](const ReduceArithmetic::Run& run) {
    const ReduceArithmetic::Part own = reduction_.WantedOf(run);
    if (own.empty()) return PackRange(k, {.begin = run.offset, .count = run.count});
    const size_t resume = own.end - run.begin;
    PackRange(k, {.begin = run.offset, .count = own.begin - run.begin});
    PackRange(k, {.begin = run.offset + resume, .count = run.count - resume});
  });
  sync_.Publish(ShmStage::kPacked, chunks_.End(k));
  return absl::OkStatus();
}

void ShmReduce::PackRange(uint64_t k, Range range) {
  if (range.count == 0) return;
  writer_.Pack(reduction_, ChunkOf(k).begin + range.begin, range.count, PositionOf(k, range.begin));
}

absl::Status ShmReduce::DeliverChunk(uint64_t k) {
  if (WantsAnyOf(k)) {
    RONDA_RETURN_IF_ERROR(sync_.WaitForMembers(members_, ShmStage::kPacked, chunks_.End(k), running_));
    const Range chunk = ChunkOf(k);
    reduction_.buffer().ForEachRun(chunk.begin, chunk.count, [&](const ReduceArithmetic::Run& run) {
      FindSources(run, PositionOf(k, run.offset));
      reduction_.Deliver(run, sources_);
    });
  }
  FinishChunk(k);
  return absl::OkStatus();
}

absl::Status ShmReduce::ReduceOwnShard(uint64_t k) {
  RONDA_RETURN_IF_ERROR(sync_.WaitForMembers(members_, ShmStage::kPacked, chunks_.End(k), running_));
  const Range shard = ShardOf(members_.self(), k);
  reduction_.buffer().ForEachRun(ChunkOf(k).begin + shard.begin, shard.count, [&](const ReduceArithmetic::Run& run) {
    const uint64_t position = PositionOf(k, shard.begin + run.offset);
    FindSources(run, position);
    reduction_.ReduceToWire(sources_, run.count, sync_.Data(sync_.world().rank(), position));
  });
  sync_.Publish(ShmStage::kReduced, chunks_.End(k));
  return absl::OkStatus();
}

void ShmReduce::FindSources(const ReduceArithmetic::Run& run, uint64_t position) {
  for (int member = 0; member < members_.size(); ++member) sources_[member] = sync_.Data(members_[member], position);
  // Reads this rank's own contribution from its input if possible, because that is already in the cache, and if the
  // call is in place, the output needs these cache lines anyway.
  if (reduction_.ContributesInputItself()) sources_[members_.self()] = reduction_.InputOf(run);
}

bool ShmReduce::WantsAnyOf(uint64_t k) const {
  if (reduction_.call().delivery == ReduceCall::Delivery::kAll) return true;
  const Range chunk = ChunkOf(k);
  bool wants_any = false;
  reduction_.buffer().ForEachRun(chunk.begin, chunk.count, [&](const ReduceArithmetic::Run& run) {
    wants_any = wants_any || !reduction_.WantedOf(run).empty();
  });
  return wants_any;
}

absl::Status ShmReduce::UnpackShards(uint64_t k) {
  const Range range = ChunkOf(k);
  // Each rank starts with its own shard, so that the ranks do not all read the same ring at once.
  for (int i = 0; i < members_.size(); ++i) {
    const int owner = (members_.self() + i) % members_.size();
    const Range shard = ShardOf(owner, k);
    if (shard.count == 0) continue;
    RONDA_RETURN_IF_ERROR(sync_.WaitFor(members_[owner], ShmStage::kReduced, chunks_.End(k), running_));
    reduction_.Unpack(range.begin + shard.begin, shard.count, sync_.Data(members_[owner], PositionOf(k, shard.begin)));
  }
  FinishChunk(k);
  return absl::OkStatus();
}

ShmReduce::Range ShmReduce::ChunkOf(uint64_t k) const {
  const size_t chunk_granules = chunks_.chunk_bytes / granule_bytes_;
  const size_t begin = k * chunk_granules;
  return {.begin = begin, .count = std::min(chunk_granules, reduction_.granules() - begin)};
}

ShmReduce::Range ShmReduce::ShardOf(int member, uint64_t k) const {
  const size_t granules = ChunkOf(k).count;
  const size_t unit = std::max<size_t>(1, kShardAlignment / granule_bytes_);
  const size_t units = DivideRoundingUp(DivideRoundingUp(granules, unit), members_.size());
  const size_t begin = std::min(granules, static_cast<size_t>(member) * units * unit);
  return {.begin = begin, .count = std::min(granules - begin, units * unit)};
}

uint64_t ShmReduce::PositionOf(uint64_t k, size_t granule) const { return chunks_.Begin(k) + granule * granule_bytes_; }

void ShmReduce::FinishChunk(uint64_t k) {
  sync_.Publish(ShmStage::kDone, chunks_.End(k));
  const size_t elements = ChunkOf(k).count * reduction_.layout().granule_elements;
  // The last granule of a segment may extend beyond the segment's end, so the sum could exceed bytes_total.
  running_.bytes_done =
      std::min(running_.bytes_total, running_.bytes_done + elements * SizeOf(reduction_.call().dtype));
}

}  // namespace ronda
