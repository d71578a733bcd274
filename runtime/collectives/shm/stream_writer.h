#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_STREAM_WRITER_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_STREAM_WRITER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "runtime/collectives/reduce_arithmetic.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// Prefetches the cache line at `line` for writing. On processors that it does not know, the compiler's own prefetch
// asks only for a shared copy.
inline void PrefetchToWrite(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// Writes this rank's data into its ring, with the kind of stores that is faster on the cores where the ranks run.
//
// Between cores that share a cache, ordinary stores are best: the reader finds the data near. Between other cores, each
// line has to be fetched from the core that read it last, at 35 ns a line on the AMD EPYC of the measurements: 1.8
// GB/s, against 13 to 28 GB/s for stores that bypass the caches, where the reader goes to memory. The better kind can
// change during a job, when threads or virtual machines are moved. All ranks must use the same kind: a rank that
// bypasses the caches gains nothing while another one clogs the path between them.
//
// So all ranks try the other kind from time to time, for two laps of the ring. Rank 0 times each chunk from its write
// to the next one's, by when the chunk before has been read too, and stores its decision in shared memory. The schedule
// of trials follows from the position alone. Both kinds give the same bytes.
//
// Thread-compatible.
class StreamWriter {
 public:
  explicit StreamWriter(std::shared_ptr<ShmWorld> world) : world_(std::move(world)) {}

  // Start announces a chunk of `bytes` bytes at `position`; Stop ends the collective.
  void Start(uint64_t position, size_t bytes);
  void Stop();
  // Discards the chunk that was started: its collective was vetoed, and its time means nothing.
  void Drop() { chunk_bytes_ = 0; }

  // Packs granules [begin, begin + n) of this rank's contribution to `position` of the stream.
  void Pack(const ReduceArithmetic& reduction, size_t begin, size_t n, uint64_t position);

  // Copies `bytes` bytes to `position` of the stream.
  void Copy(const void* from, size_t bytes, uint64_t position);

  // Prefetches the `bytes` bytes at `position`, which are likely to be written soon, unless stores bypass the caches
  // there.
  void TakeBack(uint64_t position, size_t bytes) const;

 private:
  enum Stores { kThroughCache = 0, kPastCache = 1 };
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  Stores SettledStores() const;
  Stores StoresAt(uint64_t position, size_t bytes) const;
  uint64_t LapOf(uint64_t position) const { return position / world_->view().geometry().RingBytes(); }
  void Learn(uint64_t lap, double cost);
  void FinishLap();

  const std::shared_ptr<ShmWorld> world_;
  // The remaining members are used by rank 0 only. A cost is in nanoseconds a byte, and is the minimum of a lap,
  // because threads may be interrupted.
  uint64_t chunk_lap_ = 0;
  size_t chunk_bytes_ = 0;  // of the chunk being timed; 0: none
  std::chrono::steady_clock::time_point chunk_start_;
  uint64_t lap_ = 0;
  double lap_cost_ = kUnknown;
  double settled_cost_ = kUnknown;  // of the last laps without a trial
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_STREAM_WRITER_H_
