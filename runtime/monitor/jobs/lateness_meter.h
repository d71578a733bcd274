#ifndef RONDA_RUNTIME_MONITOR_JOBS_LATENESS_METER_H_
#define RONDA_RUNTIME_MONITOR_JOBS_LATENESS_METER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/jobs/rank_reader.h"
#include "runtime/monitor/jobs/straggler.h"

namespace ronda {

// How late the ranks of one host come into their common buckets. Samples of the ranks' last entries overlap; each
// bucket counts once, as soon as no rank can still enter it.
//
// A pure state machine. Thread-compatible.
class LatenessMeter {
 public:
  explicit LatenessMeter(std::vector<RankId> ranks)
      : ranks_(std::move(ranks)), lateness_(ranks_.size()), straggler_(ranks_.size()) {}

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
  };
  void Measure(const std::vector<Entered>& entries);

  const std::vector<RankId> ranks_;
  std::vector<RankLateness> lateness_;
  uint64_t next_ = 0;  // the first bucket that has not been looked at; 0: none has
  uint64_t measured_ = 0;
  uint64_t missed_ = 0;
  StragglerWatch straggler_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_LATENESS_METER_H_
