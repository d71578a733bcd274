#include "runtime/collectives/shm/stream_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cpu/stream_copy.h"

namespace ronda {
namespace {

// The clock costs too much for smaller writes.
constexpr size_t kMinTimedBytes = 4 << 10;
// In the first lap of a trial, the lines are still where the other kind of stores left them; the second lap counts.
constexpr uint64_t kTrialLaps = 2;
// Trials begin at laps 4, 8, 16 and so on, and later at every multiple of kLapsBetweenTrials.
constexpr uint64_t kFirstTrialLap = 4;
constexpr uint64_t kLapsBetweenTrials = 128;
// The other kind must take less than this part of the time to be chosen, so that two equal kinds do not alternate.
constexpr double kRequiredGain = 0.8;
// The factor by which the cost of the best lap grows each lap, so that it is forgotten.
constexpr double kForgetting = 1.25;
// A contribution that is not the input itself is built here and then copied out; the block stays in the first-level
// cache.
constexpr size_t kBlockBytes = 4 << 10;

// The laps of a trial that are over when `lap` begins; kTrialLaps or more outside a trial.
uint64_t LapOfTrial(uint64_t lap) {
  if (lap < kFirstTrialLap) return kTrialLaps;
  return lap - (lap < kLapsBetweenTrials ? std::bit_floor(lap) : lap / kLapsBetweenTrials * kLapsBetweenTrials);
}

void PackPastCache(const ReduceArithmetic& reduction, size_t begin, size_t n, char* to) {
  const size_t granule_bytes = reduction.layout().granule_bytes;
  if (reduction.ContributesInputItself()) {
    reduction.buffer().ForEachRun(begin, n, [&](const ReduceArithmetic::Run& run) {
      kernels::StreamCopy(reduction.InputOf(run), to + run.offset * granule_bytes, run.count * granule_bytes);
    });
    return;
  }
  alignas(64) char block[kBlockBytes];
  const size_t block_granules = kBlockBytes / granule_bytes;
  for (size_t done = 0; done < n; done += block_granules) {
    const size_t count = std::min(block_granules, n - done);
    reduction.Pack(begin + done, count, block);
    kernels::StreamCopy(block, to + done * granule_bytes, count * granule_bytes);
  }
}

}  // namespace

void StreamWriter::Start(uint64_t position, size_t bytes) {
  if (world_->rank() != 0 || bytes < kMinTimedBytes) return;
  Stop();
  chunk_lap_ = LapOf(position);
  chunk_bytes_ = bytes;
  chunk_start_ = std::chrono::steady_clock::now();
}

void StreamWriter::Stop() {
  if (chunk_bytes_ == 0) return;
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - chunk_start_;
  Learn(chunk_lap_, spent.count() / static_cast<double>(std::exchange(chunk_bytes_, 0)));
}

void StreamWriter::Pack(const ReduceArithmetic& reduction, size_t begin, size_t n, uint64_t position) {
  char* const to = world_->view().Data(world_->rank(), position);
  if (StoresAt(position, n * reduction.layout().granule_bytes) == kPastCache) {
    PackPastCache(reduction, begin, n, to);
  } else {
    reduction.Pack(begin, n, to);
  }
}

void StreamWriter::Copy(const void* from, size_t bytes, uint64_t position) {
  // An empty buffer may be a null pointer, which memcpy does not take.
  if (bytes == 0) return;
  char* const to = world_->view().Data(world_->rank(), position);
  if (StoresAt(position, bytes) == kPastCache) {
    kernels::StreamCopy(from, to, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void StreamWriter::TakeBack(uint64_t position, size_t bytes) const {
  const uint64_t ring_bytes = world_->view().geometry().RingBytes();
  if (position % ring_bytes + bytes > ring_bytes || StoresAt(position, bytes) == kPastCache) return;
  const char* const lines = world_->view().Data(world_->rank(), position);
  for (size_t i = 0; i < bytes; i += kCacheLineBytes) PrefetchToWrite(lines + i);
}

StreamWriter::Stores StreamWriter::StoresAt(uint64_t position, size_t bytes) const {
  if (bytes < kMinTimedBytes) return kThroughCache;
  const bool is_trial = LapOfTrial(LapOf(position)) < kTrialLaps;
  return is_trial == (SettledStores() == kThroughCache) ? kPastCache : kThroughCache;
}

StreamWriter::Stores StreamWriter::SettledStores() const {
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
  if (lap_of_trial >= kTrialLaps) settled_cost_ = std::min(cost, kForgetting * settled_cost_);
  if (lap_of_trial != kTrialLaps - 1 || cost >= kRequiredGain * settled_cost_) return;
  world_->view().header().stores_past_cache.store(SettledStores() == kThroughCache ? 1 : 0, std::memory_order_relaxed);
  settled_cost_ = cost;
}

}  // namespace ronda
