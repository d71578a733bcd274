#include "runtime/collectives/shm/stream_writer.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "kernels/cpu/stream_copy.h"
#include "runtime/collectives/contribution.h"

namespace ronda {
namespace {

// Smaller writes are not worth the look at the clock.
constexpr size_t kMinTimedBytes = 4 << 10;
// A trial: in its first lap the lines are still as the other way has left them; the second is what counts.
constexpr uint64_t kTrialLaps = 2;
// Trials begin at laps 4, 8, 16, ... and then always after this many.
constexpr uint64_t kFirstTrialLap = 4;
constexpr uint64_t kLapsBetweenTrials = 128;
// What bypassing the caches costs the reader is not seen here: it must win by more than that.
constexpr double kRequiredAdvantage = 2.0;
// Contributions that are not the input itself are made here, then copied out; it stays in the first-level cache.
constexpr size_t kBlockBytes = 4 << 10;

// How many laps of a trial are over when `lap` begins; kTrialLaps or more if it is in none.
uint64_t LapOfTrial(uint64_t lap) {
  if (lap < kFirstTrialLap) return kTrialLaps;
  return lap - (lap < kLapsBetweenTrials ? std::bit_floor(lap) : lap / kLapsBetweenTrials * kLapsBetweenTrials);
}

void PackPastCache(const AllreduceCall& call, const LogicalBuffer& buffer, size_t begin, size_t n, char* to) {
  const size_t wire_bytes = SizeOf(WireDType(call));
  if (ContributesInputItself(call)) {
    buffer.ForEachRun(begin, n, [&](const LogicalBuffer::Run& run) {
      kernels::StreamCopy(run.input, to + run.offset * wire_bytes, run.count * wire_bytes);
    });
    return;
  }
  alignas(64) char block[kBlockBytes];
  const size_t block_elements = kBlockBytes / wire_bytes;
  for (size_t done = 0; done < n; done += block_elements) {
    const size_t count = std::min(block_elements, n - done);
    Pack(call, buffer, begin + done, count, block);
    kernels::StreamCopy(block, to + done * wire_bytes, count * wire_bytes);
  }
}

}  // namespace

void StreamWriter::Pack(const AllreduceCall& call, const LogicalBuffer& buffer, size_t begin, size_t n,
                        uint64_t position) {
  Place(position, n * SizeOf(WireDType(call)), [&](Way way, char* to) {
    if (way == kPastCache) {
      PackPastCache(call, buffer, begin, n, to);
    } else {
      ronda::Pack(call, buffer, begin, n, to);
    }
  });
}

void StreamWriter::Copy(const void* from, size_t bytes, uint64_t position) {
  // An empty buffer may be a null pointer, which memcpy does not take.
  if (bytes == 0) return;
  Place(position, bytes, [&](Way way, char* to) {
    if (way == kPastCache) {
      kernels::StreamCopy(from, to, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  });
}

template <typename Write>
void StreamWriter::Place(uint64_t position, size_t bytes, const Write& write) {
  char* const to = world_->view().Data(world_->rank(), position);
  if (bytes < kMinTimedBytes) return write(kThroughCache, to);
  const uint64_t lap = position / world_->view().geometry().RingBytes();
  const bool is_trial = LapOfTrial(lap) < kTrialLaps;
  const Way way = is_trial == (SettledWay() == kThroughCache) ? kPastCache : kThroughCache;
  if (world_->rank() != 0) return write(way, to);
  const auto start = std::chrono::steady_clock::now();
  write(way, to);
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  Learn(lap, spent.count() / static_cast<double>(bytes));
}

StreamWriter::Way StreamWriter::SettledWay() const {
  return world_->view().header().stores_past_cache.load(std::memory_order_relaxed) != 0 ? kPastCache : kThroughCache;
}

void StreamWriter::Learn(uint64_t lap, double cost) {
  if (lap != lap_) FinishLap();
  lap_ = lap;
  lap_cost_ = std::min(lap_cost_, cost);
}

void StreamWriter::FinishLap() {
  const double cost = std::exchange(lap_cost_, kUnknown);
  const uint64_t lap_of_trial = LapOfTrial(lap_);
  if (lap_of_trial >= kTrialLaps) settled_cost_ = cost;
  if (lap_of_trial != kTrialLaps - 1) return;
  const bool was_past_cache = SettledWay() == kPastCache;
  const double through_cache = was_past_cache ? cost : settled_cost_;
  const double past_cache = was_past_cache ? settled_cost_ : cost;
  const bool is_better_past_cache = through_cache > kRequiredAdvantage * past_cache;
  world_->view().header().stores_past_cache.store(is_better_past_cache ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace ronda
