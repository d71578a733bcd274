// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_STREAM_WRITER_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_STREAM_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "runtime/collectives/reduce_arithmetic.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// Prefetches the cache line at `line` for writing. Uses the x86 instruction directly, because the compiler's prefetch
// may request only a shared copy of the line.
inline void PrefetchToWrite(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// The two ways to write data that another rank will read.
enum class Stores : uint32_t { kThroughCache = 0, kPastCache = 1 };

constexpr Stores Other(Stores stores) {
  return stores == Stores::kThroughCache ? Stores::kPastCache : Stores::kThroughCache;
}

// Decides when the ranks try the other kind of stores, and which kind they use afterwards, by comparing the costs of
// the two kinds over laps. A lap is one pass through the whole ring. A pure state machine, to which callers pass the
// time.
//
// A trial begins at laps 4, 8, 16 and so on, and later every 128 laps. It begins sooner if the settled kind has become
// much slower for two laps, for example because a rank was moved to a core that shares no cache with the other ranks'
// cores. It also begins after a second and 16 laps, because 128 laps take long in a job that communicates little.
//
// Thread-compatible.
class StoreTrials {
 public:
  // The length of a trial. Only its second lap is measured, because in the first, the cache lines are still where the
  // settled kind of stores has left them.
  static constexpr uint64_t kLaps = 2;

  // Returns whether `lap` is part of the trial that begins at lap `trial` (0: no trial is planned).
  static bool IsIn(uint64_t trial, uint64_t lap) { return trial != 0 && lap >= trial && lap - trial < kLaps; }

  // Must be called when `lap` has ended, in ascending order. `cost` is the cost of the lap's fastest chunk, in
  // nanoseconds per byte. (Slower chunks are ignored, because their threads may have been interrupted.) `now` is
  // MonotonicTime().
  void FinishLap(uint64_t lap, double cost, absl::Duration now);

  // Returns the first lap of the last or the next trial, which is decided 3 laps ahead. Ranks are less than a lap
  // apart, so every rank reads the decision in time.
  uint64_t trial() const { return trial_; }

  // Returns the kind of stores to use outside trials.
  Stores settled() const { return settled_; }

 private:
  static constexpr uint64_t kNotice = 3;
  static constexpr uint64_t kFirst = 4;
  static constexpr uint64_t kMostBetween = 128;
  static constexpr uint64_t kFewestBetween = 8;
  static constexpr uint64_t kFewestBetweenTimed = 16;
  static constexpr absl::Duration kTimeBetween = absl::Seconds(1);
  // The settled kind of stores has become slow if kAlarmingLaps consecutive laps cost more than kAlarmingCost times its
  // best lap.
  static constexpr double kAlarmingCost = 2;
  static constexpr int kAlarmingLaps = 2;
  // The ranks switch to the other kind only if it takes less than this fraction of the time, so that they do not keep
  // switching between two equally fast kinds.
  static constexpr double kRequiredGain = 0.8;
  // The remembered cost of the best lap grows by this factor in each lap, so that old laps lose their influence.
  static constexpr double kForgetting = 1.25;
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  void EndTrial(double cost);
  void RecordSettled(double cost);
  bool IsDue(uint64_t lap, absl::Duration now) const;

  Stores settled_ = Stores::kThroughCache;
  uint64_t trial_ = kFirst;
  absl::Duration trial_time_ = absl::InfiniteDuration();  // when trial_ was last set; infinite before the first trial
  double settled_cost_ = kUnknown;                        // cost of recent laps outside trials
  int alarming_laps_ = 0;                                 // consecutive
};

// Writes this rank's data into its ring, with the kind of stores that is faster on the ranks' cores.
//
// Between cores that share a cache, ordinary stores are best, because the reader finds the data in the cache. Between
// other cores, each line must first be fetched from the core that read it last. On the AMD EPYC processor on which this
// was measured, that takes 35 ns, so ordinary stores reach 1.8 GB/s. Stores that bypass the caches reach 13 to 28 GB/s,
// because the reader then reads from memory. The faster kind can change during a job, when threads or virtual machines
// are moved. All ranks must use the same kind: a rank that bypasses the caches gains nothing while another rank
// saturates the path between them.
//
// So all ranks try the other kind from time to time (StoreTrials). Rank 0 measures the time between the writes of two
// consecutive chunks, which includes the reads of the first one, and stores its decisions in shared memory, where all
// ranks read them. Both kinds of stores write the same bytes, so a rank that sees a decision late is only slower.
//
// Thread-compatible.
class StreamWriter {
 public:
  explicit StreamWriter(std::shared_ptr<ShmWorld> world) : world_(std::move(world)) {}

  // Start() must be called before each chunk, of `bytes` bytes at `position`, and Stop() at the end of the collective.
  void Start(uint64_t position, size_t bytes);
  void Stop();
  // Discards the started chunk. Must be called if the collective was vetoed, because its time would be misleading.
  void Drop() { chunk_bytes_ = 0; }

  // Packs granules [begin, begin + n) of this rank's contribution at stream position `position`.
  void Pack(const ReduceArithmetic& reduction, size_t begin, size_t n, uint64_t position);

  // Copies `bytes` bytes to stream position `position`.
  void Copy(const void* from, size_t bytes, uint64_t position);

  // Prefetches the `bytes` bytes at `position`, which will probably be written soon. Does nothing if stores there
  // bypass the caches, or if the bytes would wrap around the end of the ring.
  void Prefetch(uint64_t position, size_t bytes) const;

 private:
  Stores StoresAt(uint64_t position, size_t bytes) const;
  uint64_t LapOf(uint64_t position) const { return position / world_->view().geometry().RingBytes(); }
  // Records the cost of a chunk of `lap` that ended at `now`, in nanoseconds per byte.
  void Learn(uint64_t lap, double cost, absl::Duration now);

  const std::shared_ptr<ShmWorld> world_;
  // Only rank 0 uses these.
  uint64_t chunk_lap_ = 0;
  size_t chunk_bytes_ = 0;  // bytes of the chunk being timed; 0: none
  absl::Duration chunk_start_;
  uint64_t lap_ = 0;
  double lap_cost_ = std::numeric_limits<double>::infinity();  // cost of the lap's fastest chunk so far
  StoreTrials trials_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_STREAM_WRITER_H_
