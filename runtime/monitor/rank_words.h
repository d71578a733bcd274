// SPDX-License-Identifier: Apache-2.0

// What a rank publishes about itself, in shared memory that other processes can map.
#ifndef RONDA_RUNTIME_MONITOR_RANK_WORDS_H_
#define RONDA_RUNTIME_MONITOR_RANK_WORDS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/operation.h"
#include "runtime/monitor/rank_request.h"
#include "runtime/monitor/statistics.h"

namespace ronda {

// How the ranks agreed on a bucket: through a response list from rank 0 (kNegotiated), or through the locked schedule
// (kScheduled).
enum class BucketMode : uint8_t { kNegotiated = 0, kScheduled = 1 };
inline constexpr int kBucketModeCount = 2;

constexpr const char* Name(BucketMode mode) { return mode == BucketMode::kNegotiated ? "negotiated" : "scheduled"; }

// A rank's entry into one bucket. Times are nanoseconds on the flight recorders' clock.
struct BucketEntry {
  uint64_t bucket = 0;
  uint64_t time = 0;
  uint64_t step = 0;  // the rank's step at that time
  uint64_t left = 0;  // when the rank left the bucket; 0: not yet

  friend bool operator==(const BucketEntry&, const BucketEntry&) = default;
};

// How long a rank's device has worked on the buckets that were timed: one in kPeriod, so all buckets together took
// about kPeriod times as long. Written by the thread that waits for buckets to finish on the device.
struct DeviceTimes {
  static constexpr uint64_t kPeriod = 32;
  static constexpr int kPhases = 5;
  // The names of the phases, in the order of StreamPhase (runtime/collectives/transport.h).
  static constexpr const char* kPhaseNames[kPhases] = {"wait_for_data", "pack", "transfer", "reduce", "unpack"};

  Counter buckets;               // timed
  Counter nanoseconds[kPhases];  // of these
};

// What one rank publishes, in a memfd of its process with the name kRankFileName and a fixed size. Processes of the
// same user, but not of other users, can open it as /proc/PID/fd/N, and read it even while the rank is stopped. It
// disappears when the rank and all readers have exited, for whatever reason. A process that becomes a rank again after
// shutdown() creates a new memfd.
//
// Only the rank's own threads write to its RankWords, so two ranks never write to the same cache line. The exception is
// the request (RankRequestWords), to which another process writes. It has its own cache lines.
//
// Memory ordering: `magic` is stored last, with release, and thereby publishes the constant words. Counters are
// independent of each other, and are read and written with relaxed order. `current` protects `current_since`, and the
// `bucket` of each entry protects the entry's other words. A writer stores 0 to the protecting word, then the other
// words, then the bucket's number, all with release. A reader loads the number, then the other words, then the number
// again, all with acquire. If both loads return the same number above 0, the other words belong to that bucket.
// `buckets`, the number of the newest bucket, is stored with release after the entries of all earlier buckets, and
// before the entry of the newest bucket. So a reader that loads n from `buckets` can read the entries up to n - 1, and
// a reader that has seen n in an entry loads n or more from `buckets`.
struct RankWords {
  static constexpr uint64_t kMagic = 0x314b4e4152444e52;  // "RNDRANK1"
  static constexpr uint32_t kVersion = 5;
  static constexpr int kEntries = 256;
  static constexpr size_t kJobBytes = 128;
  static constexpr size_t kHostBytes = 64;
  static constexpr uint64_t kNoRecorder = ~uint64_t{0};

  struct Entry {
    std::atomic<uint64_t> bucket;
    std::atomic<uint64_t> time;
    std::atomic<uint64_t> step;
    std::atomic<uint64_t> left;  // when the rank left the bucket; 0: not yet. Stored while `bucket` is set
  };

  // These words describe the layout, and have the same offsets in every version.
  std::atomic<uint64_t> magic{0};
  uint32_t version = kVersion;
  uint32_t bytes = 0;  // sizeof(RankWords)

  // These words describe the rank and its job. Texts are zero-terminated.
  uint64_t start_time = 0;  // of the process, see ProcessId
  int32_t pid = 0;
  int32_t rank = 0;
  int32_t size = 1;
  int32_t local_rank = 0;
  int32_t local_size = 1;
  int32_t cross_rank = 0;
  int32_t cross_size = 1;
  // Where the rank's flight recorder is: a file descriptor of the rank's process, and an offset in the file.
  int32_t recorder_descriptor = -1;
  uint64_t recorder_offset = kNoRecorder;
  // The same moment on two clocks: CheapTicks(), and the flight recorders' clock in nanoseconds.
  uint64_t start_ticks = 0;
  uint64_t start_nanoseconds = 0;
  char job[kJobBytes] = {};
  char host[kHostBytes] = {};
  std::atomic<uint64_t> ended{0};  // 1: the rank has ended, but its process may still be running

  alignas(64) Counters counters;
  Counter collectives[kOpTypeCount][kBucketModeCount];  // completed buckets in which this rank took part
  DeviceTimes device_times;

  // The number of buckets so far, in the order in which all ranks execute them. Includes buckets without this rank, so
  // a bucket has the same number on every rank.
  alignas(64) std::atomic<uint64_t> buckets{0};
  std::atomic<uint64_t> current{0};         // the number of the rank's current bucket; 0: none
  std::atomic<uint64_t> current_since{0};   // when the rank entered it
  std::atomic<uint64_t> last_step_time{0};  // when the last step ended; 0: no step has ended
  Entry entries[kEntries] = {};             // bucket n is at n % kEntries, if this rank takes part in it

  RankRequestWords request;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Returns the rank's current counts. Works only on the rank's host.
Statistics Read(const RankWords& words);

inline constexpr char kRankFileName[] = "ronda-rank";

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_RANK_WORDS_H_
