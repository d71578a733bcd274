// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_MONITOR_RANK_METER_H_
#define RONDA_RUNTIME_MONITOR_RANK_METER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/rank_words.h"

namespace ronda {

// Counts the work of a rank, in shared memory that other processes can read (RankWords).
//
// Thread-safety: only the progress thread may call these functions, with two exceptions. The submitting threads call
// BeginStep(), under their own lock, and any thread may read words(). No call blocks or allocates memory.
class RankMeter {
 public:
  struct Options {
    std::string job;  // the same on every rank; empty: only this process knows the job
    Topology topology;
    FileRange recorder;  // where this rank's flight recorder is
  };

  // Creates a meter. If the system cannot create a memfd, other processes cannot see the rank.
  static std::unique_ptr<RankMeter> Create(const Options& options);
  ~RankMeter();
  RankMeter(const RankMeter&) = delete;
  RankMeter& operator=(const RankMeter&) = delete;

  const RankWords& words() const { return *words_; }
  Counters& counters() { return words_->counters; }
  DeviceTimes& device_times() { return words_->device_times; }
  RankRequestWords& request() { return words_->request; }

  // Times are FlightTimes, or nanoseconds where a conversion would take too long.

  // Must be called when the program submits a tensor that the current step already contains, which starts a new step.
  void BeginStep(uint64_t now);
  void BeginStep(FlightTime now) { BeginStep(Nanoseconds(now)); }

  // Must be called when the ranks make their next collective call without this rank.
  void PassBucket() { NextBucket(); }

  // Must be called when this rank starts its next collective call. `ready` is when all tensors of the call became
  // ready, and is not later than `now`.
  struct Bucket {
    OpType op = OpType::kAllreduce;
    BucketMode mode = BucketMode::kNegotiated;
    uint64_t tensors = 0;
    uint64_t payload_bytes = 0;
    uint64_t wire_bytes = 0;
  };
  void EnterBucket(uint64_t ready, uint64_t now);
  void EnterBucket(FlightTime ready, FlightTime now) { EnterBucket(Nanoseconds(ready), Nanoseconds(now)); }

  // One of these must be called when this rank's current call has ended: LeaveBucket() if `bucket` was completed,
  // LeaveWithoutEffect() if it was vetoed or failed.
  void LeaveBucket(const Bucket& bucket, uint64_t now);
  void LeaveBucket(const Bucket& bucket, FlightTime now) { LeaveBucket(bucket, Nanoseconds(now)); }
  void LeaveWithoutEffect(uint64_t now);
  void LeaveWithoutEffect(FlightTime now) { LeaveWithoutEffect(Nanoseconds(now)); }

 private:
  RankMeter(UniqueFd file, RankWords* words) : file_(std::move(file)), words_(words) {}

  static uint64_t Nanoseconds(FlightTime time) { return static_cast<uint64_t>(absl::ToInt64Nanoseconds(time)); }

  uint64_t NextBucket();

  const UniqueFd file_;  // kept open for readers in other processes; no file: only this process has the words
  RankWords* const words_;
  uint64_t entered_ = 0;  // nanoseconds: when this rank entered its current call
  uint64_t left_ = 0;     // when its previous call ended
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_RANK_METER_H_
