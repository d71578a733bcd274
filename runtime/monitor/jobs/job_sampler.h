#ifndef RONDA_RUNTIME_MONITOR_JOBS_JOB_SAMPLER_H_
#define RONDA_RUNTIME_MONITOR_JOBS_JOB_SAMPLER_H_

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
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/jobs/diagnosis.h"
#include "runtime/monitor/jobs/job_origin.h"
#include "runtime/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/jobs/lateness_meter.h"
#include "runtime/monitor/jobs/process_times.h"
#include "runtime/monitor/jobs/rank_reader.h"

namespace ronda {

// Watches the ranks of one job on this host, for as long as its user calls Sample; and those of other hosts, as far as
// their monitors tell.
//
//   JobSampler sampler(std::move(ranks));
//   for (;; absl::SleepFor(JobSampler::kPeriod)) {
//     sampler.Sample(FlightNow());
//     Show(sampler.Snapshot());
//   }
//
// A rank keeps its entries into the last 256 buckets: a job that carries out more between two samples has buckets that
// are missed, which the snapshot counts.
//
// Thread-compatible. Has no thread of its own.
class JobSampler {
 public:
  static constexpr absl::Duration kPeriod = absl::Milliseconds(100);
  static constexpr absl::Duration kLongestPeriod = absl::Milliseconds(500);
  // Waits that are shorter are no standstill.
  static constexpr absl::Duration kPatience = absl::Milliseconds(500);

  // `ranks` are of one job, by rank. Looks at them for the first time with the first Sample.
  explicit JobSampler(std::vector<std::unique_ptr<RankReader>> ranks);

  // Reads the ranks. The first call takes in the buckets that they have entered before, as far as they keep them.
  // `others` are what is known of other hosts, each at the same place in memory in every call: a rank there that is new
  // makes all numbers begin anew.
  using OtherHosts = std::map<std::string, OtherHost>;  // by address
  void Sample(FlightTime now, const OtherHosts& others = {});

  // How long Sample may wait for its next call, for a user that wants to cost little: ranks that keep their pace
  // overwrite no entry until then. From kPeriod to kLongestPeriod.
  absl::Duration NextPeriod() const;

  // As of the last call of Sample.
  JobSnapshot Snapshot() const;

  // How many of the ranks have not ended, as of the last second; or of the last Sample, if others have left the job.
  size_t living() const;

  // Whether `rank` is one of them, and has not ended by now: a process may become the same rank again.
  bool Watches(const RankIdentity& rank) const;

 private:
  // What rates are made from.
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
    const OtherHost* host = nullptr;     // that one, as of the last Sample
    RankIdentity identity;
    bool is_alive = true;
    bool is_heard = true;
    RankSample told;  // of a rank of another host, like the next
    ProcessTimes told_process;
    std::deque<Point> points;  // of the last second, and one from before
    std::optional<Point> first_step, last_step;
    ProcessTimes process_before;
    ProcessTimes process_now;
  };

  // A process that is a rank of another host.
  using RankKey = std::tuple<const OtherHost*, RankId, pid_t, uint64_t>;
  static std::vector<RankKey> KeysOf(const OtherHosts& others);

  // Makes the ranks those of this host and of `others`.
  void Gather(const OtherHosts& others);
  // Takes what is told of the ranks of other hosts.
  void Hear(FlightTime now, const OtherHosts& others);
  bool IsTimeToLookAtProcesses(FlightTime now) const;
  void LookAtProcesses(FlightTime now);
  // The one count that is converted with each look, and may come out a little less.
  static void KeepGrowing(const Rank& rank, RankSample* sample);
  static void Remember(const Point& point, Rank* rank);
  static RankRates RatesOf(const Rank& rank);
  static RankTotals TotalsOf(const Rank& rank);

  const JobOrigin origin_;
  std::vector<Rank> ranks_;                // by rank, once they have been gathered
  std::vector<RankSample> samples_;        // the last ones, in the order of ranks_
  std::vector<RankKey> known_;             // of the ranks of other hosts
  std::vector<HostLink> links_;            // to other hosts
  absl::Duration oldest_;                  // the age of samples of other hosts that are heard
  std::optional<LatenessMeter> lateness_;  // always there
  FlightTime now_;
  FlightTime processes_seen_ = -absl::InfiniteDuration();
  absl::Duration process_span_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_JOB_SAMPLER_H_
