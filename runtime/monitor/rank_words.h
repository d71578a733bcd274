// What a rank says about itself to processes that watch it: plain words in memory that they can map.
#ifndef RONDA_RUNTIME_MONITOR_RANK_WORDS_H_
#define RONDA_RUNTIME_MONITOR_RANK_WORDS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/operation.h"
#include "runtime/monitor/rank_request.h"
#include "runtime/monitor/statistics.h"

namespace ronda {

// How the ranks agreed on a bucket: rank 0's list ordered it, or the locked schedule has it.
enum class BucketMode : uint8_t { kNegotiated = 0, kScheduled = 1 };
inline constexpr int kBucketModeCount = 2;

constexpr const char* Name(BucketMode mode) { return mode == BucketMode::kNegotiated ? "negotiated" : "scheduled"; }

// The entry of a rank into one bucket. Times are nanoseconds on the clock of flight recorders.
struct BucketEntry {
  uint64_t bucket = 0;
  uint64_t time = 0;
  uint64_t step = 0;  // the rank's at that time
  uint64_t left = 0;  // when the rank was done with the bucket; 0: it is not yet

  friend bool operator==(const BucketEntry&, const BucketEntry&) = default;
};

// What a rank's device has spent on the buckets that were timed: one in kPeriod, so about kPeriod times as much is the
// time of all. Written by the thread that learns of buckets' ends.
struct DeviceTimes {
  static constexpr uint64_t kPeriod = 32;
  static constexpr int kPhases = 5;
  // As StreamPhase (runtime/collectives/transport.h) has them.
  static constexpr const char* kPhaseNames[kPhases] = {"wait_for_data", "pack", "transfer", "reduce", "unpack"};

  Counter buckets;               // timed
  Counter nanoseconds[kPhases];  // of these
};

// The words of one rank. They lie in a memfd of the rank's process named kRankFileName; a process of the same user
// opens it as /proc/PID/fd/N. So the words can be read while the rank is stopped; they are gone with the rank and its
// readers, however these end; and no other user can open them. The file cannot change its size. A process that becomes
// a rank again, after shutdown(), has new words.
//
// Only the rank writes them, and all of its own threads, so that no cache line has two ranks that write to it. The
// request, on cache lines of its own, is the exception: see RankRequestWords.
//
// Memory ordering: `magic` is stored last, with release, and publishes the words that do not change. Counters are
// independent of each other, and relaxed. `current` and the places of the ring are words around which the rest is
// stored: a writer stores 0, then the rest, then the number, all with release. A reader loads the number, then the
// rest, then the number, all with acquire: equal numbers above 0 say that the rest belongs to them. `buckets` is stored
// with release before the place of that bucket, and after the places of all buckets before: a reader that loads n has
// the entries up to n - 1, and one that has seen a place overwritten by bucket n loads n or more.
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
    std::atomic<uint64_t> left;  // stored once more while the number stays, when the rank leaves the bucket
  };

  // Of the layout, in every version at this place.
  std::atomic<uint64_t> magic{0};
  uint32_t version = kVersion;
  uint32_t bytes = 0;  // sizeof(RankWords)

  // The rank and its job. Texts end with a zero byte.
  uint64_t start_time = 0;  // of the process, see ProcessId
  int32_t pid = 0;
  int32_t rank = 0;
  int32_t size = 1;
  int32_t local_rank = 0;
  int32_t local_size = 1;
  int32_t cross_rank = 0;
  int32_t cross_size = 1;
  // The rank's flight recorder: a descriptor of its process, and the place in that file.
  int32_t recorder_descriptor = -1;
  uint64_t recorder_offset = kNoRecorder;
  // One moment on CheapTicks() and on the clock of flight recorders, in nanoseconds.
  uint64_t start_ticks = 0;
  uint64_t start_nanoseconds = 0;
  char job[kJobBytes] = {};
  char host[kHostBytes] = {};
  std::atomic<uint64_t> ended{0};  // 1: the rank has ended, and its process perhaps goes on

  alignas(64) Counters counters;
  Counter collectives[kOpTypeCount][kBucketModeCount];  // buckets carried out with this rank's part
  DeviceTimes device_times;

  // Buckets up to now, in the order in which all ranks make their calls, also those in which this rank has no part: the
  // number of a bucket is the same on every rank.
  alignas(64) std::atomic<uint64_t> buckets{0};
  std::atomic<uint64_t> current{0};         // the number of the bucket in which this rank is; 0: in none
  std::atomic<uint64_t> current_since{0};   // its entry
  std::atomic<uint64_t> last_step_time{0};  // when the last step ended; 0: none has
  Entry entries[kEntries] = {};             // of bucket n at n % kEntries, if this rank has a part in it

  RankRequestWords request;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The counts as of now, on the host of the rank.
Statistics Read(const RankWords& words);

inline constexpr char kRankFileName[] = "ronda-rank";

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_RANK_WORDS_H_
