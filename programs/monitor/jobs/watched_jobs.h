// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_JOBS_WATCHED_JOBS_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_WATCHED_JOBS_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "programs/monitor/jobs/job_sampler.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "programs/monitor/jobs/rank_reader.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// The jobs of this user on this host that are being watched. A job can be watched even before its ranks exist.
//
// If a new rank appears in a job, all numbers about the job restart from zero, because they compare its ranks. Ranks
// that have ended stay in the snapshots, with their last data, until the job gets a new rank or ForgetEnded is called.
//
// Thread-compatible. WatchedJobs has no thread of its own.
class WatchedJobs {
 public:
  // Searching for ranks costs much more than reading known ranks. WatchedJobs searches often at the start, while no job
  // is running, and while a job that has started lacks ranks. At other times, it searches rarely or not at all. After
  // the first unsuccessful searches, searching takes at most 0.2 % of the time. This limit is necessary because a host
  // may run very many processes, and a program may never become a rank.
  static constexpr absl::Duration kSearchAtStart = absl::Milliseconds(200);
  static constexpr absl::Duration kSearchSoon = absl::Seconds(1);
  static constexpr absl::Duration kSearchSeldom = absl::Seconds(10);
  static constexpr absl::Duration kStart = absl::Minutes(1);  // after this time no missing rank is expected
  static constexpr int kEagerSearches = 20;
  static constexpr int kRest = 500;  // a pause after a search is this many times as long as the search

  struct Options {
    RankFilter is_watched;  // selects the ranks of these jobs
    // kUntilComplete: once all ranks of a job are found, WatchedJobs does not look for other jobs until that job has
    // ended.
    enum class Search { kUntilComplete, kAlways } search = Search::kUntilComplete;
    std::function<FoundRanks()> find = [] { return FindRanks(); };
    std::function<FlightTime()> stopwatch = FlightNow;  // measures the time of `find`
  };
  explicit WatchedJobs(Options options) : options_(std::move(options)) {}

  // Reads the known ranks, and searches for new ranks when a search is due. Call Sample every JobSampler::kPeriod, or
  // after NextPeriod(), which depends on the speed of the jobs.
  void Sample(FlightTime now);
  absl::Duration NextPeriod() const;

  // Stores a report from another host's monitor, for use by the next call of Sample. Does nothing if no rank of the job
  // is on this host.
  void Tell(OtherHost other);

  // Returns the snapshots of the last call of Sample, sorted by job id.
  std::vector<JobSnapshot> Snapshots() const;

  size_t size() const { return jobs_.size(); }

  // Removes the jobs whose ranks on this host have all ended.
  void ForgetEnded();

  // Like ForgetEnded, but removes an epoch of a job only if a later epoch of the job has begun. Returns the last
  // snapshots of the removed epochs.
  std::vector<JobSnapshot> TakeEndedEpochs();

  // Returns the reasons why some of the ranks found cannot be read. Returns each reason only once.
  std::vector<std::string> TakeProblems() { return std::exchange(problems_, {}); }

 private:
  struct Job {
    size_t expected = 0;  // ranks of the job on this host
    FlightTime since;     // when the last rank was found
    std::unique_ptr<JobSampler> sampler;
    JobSampler::OtherHosts others;
  };

  void Search(FlightTime now);
  void Watch(std::vector<std::unique_ptr<RankReader>> readers, FlightTime now, Job* job);
  absl::Duration SearchPeriod(FlightTime now) const;

  const Options options_;
  std::map<std::string, Job> jobs_;
  FlightTime searched_ = -absl::InfiniteDuration();
  absl::Duration search_period_ = kSearchAtStart;
  absl::Duration rest_;  // the shortest time between two searches
  int searches_ = 0;     // since new ranks were found
  std::vector<std::string> problems_;
  std::set<std::string> known_problems_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_WATCHED_JOBS_H_
