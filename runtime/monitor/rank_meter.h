#ifndef RONDA_RUNTIME_MONITOR_RANK_METER_H_
#define RONDA_RUNTIME_MONITOR_RANK_METER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/rank_words.h"

namespace ronda {

// Counts a rank's work, in words that other processes can read (RankWords).
//
// Thread-safety: the calls are the progress thread's, but for BeginStep, which threads that submit call under a lock of
// theirs, and for words(), which any thread may read. No call waits or allocates.
class RankMeter {
 public:
  struct Options {
    std::string job;  // the same on every rank; empty: known by this process alone
    Topology topology;
    FileRange recorder;  // where this rank's flight recorder lies
  };

  // Where the system has no file in memory to give, no other process sees the rank.
  static std::unique_ptr<RankMeter> Create(const Options& options);
  ~RankMeter();
  RankMeter(const RankMeter&) = delete;
  RankMeter& operator=(const RankMeter&) = delete;

  const RankWords& words() const { return *words_; }
  Counters& counters() { return words_->counters; }
  DeviceTimes& device_times() { return words_->device_times; }
  RankRequestWords& request() { return words_->request; }

  // Times are FlightTimes or, where a conversion would cost too much, their nanoseconds.

  // A tensor is submitted that the step so far has already.
  void BeginStep(uint64_t now);
  void BeginStep(FlightTime now) { BeginStep(Nanoseconds(now)); }

  // All ranks make their next call, in which this rank takes no part.
  void PassBucket() { NextBucket(); }

  // This rank enters the next call. `ready` is when all of its tensors were; not
  // later than `now`.
  struct Bucket {
    OpType op = OpType::kAllreduce;
    BucketMode mode = BucketMode::kNegotiated;
    uint64_t tensors = 0;
    uint64_t payload_bytes = 0;
    uint64_t wire_bytes = 0;
  };
  void EnterBucket(uint64_t ready, uint64_t now);
  void EnterBucket(FlightTime ready, FlightTime now) { EnterBucket(Nanoseconds(ready), Nanoseconds(now)); }

  // The call in which this rank is has ended: as `bucket` or, after a veto or a failure, without effect.
  void LeaveBucket(const Bucket& bucket, uint64_t now);
  void LeaveBucket(const Bucket& bucket, FlightTime now) { LeaveBucket(bucket, Nanoseconds(now)); }
  void LeaveWithoutEffect(uint64_t now);
  void LeaveWithoutEffect(FlightTime now) { LeaveWithoutEffect(Nanoseconds(now)); }

 private:
  RankMeter(UniqueFd file, RankWords* words) : file_(std::move(file)), words_(words) {}

  static uint64_t Nanoseconds(FlightTime time) { return static_cast<uint64_t>(absl::ToInt64Nanoseconds(time)); }

  uint64_t NextBucket();

  const UniqueFd file_;  // kept open for those who look for it; none: the words are this process' own
  RankWords* const words_;
  uint64_t entered_ = 0;  // nanoseconds: the entry into the call in which this rank is
  uint64_t left_ = 0;     // the end of the one before
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_RANK_METER_H_
