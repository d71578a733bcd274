// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_JOBS_JOB_SAMPLER_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_JOB_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "programs/monitor/jobs/diagnosis.h"
#include "programs/monitor/jobs/job_origin.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "programs/monitor/jobs/lateness_meter.h"
#include "programs/monitor/jobs/process_times.h"
#include "programs/monitor/jobs/rank_reader.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Watches the ranks of one job on this host, each time that Sample is called. The snapshot also includes ranks on other
// hosts, if the monitors of those hosts report them.
//
//   JobSampler sampler(std::move(ranks));
//   for (;; absl::SleepFor(JobSampler::kPeriod)) {
//     sampler.Sample(FlightNow());
//     Show(sampler.Snapshot());
//   }
//
// A rank records its entries into the last 256 buckets. If a job runs more buckets between two samples, the sampler
// misses some of them. The snapshot has the number of buckets missed.
//
// Thread-compatible. JobSampler has no thread of its own.
class JobSampler {
 public:
  static constexpr absl::Duration kPeriod = absl::Milliseconds(100);
  static constexpr absl::Duration kLongestPeriod = absl::Milliseconds(500);
  // A shorter wait is not a standstill.
  static constexpr absl::Duration kStandstillThreshold = absl::Milliseconds(500);

  // `ranks` are the ranks of one job, sorted by number. The constructor does not read the ranks; the first call of
  // Sample does.
  explicit JobSampler(std::vector<std::unique_ptr<RankReader>> ranks);

  // Reads the ranks. The first call also covers earlier buckets that the ranks still have on record. `others` holds the
  // latest reports about ranks on other hosts, by address. A host's entry must keep its memory address from call to
  // call. If a new rank appears in `others`, all numbers about the job restart from zero.
  using OtherHosts = std::map<std::string, OtherHost>;  // by address
  void Sample(FlightTime now, const OtherHosts& others = {});

  // Returns how long the caller may wait before it calls Sample again: from kPeriod to kLongestPeriod. By then, ranks
  // that keep their speed have not overwritten any unread record, unless they run more than 256 buckets per kPeriod.
  absl::Duration NextPeriod() const;

  // Returns the state of the job as of the last call of Sample.
  JobSnapshot Snapshot() const;

  // Returns how many ranks on this host have not ended. A rank whose process has died may still be counted for about a
  // second. A rank that has left the job is no longer counted after the next call of Sample.
  size_t living() const;

  // Returns whether `rank` is one of the watched ranks and has not ended. (A process may leave the job and join again
  // as the same rank.)
  bool Watches(const RankIdentity& rank) const;

 private:
  // A rank's data at one moment. Rates are computed from two points.
  struct Point {
    FlightTime time;
    Statistics counts;
    uint64_t buckets = 0;
    FlightTime last_step;
    absl::Duration waited;
    uint64_t measured = 0;
    absl::Duration lateness;
    absl::Duration blamed;
  };
  struct Rank {
    std::unique_ptr<RankReader> reader;  // nullptr: a rank of another host
    const OtherHost* host = nullptr;     // the rank's host, as of the last Sample
    RankIdentity identity;
    bool is_alive = true;
    bool is_heard = true;
    RankSample told;  // for a rank of another host, like the next one
    ProcessTimes told_process;
    std::deque<Point> points;  // of the last second, and one earlier
    std::optional<Point> first_step, last_step;
    ProcessTimes process_before;
    ProcessTimes process_now;
  };

  // Identifies a rank on another host, including its process.
  using RankKey = std::tuple<const OtherHost*, RankId, pid_t, uint64_t>;
  static std::vector<RankKey> KeysOf(const OtherHosts& others);

  // Sets ranks_ to the ranks on this host and those in `others`.
  void Gather(const OtherHosts& others);
  // Stores the reports about ranks on other hosts.
  void Hear(FlightTime now, const OtherHosts& others);
  bool IsTimeToLookAtProcesses(FlightTime now) const;
  void LookAtProcesses(FlightTime now);
  // Keeps the exposed time from decreasing: each read converts it anew, so a new value may be slightly smaller.
  static void KeepGrowing(const Rank& rank, RankSample* sample);
  static void Remember(const Point& point, Rank* rank);
  static RankRates RatesOf(const Rank& rank);
  static RankTotals TotalsOf(const Rank& rank, const RankSample& sample);

  const JobOrigin origin_;
  std::vector<Rank> ranks_;                // by rank, once they have been gathered
  std::vector<RankSample> samples_;        // the last ones, in the order of ranks_
  std::vector<RankKey> known_;             // of the ranks of other hosts
  std::vector<HostLink> links_;            // to other hosts
  absl::Duration oldest_;                  // the age of samples of other hosts that answer
  std::optional<LatenessMeter> lateness_;  // always there
  FlightTime now_;
  FlightTime processes_seen_ = -absl::InfiniteDuration();
  absl::Duration process_span_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_JOB_SAMPLER_H_
