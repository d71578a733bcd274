// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/shm/small_reduce.h"

#include <cstring>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/shm/stream_writer.h"

namespace ronda {
namespace {

// The maximum size of all ranks' contributions together, so that they stay in the L1 cache.
constexpr size_t kMaxBytesOfAll = 16 << 10;

// Returns the number of the exchange that uses `chunks`. Its lowest bits are free for a vote.
uint64_t NumberOf(const ChunkSequence& chunks) { return (chunks.begin + 1) << Ballot::kWordBits; }

size_t LinesFor(size_t bytes) { return std::max<size_t>(1, (bytes + kShmFlatPayloadBytes - 1) / kShmFlatPayloadBytes); }

size_t BytesInLine(size_t line, size_t bytes) {
  return std::min(kShmFlatPayloadBytes, bytes - line * kShmFlatPayloadBytes);
}

// Copies a line's payload. Most payloads are full; their size is a constant, so the compiler can inline the memcpy.
void CopyPayload(const char* from, char* to, size_t bytes) {
  if (bytes == kShmFlatPayloadBytes) {
    std::memcpy(to, from, kShmFlatPayloadBytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

// Up to this size, reducing everything on every rank is faster than waiting for other ranks' shards.
constexpr size_t kMaxBytes = 8 << 10;
// The limit for two ranks is higher, because they both reduce everything in any case.
constexpr size_t kMaxBytesOfTwo = 16 << 10;
// Prefetching more bytes would evict the data that is being reduced from the L1 cache.
constexpr size_t kMaxPrefetchedBytes = 8 << 10;

bool HasBuffers(const CallInfo& info) { return info.ballot == nullptr || info.ballot->own == Ballot::Vote::kApprove; }

}  // namespace

FlatExchange::FlatExchange(ChunkSync& sync)
    : sync_(sync),
      max_bytes_(std::min(kShmFlatLines * kShmFlatPayloadBytes,
                          kMaxBytesOfAll / static_cast<size_t>(sync.world().size()) / sizeof(double) * sizeof(double))),
      contributions_(sync.world().size()),
      scratch_(max_bytes_ * static_cast<size_t>(sync.world().size())) {
  for (RankId rank = 0; rank < sync.world().size(); ++rank) lines_.push_back(sync.world().view().FlatLines(rank));
}

absl::Status FlatExchange::Run(const char* own, size_t bytes, const ChunkSequence& chunks, Ballot* ballot,
                               RunningCollective& running) {
  turn_ = (turn_ + 1) % kShmFlatTurns;
  const uint64_t number = NumberOf(chunks);
  if (ballot != nullptr && ballot->own == Ballot::Vote::kVeto) {
    ballot->Decide(ballot->word());
    return Veto(chunks, ballot->word(), running);
  }
  Write(own, bytes, number, ballot != nullptr ? ballot->word() : 0);
  if (ballot != nullptr) {
    RONDA_RETURN_IF_ERROR(AwaitAll(number, running));
    running.late_call = nullptr;
    ballot->Decide(ballot->word() | OtherVotes(number));
    if (ballot->result == Ballot::Result::kVetoed) bytes = 0;
  }
  const ShmWorld& world = sync_.world();
  contributions_[world.rank()] = own;
  for (RankId rank = 0; rank < world.size(); ++rank) {
    if (rank != world.rank()) RONDA_RETURN_IF_ERROR(Read(rank, bytes, number, running));
  }
  Prefetch(bytes);
  return absl::OkStatus();
}

void FlatExchange::Prefetch(size_t bytes) const {
  const ShmFlatLine* const lines = lines_[sync_.world().rank()] + (turn_ + 2) % kShmFlatTurns * kShmFlatLines;
  const size_t count = LinesFor(bytes);
  for (size_t i = 0; i < count; ++i) PrefetchToWrite(lines + i);
}

absl::Status FlatExchange::Veto(const ChunkSequence& chunks, uint8_t word, const RunningCollective& running) {
  const ShmWorld& world = sync_.world();
  for (RankId rank = 0; rank < world.size(); ++rank) {
    if (rank == world.rank()) continue;
    RONDA_RETURN_IF_ERROR(sync_.WaitFor(rank, ShmStage::kDone, chunks.previous_end, running));
  }
  sync_.Publish(LinesOf(world.rank())->sequence, NumberOf(chunks) | word);
  return absl::OkStatus();
}

void FlatExchange::Write(const char* own, size_t bytes, uint64_t number, uint8_t word) {
  ShmFlatLine* const lines = LinesOf(sync_.world().rank());
  const size_t last = LinesFor(bytes) - 1;
  for (size_t i = 0; i < last; ++i) {
    CopyPayload(own + i * kShmFlatPayloadBytes, lines[i].payload, kShmFlatPayloadBytes);
    lines[i].sequence.store(number | word, std::memory_order_release);
  }
  // In an exchange without data, `own` may be nullptr.
  if (bytes > 0) CopyPayload(own + last * kShmFlatPayloadBytes, lines[last].payload, BytesInLine(last, bytes));
  sync_.Publish(lines[last].sequence, number | word);
}

absl::Status FlatExchange::Read(RankId rank, size_t bytes, uint64_t number, const RunningCollective& running) {
  const ShmFlatLine* const lines = LinesOf(rank);
  if (bytes <= kShmFlatPayloadBytes) {
    contributions_[rank] = lines->payload;
    return sync_.WaitFor(rank, lines->sequence, number, running);
  }
  char* const to = ScratchOf(rank);
  contributions_[rank] = to;
  const size_t count = LinesFor(bytes);
  for (size_t i = 0; i < count; ++i) {
    RONDA_RETURN_IF_ERROR(sync_.WaitFor(rank, lines[i].sequence, number, running));
    CopyPayload(lines[i].payload, to + i * kShmFlatPayloadBytes, BytesInLine(i, bytes));
  }
  return absl::OkStatus();
}

absl::Status FlatExchange::AwaitAll(uint64_t number, const RunningCollective& running) {
  const ShmWorld& world = sync_.world();
  for (RankId rank = 0; rank < world.size(); ++rank) {
    if (rank == world.rank()) continue;
    RONDA_RETURN_IF_ERROR(sync_.WaitFor(rank, LinesOf(rank)->sequence, number, running));
  }
  return absl::OkStatus();
}

// The lines still have this number, because no rank writes to them again so soon (layout.h).
uint8_t FlatExchange::OtherVotes(uint64_t number) const {
  const ShmWorld& world = sync_.world();
  uint64_t words = 0;
  for (RankId rank = 0; rank < world.size(); ++rank) {
    if (rank != world.rank()) words |= LinesOf(rank)->sequence.load(std::memory_order_acquire) - number;
  }
  return static_cast<uint8_t>(words);
}

SmallReduce::SmallReduce(ChunkSync& sync, DataStream& stream, StreamWriter& writer, FlatExchange& flat)
    : sync_(sync),
      stream_(stream),
      writer_(writer),
      flat_(flat),
      max_bytes_(sync.world().size() <= 2 ? kMaxBytesOfTwo : kMaxBytes),
      sources_(sync.world().size()) {}

absl::Status SmallReduce::Run(const ReduceArithmetic& reduction) {
  const CallInfo& info = reduction.call().info;
  const size_t granules = reduction.granules();
  if (granules == 0 && info.ballot == nullptr) return absl::OkStatus();
  RunningCollective running = sync_.Running(info, reduction.input_bytes());
  const Contribution own = {
      .packed = &reduction, .bytes = reduction.wire_bytes(), .granule_bytes = reduction.layout().granule_bytes};
  RONDA_ASSIGN_OR_RETURN(const uint64_t end, Exchange(info, own, running));
  if (!IsVetoed(info)) {
    reduction.buffer().ForEachRun(0, granules, [&](const ReduceArithmetic::Run& run) {
      const size_t bytes_before = run.offset * own.granule_bytes;
      absl::InlinedVector<const void*, 16> sources(sources_.size());
      for (size_t rank = 0; rank < sources.size(); ++rank) {
        sources[rank] = static_cast<const char*>(sources_[rank]) + bytes_before;
      }
      reduction.Deliver(run, sources);
    });
  }
  Finish(info, end);
  return absl::OkStatus();
}

absl::Status SmallReduce::RunPlain(const ReduceCall& call, size_t bytes) {
  const CallInfo& info = call.info;
  if (bytes == 0 && info.ballot == nullptr) return absl::OkStatus();
  RunningCollective running = sync_.Running(info, bytes);
  const Contribution own = {.at = static_cast<const char*>(call.segments.front().input), .bytes = bytes};
  RONDA_ASSIGN_OR_RETURN(const uint64_t end, Exchange(info, own, running));
  if (!IsVetoed(info)) ReducePlain(call, sources_);
  Finish(info, end);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SmallReduce::Exchange(const CallInfo& info, const Contribution& own,
                                               RunningCollective& running) {
  std::optional<LateCall> late_call;
  if (info.ballot != nullptr) running.late_call = &late_call.emplace(info.ballot->when_late);
  const bool fits_lines = own.bytes <= flat_.max_bytes();
  const ChunkSequence chunks = fits_lines ? stream_.ReserveLine() : stream_.Reserve(own.bytes, own.granule_bytes);
  RONDA_RETURN_IF_ERROR(fits_lines ? ExchangeLines(info, own, chunks, running)
                                   : ExchangeBlock(info, own, chunks, running));
  running.late_call = nullptr;
  return chunks.end;
}

absl::Status SmallReduce::ExchangeLines(const CallInfo& info, const Contribution& own, const ChunkSequence& chunks,
                                        RunningCollective& running) {
  const char* from = own.at;
  if (own.packed != nullptr && HasBuffers(info)) {
    own.packed->Pack(0, own.packed->granules(), flat_.Scratch());
    from = flat_.Scratch();
  }
  RONDA_RETURN_IF_ERROR(flat_.Run(from, own.bytes, chunks, info.ballot, running));
  for (size_t rank = 0; rank < sources_.size(); ++rank) {
    sources_[rank] = flat_.Contribution(static_cast<RankId>(rank));
  }
  return absl::OkStatus();
}

absl::Status SmallReduce::ExchangeBlock(const CallInfo& info, const Contribution& own, const ChunkSequence& chunks,
                                        RunningCollective& running) {
  if (HasBuffers(info)) RONDA_RETURN_IF_ERROR(WriteBlock(own, chunks, running));
  // While waiting for the others, prefetches the lines of this rank's next block, which probably has the same length.
  if (own.bytes <= kMaxPrefetchedBytes) writer_.Prefetch(chunks.end, own.bytes);
  RONDA_RETURN_IF_ERROR(flat_.Run(nullptr, 0, chunks, info.ballot, running));
  for (size_t rank = 0; rank < sources_.size(); ++rank) {
    sources_[rank] = sync_.Data(static_cast<RankId>(rank), chunks.begin);
  }
  if (own.at != nullptr) sources_[sync_.world().rank()] = own.at;
  return absl::OkStatus();
}

absl::Status SmallReduce::WriteBlock(const Contribution& own, const ChunkSequence& chunks,
                                     const RunningCollective& running) {
  writer_.Start(chunks.begin, own.bytes);
  RONDA_RETURN_IF_ERROR(sync_.WaitForRoom(chunks, 0, running));
  if (own.at != nullptr) {
    writer_.Copy(own.at, own.bytes, chunks.begin);
  } else {
    writer_.Pack(*own.packed, 0, own.packed->granules(), chunks.begin);
  }
  return absl::OkStatus();
}

void SmallReduce::Finish(const CallInfo& info, uint64_t end) {
  sync_.Publish(ShmStage::kDone, end);
  if (IsVetoed(info)) return writer_.Drop();
  writer_.Stop();
}

}  // namespace ronda
