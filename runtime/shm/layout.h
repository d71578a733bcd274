// SPDX-License-Identifier: Apache-2.0

// The layout of a job's shared memory:
//
//   header | one block per rank | one pair of control rings per rank | one flight recorder per rank
//   | flat lines of each rank | one ring of data per rank
//
// The memory is initially all zero bytes. Variables that one rank writes and other ranks read have their own cache
// lines.
#ifndef RONDA_RUNTIME_SHM_LAYOUT_H_
#define RONDA_RUNTIME_SHM_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/shm/doorbell.h"

namespace ronda {

// The first failure of a job, in shared memory. All-zero bytes are an empty record.
//
// Memory ordering: a compare-and-swap changes `state_` from empty to "rank r writes", so only one rank becomes the
// writer. The writer stores the text, then sets `state_` to "written" with a release store. A reader whose acquire load
// returns "written" therefore sees the whole text.
class FailureRecord {
 public:
  // Stores `failure` and returns true if the record is empty; otherwise returns false. REQUIRES: !failure.ok().
  bool Set(RankId writer, const absl::Status& failure);

  // Like Set(), but stores `text` with the code UNAVAILABLE, without an absl::Status, which would allocate memory.
  // Called by a rank that has detected the death of rank `dead`. If `dead` died while it was writing the record,
  // overwrites the record.
  bool SetAfterDeathOf(RankId dead, RankId writer, absl::string_view text);

  // Returns the recorded failure, or OK if there is none. Returns INTERNAL if the fields are corrupt.
  absl::Status Get() const;

  // Returns whether Get() would return an error, with a single load.
  bool IsSet() const { return state_.load(std::memory_order_acquire) == kWritten; }

 private:
  static constexpr uint32_t kEmpty = 0;
  static constexpr uint32_t kWritten = 1;
  static constexpr uint32_t kTextBytes = 2000;

  static constexpr uint32_t WrittenBy(RankId rank) { return 2 + static_cast<uint32_t>(rank); }
  bool SetFrom(uint32_t expected, RankId writer, absl::StatusCode code, absl::string_view text);

  std::atomic<uint32_t> state_{kEmpty};
  uint32_t code_ = 0;
  uint32_t text_bytes_ = 0;
  char text_[kTextBytes] = {};
};

inline constexpr size_t kCacheLineBytes = 64;
inline constexpr size_t kShmPageBytes = 4096;
inline constexpr uint64_t kShmMagic = 0x314d4853444e4f52;  // "RONDSHM1"
inline constexpr uint32_t kShmLayoutVersion = 8;
inline constexpr int kShmMinSlotCount = 3;
inline constexpr int kShmMaxRanks = 1024;
inline constexpr size_t kShmRingBytes = size_t{64} << 10;
inline constexpr int kShmCpuMaskWords = 16;

// The sizes that all ranks must agree on.
struct ShmGeometry {
  int size = 1;           // ranks
  size_t slot_bytes = 0;  // bytes of a chunk; a multiple of kShmPageBytes
  // chunks in a rank's ring; at least 3: one each for packing, reducing and unpacking
  int slot_count = 0;

  size_t RingBytes() const { return slot_bytes * static_cast<size_t>(slot_count); }

  bool operator==(const ShmGeometry&) const = default;
};

// Errors: INVALID_ARGUMENT that names the bad value.
absl::Status Validate(const ShmGeometry& geometry);

enum class ShmPhase : uint32_t { kAttaching = 0, kRunning = 1 };

struct ShmHeader {
  // Constant once other ranks can find the memory.
  uint64_t magic;
  uint32_t layout_version;
  uint64_t total_bytes;
  uint64_t slot_bytes;
  uint32_t size;
  uint32_t slot_count;

  alignas(kCacheLineBytes) std::atomic<uint32_t> phase;  // a ShmPhase; a futex
  std::atomic<uint32_t> attached;                        // ranks that have attached; a futex
  std::atomic<uint64_t> cpus[kShmCpuMaskWords];          // one bit per CPU that any rank may run on

  alignas(kCacheLineBytes) std::atomic<uint64_t> unlock_requested;  // the highest schedule that ranks must unlock

  alignas(kCacheLineBytes) std::atomic<uint32_t> sleepers;  // ranks asleep in a collective
  // How all ranks store data to the rings, as rank 0 decides (Stores, StoreTrials).
  std::atomic<uint32_t> stores;
  // the lap of the ring at which the last or the next trial begins; 0 before the first trial
  std::atomic<uint64_t> stores_trial;

