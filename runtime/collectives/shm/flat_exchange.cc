#include "runtime/collectives/shm/flat_exchange.h"

#include <cstring>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/shm/prefetch.h"

namespace ronda {
namespace {

// All contributions together stay in the first-level cache.
constexpr size_t kMaxBytesOfAll = 16 << 10;

// The number of the exchange at `place`, which is even: that of a rank that vetoes is one more.
uint64_t NumberOf(const ChunkSequence& place) { return 2 * (place.begin + 1); }

size_t LinesFor(size_t bytes) { return std::max<size_t>(1, (bytes + kShmFlatPayloadBytes - 1) / kShmFlatPayloadBytes); }

size_t BytesInLine(size_t line, size_t bytes) {
  return std::min(kShmFlatPayloadBytes, bytes - line * kShmFlatPayloadBytes);
}

// Copies the payload of a line. Whole ones, which are most, take no call of a function.
void CopyPayload(const char* from, char* to, size_t bytes) {
  if (bytes == kShmFlatPayloadBytes) {
    std::memcpy(to, from, kShmFlatPayloadBytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

FlatExchange::FlatExchange(ChunkSync& sync)
    : sync_(sync),
      max_bytes_(std::min(kShmFlatLines * kShmFlatPayloadBytes,
                          kMaxBytesOfAll / static_cast<size_t>(sync.world().size()) / sizeof(double) * sizeof(double))),
      contributions_(sync.world().size()),
      scratch_(max_bytes_ * static_cast<size_t>(sync.world().size())) {
  for (RankId rank = 0; rank < sync.world().size(); ++rank) lines_.push_back(sync.world().view().FlatLines(rank));
}

absl::Status FlatExchange::Run(const char* own, size_t bytes, const ChunkSequence& place, Ballot* ballot,
                               RunningCollective& running) {
  turn_ = (turn_ + 1) % kShmFlatTurns;
  const uint64_t number = NumberOf(place);
  if (ballot != nullptr && ballot->own == Ballot::Vote::kLeave) {
    ballot->result = Ballot::Result::kVetoed;
    return Veto(place, running);
  }
  Write(own, bytes, number);
  if (ballot != nullptr) {
    RONDA_RETURN_IF_ERROR(AwaitAll(number, running));
    running.late_call = nullptr;
    ballot->result = IsVetoed(number) ? Ballot::Result::kVetoed : Ballot::Result::kCarriedOut;
    if (ballot->result == Ballot::Result::kVetoed) bytes = 0;
  }
  const ShmWorld& world = sync_.world();
  contributions_[world.rank()] = own;
  for (RankId rank = 0; rank < world.size(); ++rank) {
    if (rank != world.rank()) RONDA_RETURN_IF_ERROR(Read(rank, bytes, number, running));
  }
  TakeBack(bytes);
  return absl::OkStatus();
}

void FlatExchange::TakeBack(size_t bytes) const {
  const ShmFlatLine* const lines = lines_[sync_.world().rank()] + (turn_ + 2) % kShmFlatTurns * kShmFlatLines;
  const size_t count = LinesFor(bytes);
  for (size_t i = 0; i < count; ++i) PrefetchToWrite(lines + i);
}

absl::Status FlatExchange::Veto(const ChunkSequence& place, const RunningCollective& running) {
  const ShmWorld& world = sync_.world();
  for (RankId rank = 0; rank < world.size(); ++rank) {
    if (rank == world.rank()) continue;
    RONDA_RETURN_IF_ERROR(sync_.WaitFor(rank, ShmStage::kDone, place.previous_end, running));
  }
  sync_.Publish(LinesOf(world.rank())->sequence, NumberOf(place) + 1);
  return absl::OkStatus();
}

void FlatExchange::Write(const char* own, size_t bytes, uint64_t number) {
  ShmFlatLine* const lines = LinesOf(sync_.world().rank());
  const size_t last = LinesFor(bytes) - 1;
  for (size_t i = 0; i < last; ++i) {
    CopyPayload(own + i * kShmFlatPayloadBytes, lines[i].payload, kShmFlatPayloadBytes);
    lines[i].sequence.store(number, std::memory_order_release);
  }
  // Without data there may be no buffer.
  if (bytes > 0) CopyPayload(own + last * kShmFlatPayloadBytes, lines[last].payload, BytesInLine(last, bytes));
  sync_.Publish(lines[last].sequence, number);
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

bool FlatExchange::IsVetoed(uint64_t number) const {
  const ShmWorld& world = sync_.world();
  for (RankId rank = 0; rank < world.size(); ++rank) {
    if (rank != world.rank() && LinesOf(rank)->sequence.load(std::memory_order_acquire) == number + 1) return true;
  }
  return false;
}

}  // namespace ronda
