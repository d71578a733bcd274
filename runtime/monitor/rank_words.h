// SPDX-License-Identifier: Apache-2.0

// The data that a rank publishes about itself, in shared memory that other processes can map to watch the rank.
#ifndef RONDA_RUNTIME_MONITOR_RANK_WORDS_H_
#define RONDA_RUNTIME_MONITOR_RANK_WORDS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/operation.h"
#include "runtime/monitor/rank_request.h"
#include "runtime/monitor/statistics.h"

namespace ronda {

// How the ranks agreed on a bucket. Either rank 0's response list ordered the bucket (kNegotiated), or the bucket is in
// the locked schedule (kScheduled).
enum class BucketMode : uint8_t { kNegotiated = 0, kScheduled = 1 };
inline constexpr int kBucketModeCount = 2;

constexpr const char* Name(BucketMode mode) { return mode == BucketMode::kNegotiated ? "negotiated" : "scheduled"; }

// A rank's entry into one bucket. Times are nanoseconds on the clock of flight recorders.
struct BucketEntry {
  uint64_t bucket = 0;
  uint64_t time = 0;
  uint64_t step = 0;  // the rank's step at that time
  uint64_t left = 0;  // when the rank left the bucket; 0: not yet

  friend bool operator==(const BucketEntry&, const BucketEntry&) = default;
};

// How long a rank's device has worked on the buckets that were timed. One bucket in kPeriod is timed, so all buckets
// together took about kPeriod times as long. The thread that learns when buckets end on the device writes these
// counters.
struct DeviceTimes {
  static constexpr uint64_t kPeriod = 32;
  static constexpr int kPhases = 5;
  // The names of the phases, in the order of StreamPhase (runtime/collectives/transport.h).
  static constexpr const char* kPhaseNames[kPhases] = {"wait_for_data", "pack", "transfer", "reduce", "unpack"};

  Counter buckets;               // timed
  Counter nanoseconds[kPhases];  // of these
};

// The data that one rank publishes, in a memfd of the rank's process. The memfd has the name kRankFileName. A process
// of the same user opens the memfd as /proc/PID/fd/N. Processes of other users cannot open it. So a process can read
// the data even while the rank is stopped. The memfd disappears when the rank and all readers have ended, whatever has
// ended these processes. The file cannot change its size. If a process becomes a rank again after shutdown(), it
// creates a new memfd.
//
// Only the rank's own threads write to its RankWords. So two ranks never write to the same cache line. The request
// (RankRequestWords) is an exception: another process writes to it, so it has its own cache lines.
//
// Memory ordering: `magic` is stored last, with release, and so publishes the words that never change. Counters are
// independent of each other, and are read and written with relaxed order. `current` protects `current_since`, and the
// `bucket` of each entry protects the other words of the entry. A writer stores 0 to the protecting word, then the
// other words, then the bucket's number, all with release. A reader loads the number, then the other words, then the
// number again, all with acquire. If both loads return the same number above 0, the other words belong to that bucket.
// `buckets` is the number of the newest bucket. `buckets` is stored with release: after the entries of all earlier
// buckets, and before the entry of the newest bucket. So a reader that loads n from `buckets` can read the entries up
// to n - 1. A reader that has seen the number n in an entry loads n or more from `buckets`.
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
    std::atomic<uint64_t> left;  // stored again, with the same number, when the rank leaves the bucket
  };

  // These words describe the layout. The words that describe the layout are at the same offsets in every version.
  std::atomic<uint64_t> magic{0};
  uint32_t version = kVersion;
  uint32_t bytes = 0;  // sizeof(RankWords)

  // These words describe the rank and its job. Texts end with a zero byte.
  uint64_t start_time = 0;  // of the process, see ProcessId
  int32_t pid = 0;
  int32_t rank = 0;
  int32_t size = 1;
  int32_t local_rank = 0;
  int32_t local_size = 1;
  int32_t cross_rank = 0;
  int32_t cross_size = 1;
  // Where the rank's flight recorder is: a descriptor of the rank's process, and an offset in this file.
  int32_t recorder_descriptor = -1;
  uint64_t recorder_offset = kNoRecorder;
  // The time of one moment on two clocks. One clock is CheapTicks(), the other is the clock of flight recorders in
  // nanoseconds.
  uint64_t start_ticks = 0;
  uint64_t start_nanoseconds = 0;
  char job[kJobBytes] = {};
  char host[kHostBytes] = {};
  std::atomic<uint64_t> ended{0};  // 1: the rank has ended; its process may go on

  alignas(64) Counters counters;
  Counter collectives[kOpTypeCount][kBucketModeCount];  // buckets carried out with this rank's part
  DeviceTimes device_times;

  // The number of buckets so far, in the order in which all ranks make their calls. The number includes buckets in
  // which this rank takes no part, so a bucket has the same number on every rank.
  alignas(64) std::atomic<uint64_t> buckets{0};
  std::atomic<uint64_t> current{0};         // the number of the rank's current bucket; 0: none
  std::atomic<uint64_t> current_since{0};   // when the rank entered it
  std::atomic<uint64_t> last_step_time{0};  // when the last step ended; 0: no step has ended
  Entry entries[kEntries] = {};             // of bucket n at n % kEntries, if this rank has a part in it

  RankRequestWords request;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Returns the rank's current counts. Read works only on the host of the rank.
Statistics Read(const RankWords& words);

inline constexpr char kRankFileName[] = "ronda-rank";

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_RANK_WORDS_H_
