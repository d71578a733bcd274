// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/shm/stream_writer.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/stream_copy.h"
#include "runtime/base/clock.h"

namespace ronda {
namespace {

// Smaller writes are not timed, because reading the clock would cost too much.
constexpr size_t kMinTimedBytes = 4 << 10;
// A contribution that must be packed is packed in blocks of this size, which stay in the L1 cache, and are then copied
// to the ring.
constexpr size_t kBlockBytes = 4 << 10;

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

void StoreTrials::FinishLap(uint64_t lap, double cost, absl::Duration now) {
  if (!IsIn(trial_, lap)) {
    RecordSettled(cost);
  } else if (!IsIn(trial_, lap + 1)) {
    EndTrial(cost);
  }
  if (lap + kNotice <= trial_ || !IsDue(lap, now)) return;
  trial_ = lap + kNotice;
  trial_time_ = now;
  alarming_laps_ = 0;
}

void StoreTrials::EndTrial(double cost) {
  if (cost >= kRequiredGain * settled_cost_) return;
  settled_ = Other(settled_);
  settled_cost_ = cost;
}

void StoreTrials::RecordSettled(double cost) {
  alarming_laps_ = cost > kAlarmingCost * settled_cost_ ? alarming_laps_ + 1 : 0;
  settled_cost_ = std::min(cost, kForgetting * settled_cost_);
}

bool StoreTrials::IsDue(uint64_t lap, absl::Duration now) const {
  const uint64_t since = lap + kNotice - trial_;
  return since >= std::min(trial_, kMostBetween) || (since >= kFewestBetween && alarming_laps_ >= kAlarmingLaps) ||
         (since >= kFewestBetweenTimed && now - trial_time_ >= kTimeBetween);
}

void StreamWriter::Start(uint64_t position, size_t bytes) {
  if (world_->rank() != 0 || bytes < kMinTimedBytes) return;
  Stop();
  chunk_lap_ = LapOf(position);
  chunk_bytes_ = bytes;
  chunk_start_ = MonotonicTime();
}

void StreamWriter::Stop() {
  if (chunk_bytes_ == 0) return;
  const absl::Duration now = MonotonicTime();
  const double spent = absl::ToDoubleNanoseconds(now - chunk_start_);
  Learn(chunk_lap_, spent / static_cast<double>(std::exchange(chunk_bytes_, 0)), now);
}

void StreamWriter::Pack(const ReduceArithmetic& reduction, size_t begin, size_t n, uint64_t position) {
  char* const to = world_->view().Data(world_->rank(), position);
  if (StoresAt(position, n * reduction.layout().granule_bytes) == Stores::kPastCache) {
    PackPastCache(reduction, begin, n, to);
  } else {
    reduction.Pack(begin, n, to);
  }
}

void StreamWriter::Copy(const void* from, size_t bytes, uint64_t position) {
  // An empty buffer may be a null pointer, which memcpy does not accept.
  if (bytes == 0) return;
  char* const to = world_->view().Data(world_->rank(), position);
  if (StoresAt(position, bytes) == Stores::kPastCache) {
    kernels::StreamCopy(from, to, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void StreamWriter::Prefetch(uint64_t position, size_t bytes) const {
  const uint64_t ring_bytes = world_->view().geometry().RingBytes();
  if (position % ring_bytes + bytes > ring_bytes || StoresAt(position, bytes) == Stores::kPastCache) return;
  const char* const lines = world_->view().Data(world_->rank(), position);
  for (size_t i = 0; i < bytes; i += kCacheLineBytes) PrefetchToWrite(lines + i);
}

Stores StreamWriter::StoresAt(uint64_t position, size_t bytes) const {
  if (bytes < kMinTimedBytes) return Stores::kThroughCache;
  const ShmHeader& header = world_->view().header();
  const Stores settled = static_cast<Stores>(header.stores.load(std::memory_order_relaxed));
  const uint64_t trial = header.stores_trial.load(std::memory_order_relaxed);
  return StoreTrials::IsIn(trial, LapOf(position)) ? Other(settled) : settled;
}

void StreamWriter::Learn(uint64_t lap, double cost, absl::Duration now) {
  if (lap != lap_) {
    trials_.FinishLap(lap_, std::exchange(lap_cost_, cost), now);
    ShmHeader& header = world_->view().header();
    header.stores.store(static_cast<uint32_t>(trials_.settled()), std::memory_order_relaxed);
    header.stores_trial.store(trials_.trial(), std::memory_order_relaxed);
  }
  lap_ = lap;
  lap_cost_ = std::min(lap_cost_, cost);
}

}  // namespace ronda
