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

// Asks for the cache line at `line`, to write it. (The compiler's own prefetch asks for a copy only, on processors that
// it does not know.)
inline void PrefetchToWrite(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// Writes this rank's data into its ring, in whichever of two ways is faster where the ranks happen to run.
//
// Between cores that share a cache, ordinary stores are best: what was written is near for who reads it. Between
// others, each line has to be taken back from the core that read it last, at 35 ns a line on the AMD EPYC this was
// measured on: 1.8 GB/s, against 13 to 28 GB/s for stores that bypass the caches (which make the reader go to memory
// instead). Which case it is can change while a job runs, as threads and virtual machines are moved. And the ranks must
// do the same: one that bypasses the caches gains nothing while the other clogs the way between them.
//
// So, for two laps of the ring now and then, all ranks try the way not in use; rank 0 compares the times that chunks
// take from being written to the next one (by then the chunk before has been read, too) and leaves the result in shared
// memory. The schedule follows from the position alone. The bytes are the same either way.
//
// Thread-compatible.
class StreamWriter {
 public:
  explicit StreamWriter(std::shared_ptr<ShmWorld> world) : world_(std::move(world)) {}

  // Says that the collective comes to a chunk of `bytes` bytes at `position`; Stop, that it has come to its end.
  void Start(uint64_t position, size_t bytes);
  void Stop();
  // What has been started was vetoed, and its time says nothing.
  void Drop() { chunk_bytes_ = 0; }

  // Packs granules [begin, begin + n) of this rank's contribution to `position` of the stream.
  void Pack(const ReduceArithmetic& reduction, size_t begin, size_t n, uint64_t position);

  // Copies `bytes` bytes to `position` of the stream.
  void Copy(const void* from, size_t bytes, uint64_t position);

  // Asks for the lines of `bytes` bytes at `position`, which are likely to be written soon, unless that is better done
  // past the cache.
  void TakeBack(uint64_t position, size_t bytes) const;

 private:
  enum Way { kThroughCache = 0, kPastCache = 1 };
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  Way SettledWay() const;
  Way WayAt(uint64_t position, size_t bytes) const;
  uint64_t LapOf(uint64_t position) const { return position / world_->view().geometry().RingBytes(); }
  void Learn(uint64_t lap, double cost);
  void FinishLap();

  const std::shared_ptr<ShmWorld> world_;
  // The rest is for rank 0 only. A cost is in nanoseconds a byte, and the least of a lap: threads may be interrupted.
  uint64_t chunk_lap_ = 0;
  size_t chunk_bytes_ = 0;  // of the chunk being timed; 0: none
  std::chrono::steady_clock::time_point chunk_start_;
  uint64_t lap_ = 0;
  double lap_cost_ = kUnknown;
  double settled_cost_ = kUnknown;  // of the last laps that were no trial
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_STREAM_WRITER_H_