  alignas(kCacheLineBytes) FailureRecord failure;
};
static_assert(sizeof(ShmHeader) <= kShmPageBytes);

// A rank's progress in the data stream that all ranks share. Positions count the bytes since the start of the job, and
// never decrease. Each rank writes only its own positions.
enum class ShmStage { kPacked = 0, kReduced = 1, kDone = 2 };
inline constexpr int kShmStageCount = 3;

struct alignas(kCacheLineBytes) ShmProgress {
  std::atomic<uint64_t> position;
  std::atomic<uint8_t> votes[2];  // only in kPacked: this rank's last two votes, used alternately (chunk_sync.h)
};

// How a rank has announced the end of its process.
enum class ShmDeparture : uint32_t {
  kNone = 0,
  kDeparted = 1,  // the end of the process is no failure
  kExits = 2,     // the program exits without departing: a failure with a text of its own
};

struct ShmRankBlock {
  alignas(kCacheLineBytes) std::atomic<uint32_t> claimed;  // 1 once a process has taken this rank
  std::atomic<uint32_t> attached;                          // 1 once pid and start_time are valid
  std::atomic<int32_t> pid;
  // when the process started, because pids are reused
  std::atomic<uint64_t> start_time;
  std::atomic<ShmDeparture> departure;

  alignas(kCacheLineBytes) Doorbell control;  // rung for control messages, Wake and failures
  alignas(kCacheLineBytes) Doorbell data;     // rung for progress that this rank awaits in a collective
  std::atomic<uint32_t> waits_for;            // 1 + the rank for whose progress this rank sleeps; 0: none

  ShmProgress progress[kShmStageCount];
};

// Small data does not use the stream. It travels in cache lines that each contain a sequence number, which tells a
// reader that the line's data has arrived. So the reader waits for one transfer between cores instead of two.
inline constexpr size_t kShmFlatPayloadBytes = kCacheLineBytes - sizeof(uint64_t);
struct alignas(kCacheLineBytes) ShmFlatLine {
  char payload[kShmFlatPayloadBytes];
  std::atomic<uint64_t> sequence;  // the number of the exchange; never decreases; stored after the payload
};
// maximum lines per exchange: more than 2 KiB of data moves faster as a block in the ring
inline constexpr size_t kShmFlatLines = 40;
// The lines form kShmFlatTurns sets, which successive exchanges use in turn. Three sets would be safe. A rank that has
// announced the end of exchange i may still be reading its lines, but stops before it sends its data or its veto for
// exchange i + 1. With three sets, exchange i + 3 overwrites the lines of exchange i. A rank that does so has completed
// exchange i + 2. So every other rank has already sent its part of exchange i + 2, and no longer reads the lines of
// exchange i. The fourth set allows prefetching: a rank can prefetch the lines of the exchange after next, because no
// rank reads them yet.
inline constexpr size_t kShmFlatTurns = 4;
static_assert(kShmFlatTurns >= 3);

struct ShmRingHeader {
  alignas(kCacheLineBytes) std::atomic<uint64_t> written;  // bytes since the start of the job
  alignas(kCacheLineBytes) std::atomic<uint64_t> read;
  std::atomic<uint32_t> writer_is_blocked;  // the writer is waiting for space
};

// Locates the parts of a job's shared memory. Does not own the memory.
class ShmView {
 public:
  ShmView(void* base, const ShmGeometry& geometry) : base_(static_cast<char*>(base)), geometry_(geometry) {}

  static size_t TotalBytes(const ShmGeometry& geometry);

  const ShmGeometry& geometry() const { return geometry_; }
  ShmHeader& header() const { return *reinterpret_cast<ShmHeader*>(base_); }
  ShmRankBlock& rank(RankId rank) const;

  // The control rings from `rank` to the coordinator (up) and back (down). Each is a header followed by kShmRingBytes
  // bytes.
  ShmRingHeader& RingUp(RankId rank) const { return Ring(2 * rank); }
  ShmRingHeader& RingDown(RankId rank) const { return Ring(2 * rank + 1); }

  // Returns the flight recorders of all ranks, in rank order.
  absl::Span<FlightRecorder> FlightRecorders() const;

  // Returns the lines that `rank` writes: kShmFlatTurns sets of kShmFlatLines lines.
  ShmFlatLine* FlatLines(RankId rank) const;

  // Returns the address of `position` in the ring of `rank`. Positions one lap apart share an address.
  char* Data(RankId rank, uint64_t position) const;

 private:
  ShmRingHeader& Ring(int index) const;

  char* base_;
  ShmGeometry geometry_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_LAYOUT_H_
