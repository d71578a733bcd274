#include "runtime/collectives/shm/small_reduce.h"

#include <optional>

#include "absl/container/inlined_vector.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Up to this size, reducing everything everywhere costs less than waiting for the shards that a stream would make.
constexpr size_t kMaxBytes = 8 << 10;
// Two ranks reduce everything in any case.
constexpr size_t kMaxBytesOfTwo = 16 << 10;
// More would drive what is being reduced out of the first-level cache.
constexpr size_t kMaxBytesTakenBack = 8 << 10;

bool HasBuffers(const CallInfo& info) { return info.ballot == nullptr || info.ballot->own == Ballot::Vote::kStay; }

}  // namespace

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
  const ChunkSequence place = fits_lines ? stream_.TakeLine() : stream_.Take(own.bytes, own.granule_bytes);
  RONDA_RETURN_IF_ERROR(fits_lines ? ExchangeLines(info, own, place, running)
                                   : ExchangeBlock(info, own, place, running));
  running.late_call = nullptr;
  return place.end;
}

absl::Status SmallReduce::ExchangeLines(const CallInfo& info, const Contribution& own, const ChunkSequence& place,
                                        RunningCollective& running) {
  const char* from = own.at;
  if (own.packed != nullptr && HasBuffers(info)) {
    own.packed->Pack(0, own.packed->granules(), flat_.Scratch());
    from = flat_.Scratch();
  }
  RONDA_RETURN_IF_ERROR(flat_.Run(from, own.bytes, place, info.ballot, running));
  for (size_t rank = 0; rank < sources_.size(); ++rank) {
    sources_[rank] = flat_.Contribution(static_cast<RankId>(rank));
  }
  return absl::OkStatus();
}

absl::Status SmallReduce::ExchangeBlock(const CallInfo& info, const Contribution& own, const ChunkSequence& place,
                                        RunningCollective& running) {
  if (HasBuffers(info)) RONDA_RETURN_IF_ERROR(WriteBlock(own, place, running));
  // The next block is likely to be as long, and there is time now, until the others are there.
  if (own.bytes <= kMaxBytesTakenBack) writer_.TakeBack(place.end, own.bytes);
  RONDA_RETURN_IF_ERROR(flat_.Run(nullptr, 0, place, info.ballot, running));
  for (size_t rank = 0; rank < sources_.size(); ++rank) {
    sources_[rank] = sync_.Data(static_cast<RankId>(rank), place.begin);
  }
  if (own.at != nullptr) sources_[sync_.world().rank()] = own.at;
  return absl::OkStatus();
}

absl::Status SmallReduce::WriteBlock(const Contribution& own, const ChunkSequence& place,
                                     const RunningCollective& running) {
  writer_.Start(place.begin, own.bytes);
  RONDA_RETURN_IF_ERROR(sync_.WaitForRoom(place, 0, running));
  if (own.at != nullptr) {
    writer_.Copy(own.at, own.bytes, place.begin);
  } else {
    writer_.Pack(*own.packed, 0, own.packed->granules(), place.begin);
  }
  return absl::OkStatus();
}

void SmallReduce::Finish(const CallInfo& info, uint64_t end) {
  sync_.Publish(ShmStage::kDone, end);
  if (IsVetoed(info)) return writer_.Drop();
  writer_.Stop();
}

}  // namespace ronda
