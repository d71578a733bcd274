// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_JOBS_LATENESS_METER_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_LATENESS_METER_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "programs/monitor/jobs/rank_reader.h"
#include "programs/monitor/jobs/straggler.h"
#include "runtime/base/types.h"

namespace ronda {

// Measures how late a job's ranks enter their common buckets. Consecutive samples may contain the same entries, but the
// meter measures each bucket only once, as soon as no rank can still enter it.
//
// On one host, a rank's lateness is its entry minus the first rank's entry. The clocks of several hosts differ, but
// ranks leave a bucket at about the same time. So on several hosts, a rank's lateness is the longest time that any rank
// has spent in the bucket, minus the rank's own time in it. The meter then measures a bucket when all ranks have left
// it.
//
// The class is a pure state machine. Thread-compatible.
class LatenessMeter {
 public:
  enum class Clocks { kOne, kOfEachHost };
  explicit LatenessMeter(std::vector<RankId> ranks, Clocks clocks = Clocks::kOne)
      : ranks_(std::move(ranks)), clocks_(clocks), lateness_(ranks_.size()), straggler_(ranks_.size()) {}

  // Takes a sample of each rank, in the order of the ranks.
  void Add(absl::Span<const RankSample> samples);

  const std::vector<RankLateness>& lateness() const { return lateness_; }  // in the order of the ranks
  uint64_t measured() const { return measured_; }
  uint64_t missed() const { return missed_; }
  const StragglerWatch& straggler() const { return straggler_; }

 private:
  struct Entered {
    size_t rank;
    const BucketEntry* entry;
    uint64_t late = 0;  // nanoseconds
  };
  uint64_t LastToMeasure(const RankSample& sample) const;
  // Sets `late` in all entries. Returns the time at which the first rank entered the bucket.
  uint64_t Compare(std::vector<Entered>* entries) const;
  void Measure(std::vector<Entered> entries);

  const std::vector<RankId> ranks_;
  const Clocks clocks_;
  std::vector<RankLateness> lateness_;
  uint64_t next_ = 0;  // the first bucket that has not been examined; 0: none has
  uint64_t measured_ = 0;
  uint64_t missed_ = 0;
  StragglerWatch straggler_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_LATENESS_METER_H_
