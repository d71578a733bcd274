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

// Measures how late ranks enter those buckets in which at least two of a job's ranks take part. Consecutive samples may
// cover the same buckets. Each bucket is measured only once, as soon as no rank can still enter it.
//
// On a single host, a rank's lateness is the time from the first rank's entry into the bucket to this rank's entry. The
// clocks of different hosts differ, but ranks leave a bucket at about the same time. So in a job on several hosts, a
// rank's lateness is the longest time that any rank spent in the bucket, minus the time that this rank spent in it. On
// several hosts, a bucket is measured as soon as all ranks have left it.
//
// A pure state machine. Thread-compatible.
class LatenessMeter {
 public:
  enum class Clocks { kOne, kOfEachHost };
  explicit LatenessMeter(std::vector<RankId> ranks, Clocks clocks = Clocks::kOne)
      : ranks_(std::move(ranks)), clocks_(clocks), lateness_(ranks_.size()), straggler_(ranks_.size()) {}

  // Takes one sample per rank, in the order of the ranks.
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
  // Sets `late` in all entries, and returns when the first rank entered the bucket.
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
